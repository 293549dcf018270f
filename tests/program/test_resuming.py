"""Checkpoints that training begins from: where they pass, and whether they stay."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from calls_as_text import HEAD
from programs_as_text import read_program, values

PROGRAM = """
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
{load}
for batch in DataLoader(data, args.batch_size):
    model(batch).sum().backward()
    optimizer.step()
"""
TAKEN = 'model.load_state_dict(ckpt["model"])\noptimizer.load_state_dict(ckpt["optimizer"])\n'


def resumes(load: str, tmp_path: Path, **given: object) -> object:
    text = HEAD + PROGRAM.format(load=dedent(load))
    return dict(values(read_program(text, tmp_path), given)).get("train.resumes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "how"),
    [
        (f'ckpt = torch.load("last.pt")\n{TAKEN}', "kept"),
        (f'ckpt = torch.load("last.pt", map_location="cuda:0")\n{TAKEN}', "kept"),
        (f'ckpt = torch.load("last.pt")\n{TAKEN}del ckpt', "device"),
        (f'ckpt = torch.load("last.pt")\n{TAKEN}ckpt = None', "device"),
        (f'ckpt = torch.load("last.pt", map_location="cpu")\n{TAKEN}', "host"),
        ('optimizer.load_state_dict(torch.load("optimizer.pt"))', "device"),
        (f'ckpt = torch.load("last.pt", map_location=somewhere)\n{TAKEN}', None),
        ('model.load_state_dict(torch.load("weights.pt"))', None),  # weights alone, before there are states
    ],
)
def test_where_a_checkpoint_passes(load: str, how: str | None, tmp_path: Path) -> None:
    assert resumes(load, tmp_path) == how


def test_a_function_that_returns_keeps_nothing(tmp_path: Path) -> None:
    load = "def load():\n" + indent(f"ckpt = torch.load('last.pt')\n{TAKEN}", "    ") + "load()\n"
    assert resumes(load, tmp_path) == "device"


def test_a_flag_decides(tmp_path: Path) -> None:
    load = (
        f"if args.resume:\n    ckpt = torch.load('last.pt')\n    {TAKEN.strip().replace(chr(10), chr(10) + '    ')}\n"
    )
    assert resumes(load, tmp_path, resume=True) == "kept"
    assert resumes(load, tmp_path, resume=False) is None


def test_the_trainer_s_argument(tmp_path: Path) -> None:
    program = """
        import argparse
        from transformers import Trainer, TrainingArguments
        parser = argparse.ArgumentParser()
        parser.add_argument("--resume", default=None)
        args = parser.parse_args()
        trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=data)
        trainer.train(resume_from_checkpoint=args.resume)
    """
    found = read_program(dedent(program), tmp_path)
    assert dict(values(found, {"resume": "out/checkpoint-10"}))["train.resumes"] == "trainer"
    assert dict(values(found, {}))["train.resumes"] == "no"
