"""A program with a model of its own gets a figure as a function of its batch; where the reading ends, the bound of its
parameters with the line that ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from folders import Write

from preflight.engine.check import Analysis, CheckOptions, analyse, setup
from preflight.engine.files import batches
from tests.tracer.own_models_as_text import PROGRAMS


def analysed(project: Write, root: Path, text: str) -> Analysis:
    project({"train.py": text})
    [found] = batches(["train.py"], root, from_hook=False)
    return analyse(*setup(found, CheckOptions(gpu="T4"), root))


def test_a_figure_names_where_it_was_read(project: Write, tmp_path: Path) -> None:
    (result,) = analysed(project, tmp_path, PROGRAMS["resnet"]).studies
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.verdict == "fits"
    assert not found.lower_bound
    assert any("ResNet was read from train.py:" in note and "not executed" in note for note in found.notes)
    job = result.space.worst.job
    assert str(job.model.target).startswith("read:train.py:ResNet#")
    assert found.largest_batch_size is not None
    assert found.largest_batch_size > 8


def test_a_setting_decides_the_width(project: Write, tmp_path: Path) -> None:
    text = PROGRAMS["mlp"].replace("MLP(12, 32, outside=3)", "MLP(12, args.width, outside=3)")
    parsed = "import argparse\nparser = argparse.ArgumentParser()\n"
    parsed += "parser.add_argument('--width', type=int, default=48)\nargs = parser.parse_args()\n"
    (result,) = analysed(project, tmp_path, text.replace("\ndef main", f"\n{parsed}\ndef main")).studies
    job = result.space.worst.job
    assert job.model.kwargs == {"hidden": 48}
    assert result.space.worst.estimates.device is not None
    assert not result.space.worst.estimates.device.lower_bound


def test_where_the_reading_ends_there_is_a_bound_and_the_line(project: Write, tmp_path: Path) -> None:
    text = PROGRAMS["lenet"].replace("x = self.fc2(x)", "x = outside(self.fc2(x))")
    (result,) = analysed(project, tmp_path, text).studies
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.lower_bound
    assert found.verdict == "unknown"
    assert found.cannot_trace is not None
    line = 1 + text[: text.index("outside(")].count("\n")
    assert f"train.py, line {line}: outside is not known" in found.cannot_trace.words


CHOSEN = """\
import argparse
import torch
from torch import nn
from torchvision import datasets, transforms
parser = argparse.ArgumentParser()
parser.add_argument("--no-accel", action="store_true")
args = parser.parse_args()
use = not args.no_accel and torch.accelerator.is_available()
if use:
    device = torch.accelerator.current_accelerator()
else:
    device = torch.device("cpu")
more = {"num_workers": 1, "pin_memory": True} if use else {}
rows = datasets.MNIST("data", train=True, transform=transforms.ToTensor())
loader = torch.utils.data.DataLoader(rows, batch_size=128, MORE**more)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)
    def forward(self, x):
        return self.fc(x.view(-1, 784))
net = Net().to(device)
optimizer = torch.optim.Adam(net.parameters())
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("more", "read"), [("", True), ("collate_fn=stack, ", False)])
def test_a_device_and_arguments_of_the_loader_that_a_condition_chooses(
    more: str, read: bool, project: Write, tmp_path: Path
) -> None:
    (result,) = analysed(project, tmp_path, CHOSEN.replace("MORE", more)).studies
    assert str(result.space.worst.job.model.target).startswith("read:") == read
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.lower_bound != read


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("taught = teacher(x)", False),  # a model that nobody knows has weights and activations, too
        ("meter.update(x.size(0))", True),
    ],
)
def test_a_statement_that_is_not_read_may_not_run_another_model(
    line: str, read: bool, project: Write, tmp_path: Path
) -> None:
    made = 'teacher = torch.load("t.pt").to(device)\nmeter = Meter()\nfor x, y'
    text = CHOSEN.replace("MORE", "").replace("for x, y", made).replace("    loss =", f"    {line}\n    loss =")
    (result,) = analysed(project, tmp_path, text).studies
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.lower_bound != read
    assert (found.verdict == "fits") == read
