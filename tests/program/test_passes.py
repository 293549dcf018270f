"""How many sequences go through the model before the gradients are computed: pairs, views, bags."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

HEAD = """\
import random, torch, torch.nn as nn
import pytorch_lightning as pl
from torch.utils.data import DataLoader
from torchvision.models import resnet50
from transformers import Trainer
"""
MODULE = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.body = resnet50()
        self.head = nn.Linear(1000, 2)
    def once(self, x):
        return self.body(x)
    def forward(self, *views):
        {forward}

net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for a, b, y in DataLoader(rows, batch_size=8):
    loss = loss_of(net(a.cuda(), b.cuda()), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
)
LOOP = (
    HEAD
    + """
model = resnet50().cuda()
other = resnet50().cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)

def embed(x):
    return model(x)

def evaluate(x):
    return model(x)

{before}
for a, b, y in DataLoader(rows, batch_size=8):
    {step}
"""
)
LIGHTNING = (
    HEAD
    + """
class Task(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = resnet50()
    def forward(self, x):
        return self.net(x)
    def shared(self, batch):
        return loss_of(self(batch[0]), self(batch[1]))
    def training_step(self, batch, index):
        {step}
    def validation_step(self, batch, index):
        return loss_of(self(batch[0]), self(batch[1]), self(batch[2]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

pl.Trainer(devices=1).fit(Task(), DataLoader(rows, batch_size=8))
"""
)


def sequences(text: str, root: Path) -> object:
    return values(read_program(text, root)).get("train.sequences_per_sample", 1)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return self.head(self.body(views[0]))", 1),
        ("return self.head(self.once(views[0]) - self.once(views[1]))", 2),
        ("return self.head(self.body(torch.cat([views[0], views[1]])))", 2),
        ("return self.head(self.body(views[0].view(views[0].size(0), -1)))", 1),
    ],
)
def test_within_a_module(forward: str, expected: int, tmp_path: Path) -> None:
    assert sequences(MODULE.replace("{forward}", forward), tmp_path) == expected


@pytest.mark.parametrize(
    "forward",
    [
        "n, k, c, h, w = views[0].shape\n        return self.body(views[0].view(n * k, c, h, w))",
        "n, k, c, h, w = views[0].size()\n        return self.body(views[0].reshape(-1, c, h, w))",
        "return self.body(views[0].flatten(0, 1))",
        "return torch.stack([self.body(views[0][:, i]) for i in range(views[0].size(1))]).mean(0)",
        "found = []\n        for view in views[0].unbind(1):\n            found.append(self.once(view))\n"
        "        return self.head(sum(found))",
        "return self.body(views[0][:4])",
    ],
)
def test_how_many_images_of_a_bag_is_not_known(forward: str, tmp_path: Path) -> None:
    assert is_unknown(sequences(MODULE.replace("{forward}", forward), tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("loss = loss_of(embed(a), embed(b), embed(y)); loss.backward()", 3),
        ("loss_of(model(a)).backward(); loss_of(model(b)).backward()", 1),
        ("loss_of(model(a), model(b)).backward(); loss_of(model(y)).backward()", 2),
        ("with torch.no_grad():\n        t = model(b)\n    loss_of(model(a), t).backward()", 1),
        ("loss = loss_of(model(a), evaluate(b)); loss.backward()", 1),
        ("loss = loss_of(model(a), other(a), other(b)); loss.backward()", 1),
        (
            "if random.random() < 0.5:\n        out = model(a)\n    else:\n        out = model(b)\n"
            "    loss_of(out).backward()",
            1,
        ),
        (
            "if amp:\n        loss = loss_of(model(a))\n        loss.backward()\n    else:\n"
            "        loss = loss_of(model(a))\n        loss.backward()",
            1,
        ),
        (
            "def closure():\n        loss = loss_of(model(a), model(b))\n        loss.backward()\n"
            "    opt.step(closure)",
            2,
        ),
        ("for part in (a, b):\n        loss_of(model(part)).backward()", 1),
        ("loss = loss_of(model(a[:, :3])); loss.backward()", 1),
    ],
)
def test_between_backward_passes(step: str, expected: int, tmp_path: Path) -> None:
    assert sequences(LOOP.replace("{step}", step).replace("{before}", ""), tmp_path) == expected


@pytest.mark.parametrize(
    "step",
    [
        "loss = sum(loss_of(model(a[:, i])) for i in range(turns)); loss.backward()",
        "loss = loss_of(model(a))\n    if random.random() < 0.1:\n        loss = loss + loss_of(model(b))\n"
        "    loss.backward()",
    ],
)
def test_what_only_a_run_decides(step: str, tmp_path: Path) -> None:
    found = sequences(LOOP.replace("{step}", step).replace("{before}", ""), tmp_path)
    assert is_unknown(found)  # type: ignore[arg-type]


def test_a_pass_before_the_loop_is_no_part_of_a_step(tmp_path: Path) -> None:
    text = LOOP.replace("{before}", "example = model(torch.zeros(1, 3, 224, 224))")
    assert sequences(text.replace("{step}", "loss_of(model(a)).backward()"), tmp_path) == 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("return loss_of(self(batch[0]))", 1),
        ("return loss_of(self(batch[0]), self(batch[1]))", 2),
        ("return self.shared(batch)", 2),
    ],
)
def test_a_training_step_of_lightning(step: str, expected: int, tmp_path: Path) -> None:
    assert sequences(LIGHTNING.replace("{step}", step), tmp_path) == expected


@pytest.mark.parametrize(("chosen", "expected"), [("--pairs", 2), ("", 1)])
def test_a_switch_of_the_program_decides(chosen: str, expected: int, tmp_path: Path) -> None:
    before = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--pairs', action='store_true')\n"
        f"args = parser.parse_args({chosen.split()!r})"
    )
    step = "loss = loss_of(model(a))\n    if args.pairs:\n        loss = loss + loss_of(model(b))\n    loss.backward()"
    assert sequences(LOOP.replace("{step}", step).replace("{before}", before), tmp_path) == expected
