"""Loaders and transforms that a loop makes in turn, or a function for several callers."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

HEAD = """\
import torch, timm
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T
model = timm.create_model("resnet50").cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train(rows):
    for x, y in rows:
        loss = loss_of(model(x.cuda()), y)
        loss.backward()
        opt.step()
def make(path, size, batch):
    data = datasets.ImageFolder(path, T.Compose([T.Resize((size, size)), T.ToTensor()]))
    return DataLoader(data, batch_size=batch)
"""


def found(text: str, root: Path) -> tuple[object, ...]:
    said = values(read_program(HEAD + text, root))
    return tuple(said.get(name) for name in ("train.batch_size", "train.image_size", "validation.batch_size"))


@pytest.mark.parametrize(
    "lines",
    [
        'a = make("v", 288, 256)\nb = make("t", 224, 64)',
        'b = make("t", 224, 64)\na = make("v", 288, 256)',
    ],
)
def test_a_function_makes_the_loaders_that_its_callers_name(lines: str, tmp_path: Path) -> None:
    text = lines.replace("a =", "val_rows =").replace("b =", "train_rows =") + "\ntrain(train_rows)\n"
    assert found(text, tmp_path) == (64, 224, 256)


def test_each_round_trains_with_another_batch_and_size(tmp_path: Path) -> None:
    text = "for size, bs in [(128, 256), (224, 64), (288, 32)]:\n    train(make('t', size, bs))\n"
    batch, size, validation = found(text, tmp_path)
    assert is_unknown(batch)  # type: ignore[arg-type]
    assert is_unknown(size)
    assert validation is None


def test_the_rounds_of_a_loop_that_trains_afterwards_are_parts_of_the_data(tmp_path: Path) -> None:
    text = 'rows = {k: make(k, 224, 16 if k == "train" else 64) for k in ["train", "val"]}\ntrain(rows["train"])\n'
    assert found(text, tmp_path) == (16, 224, 64)


def test_rounds_with_the_same_batch_have_it(tmp_path: Path) -> None:
    text = "for part in ('a', 'b'):\n    train(make(part, 224, 32))\n"
    assert found(text, tmp_path) == (32, 224, None)
