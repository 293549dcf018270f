"""Library calls behind a usual head, and in a usual loop."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from programs_as_text import facts, read_program, values

HEAD = """
import argparse
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--accum", type=int, default=4)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--optimizer", default="adamw")
args = parser.parse_args()
"""


def told(body: str, tmp_path: Path, **given: object) -> dict[str, object]:
    return dict(values(read_program(HEAD + dedent(body), tmp_path), given))  # type: ignore[arg-type]


LOOP = """
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for step, batch in enumerate(DataLoader(data, args.batch_size)):
"""


def loop(body: str, tmp_path: Path) -> tuple[dict[str, object], dict[str, object]]:
    text = HEAD + LOOP + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    reading = read_program(text, tmp_path)
    return dict(values(reading)), dict(facts(reading))
