"""What a data set hands out, as its `__getitem__` says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import read_program, values

PROGRAM = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Ours(Dataset):
    def __init__(self):
        self.rows = np.load("rows.npy")

    def __getitem__(self, index):
        {body}


model = torch.nn.Linear(2, 2)
for batch in DataLoader(Ours(), batch_size=4):
    model(batch).sum().backward()
"""

BODIES = {
    "return torch.from_numpy(self.rows[index]), 1": {},
    "return self.rows[index]": {},
    "return torch.tensor(self.rows[index]), 1": {"data.copies_samples": True},
    "row = self.rows[index].astype(np.float32); return row, 1": {"data.copies_samples": True},
    "return torch.from_numpy(decoded(index) / 255.0)": {"data.samples_from": "numpy"},
    "image = torch.from_numpy(read(index)); return image": {"data.samples_from": "numpy"},
    "return self.transform(self.rows[index])": {},
    "return torch.full((3, 4), index)": {},
}


@pytest.mark.parametrize("body", BODIES)
def test_what_is_returned(body: str, tmp_path: Path) -> None:
    told = values(read_program(PROGRAM.format(body=body), tmp_path))
    fields = ("data.copies_samples", "data.samples_from")
    assert {name: told[name] for name in fields if name in told} == BODIES[body]
