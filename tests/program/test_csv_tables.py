"""Tables that a program reads from files beside it: rows, columns and types of .csv files."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import read_program, values

HEAD = """
import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""


def told(text: str, tmp_path: Path) -> dict[str, object]:
    return dict(values(read_program(HEAD + text, tmp_path)))


def csv_file(tmp_path: Path, rows: int = 70_000, text: str = "abc") -> None:
    lines = ["a,b,y,name", *(f"{i},{i / 4},{i % 2},{text}" for i in range(rows))]
    (tmp_path / "x.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("made", "size", "kept"),
    [
        ("torch.tensor(df[['a', 'b']].values, dtype=torch.float32)", 8, 8),
        ("torch.tensor(df.drop(columns=['y', 'name']).to_numpy('float32'))", 8, 8),
        ("torch.from_numpy(df['a'].values)", 8, 0),
        ("torch.tensor(df.b.to_numpy())", 8, 8),
        ("torch.tensor(df.drop('name', axis=1).values)", 24, 24),
    ],
)
def test_arrays_of_a_csv_file(made: str, size: int, kept: int, tmp_path: Path) -> None:
    csv_file(tmp_path)
    text = f"df = pd.read_csv('x.csv')\nx = {made}\nloader = DataLoader(TensorDataset(x), batch_size=8)\n"
    found = told(text, tmp_path)
    assert (found["data.sample_bytes"], found["data.samples"]) == (size, 70_000)
    assert found["data.in_memory_bytes"] == 70_000 * (kept + 3 * 8 + 57 + 3)  # the table itself, with a str of each row


@pytest.mark.parametrize(
    "made", ["df.values", "df[['a', 'no']].values", "df['name'].values", "df[df.a > 3][['a']].values", "df.mine()"]
)
def test_arrays_that_are_not_known(made: str, tmp_path: Path) -> None:
    csv_file(tmp_path, 20)
    text = f"df = pd.read_csv('x.csv')\nx = torch.tensor({made})\nloader = DataLoader(TensorDataset(x), batch_size=8)\n"
    assert "data.sample_bytes" not in told(text, tmp_path)


@pytest.mark.parametrize(("text", "more"), [("abc", ", nrows=5"), ('"a\nb"', ""), ("a,b", "")])
def test_tables_that_are_not_plain(text: str, more: str, tmp_path: Path) -> None:
    csv_file(tmp_path, 20, text)
    read = f"df = pd.read_csv('x.csv'{more})\nx = torch.tensor(df[['a']].values)\n"
    assert "data.sample_bytes" not in told(read + "loader = DataLoader(TensorDataset(x), batch_size=8)\n", tmp_path)


def test_a_data_set_that_keeps_a_table_is_known(tmp_path: Path) -> None:
    csv_file(tmp_path, 500)
    text = """
class Data(Dataset):
    def __init__(self):
        self.df = pd.read_csv("x.csv")

    def __len__(self):
        return len(self.df)

    def __getitem__(self, i):
        return torch.tensor(self.df["a"][i]), self.df["name"][i]


loader = DataLoader(Data(), batch_size=8)
"""
    found = told(text, tmp_path)
    assert (found["data.samples"], found["data.in_memory_bytes"]) == (500, 500 * (3 * 8 + 57 + 3))
