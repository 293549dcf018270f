"""The study of a command, and settings that are lowered on its own line: only where that is the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions
from preflight.engine.launched import Launched, Override, launched, lowered

PROGRAM = """
import argparse, torch
from transformers import BertConfig, BertForSequenceClassification
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--grad_accum", type=int, default=1)
args = parser.parse_args()
model = BertForSequenceClassification(BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2))
data = torch.utils.data.TensorDataset(torch.zeros(99, 8), torch.zeros(99))
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
optimizer = torch.optim.AdamW(model.parameters())
for step, (x, y) in enumerate(loader):
    loss = model(input_ids=x, labels=y).loss / args.grad_accum
    loss.backward()
    if (step + 1) % args.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def read(folder: Path, *words: str) -> Launched | None:
    return launched(words, folder, CheckOptions())


@pytest.mark.parametrize("words", [("echo", "hello"), ("python", "missing.py"), ("true",)])
def test_what_trains_nothing_is_none(project: Write, words: tuple[str, ...]) -> None:
    assert read(project({"train.py": PROGRAM}), *words) is None


NO_FLAG = PROGRAM.replace('parser.add_argument("--grad_accum", type=int, default=1)\n', "").replace(
    "args.grad_accum", "1"
)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (NO_FLAG, "no flag"),
        (PROGRAM.replace("optimizer = ", "norm = torch.nn.BatchNorm1d(8)\noptimizer = "), "batch normalisation"),
        (PROGRAM.replace("args.batch_size)", "64)"), "another purpose"),
    ],
)
def test_what_would_be_another_run_is_said(project: Write, program: str, why: str) -> None:
    known = read(project({"train.py": program}), "python", "train.py", "--batch_size", "64")
    assert known is not None
    found = lowered(known, "train.batch_size", 32)
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize(
    "words", [("python", "train.py"), ("python", "train.py", "--batch_size", "64"), ("torchrun", "train.py")]
)
def test_half_the_batch_with_twice_the_accumulation(project: Write, words: tuple[str, ...]) -> None:
    folder = project({"train.py": PROGRAM})
    known = read(folder, *words)
    assert known is not None
    found = lowered(known, "train.batch_size", 32)
    assert isinstance(found, Override)
    assert found.words == (*words, "--batch_size", "32", "--grad_accum", "2")
    again = read(folder, *found.words)
    assert again is not None
    assert (again.job.train.batch_size, again.job.train.grad_accum) == (32, 2)
    third = lowered(again, "train.batch_size", 16)
    assert isinstance(third, Override)
    assert (folder / "train.py").read_text() == PROGRAM
    assert not (folder / ".preflight-run.sh").exists()
