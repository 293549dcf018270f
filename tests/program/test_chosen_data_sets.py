"""The name of a data set chooses among functions that make loaders: those of the others say nothing of the images."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """\
import argparse
import torch, torchvision
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T
parser = argparse.ArgumentParser()
parser.add_argument("--data", default="small")
args = parser.parse_args()
def small():
    return DataLoader(datasets.CIFAR10("x", transform={small}), batch_size=8)
def large():
    return DataLoader(datasets.ImageFolder("x", transform=T.Compose([T.Resize(224), T.ToTensor()])), batch_size=8)
loaders = {"small": small, "large": large}
loader = {chosen}
model = torchvision.models.resnet18().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss_of(model(x.cuda()), y).backward()
    optimizer.step()
"""


def side(chosen: str, root: Path, small: str = "T.ToTensor()") -> object:
    text = PROGRAM.replace("{chosen}", chosen).replace("{small}", small)
    return values(read_program(text, root))["train.image_size"]


def test_the_data_set_of_the_function_that_is_called(tmp_path: Path) -> None:
    assert side("small()", tmp_path) == side("globals()[args.data]()", tmp_path) == 32
    assert side("small()", tmp_path, "T.Resize(96)") == 96
    assert side("large()", tmp_path) == 224


def test_a_transform_that_is_not_known_may_resize_its_images(tmp_path: Path) -> None:
    assert is_unknown(side("small()", tmp_path, "of_the_project"))  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", ["loaders.get(args.data)()", "made_of(args)"])
def test_which_function_is_called_is_not_known(chosen: str, tmp_path: Path) -> None:
    assert is_unknown(side(chosen, tmp_path))  # type: ignore[arg-type]
