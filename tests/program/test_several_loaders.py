"""Several loaders of one program: which of them trains, and which batch its validation takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

TRAINS = """\
import torch
from torch.utils.data import DataLoader

def loader(data, **more):
    return DataLoader(data, **more)

def train(model, rounds, old):
    opt = torch.optim.AdamW(model.parameters())
    for batch in rounds:
        model(batch).sum().backward()
        opt.step()
    saved = DataLoader(old, batch_size=1, shuffle=False)
    measure(saved)

model = torch.nn.Linear(8, 8).cuda()
{lines}
"""
EVALUATES = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
{lines}
for batch in DataLoader(train_data, batch_size=16, shuffle=True):
    model(batch).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    "lines",
    [
        "rounds = loader(rows, batch_size=24, shuffle=True, num_workers=2)\ntrain(model, rounds, rows)",
        "train_loader = DataLoader(rows, batch_size=24, num_workers=2)\ntrain(model, train_loader, rows)",
    ],
)
def test_what_is_measured_in_the_function_that_trains_is_not_trained_on(lines: str, tmp_path: Path) -> None:
    found = values(read_program(TRAINS.format(lines=lines), tmp_path))
    assert (found["train.batch_size"], found["data.workers"]) == (24, 2)


def test_a_loader_that_stands_in_train_trains_where_no_other_does(tmp_path: Path) -> None:
    found = values(read_program(TRAINS.format(lines="train(model, rows, rows)"), tmp_path))
    assert found["train.batch_size"] == 1


@pytest.mark.parametrize(
    ("lines", "batch"),
    [
        ("val_few = DataLoader(val, batch_size=64)\nval_loader = DataLoader(val, batch_size=512)", 512),
        ("val_loader = DataLoader(val, batch_size=512)\nval_few = DataLoader(val, batch_size=64)", 512),
        ("n = 256\nval_few = DataLoader(val, batch_size=64)\nval_loader = DataLoader(val, batch_size=2 * n)", 512),
        ("val_few = DataLoader(val)\nval_loader = DataLoader(val, batch_size=8)", 8),
        ("val_few = DataLoader(val, batch_size=8)\nval_loader = DataLoader(val, batch_size=8)", 8),
    ],
)
def test_the_largest_of_several_loaders_validates(lines: str, batch: int, tmp_path: Path) -> None:
    assert values(read_program(EVALUATES.format(lines=lines), tmp_path))["validation.batch_size"] == batch


def test_one_of_several_that_is_not_known_may_be_the_largest(tmp_path: Path) -> None:
    lines = "val_few = DataLoader(val, batch_size=64)\nval_loader = DataLoader(val, batch_size=size())"
    assert is_unknown(values(read_program(EVALUATES.format(lines=lines), tmp_path))["validation.batch_size"])
