"""`fire.Fire(main)` of `def main(**options)`: the options are the words of the command line, by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Value, evaluate

CONFIGS = """\
from dataclasses import dataclass

@dataclass
class train_config:
    model_name: str = "gpt2"
    batch_size: int = 4
    bf16: bool = False
    dataset = "alpaca"

@dataclass
class other_config:
    length: int = 128

def update(config, **kwargs):
    if isinstance(config, (tuple, list)):
        for one in config:
            update(one, **kwargs)
    else:
        for name, value in kwargs.items():
            if hasattr(config, name):
                setattr(config, name, value)
            elif "." in name:
                whose, own = name.split(".")
                if type(config).__name__ == whose and hasattr(config, own):
                    setattr(config, own, value)
"""
PROGRAM = """\
import fire
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from configs import other_config, train_config, update

def main(**kwargs):
    update((train_config, other_config), **kwargs)
    model = AutoModelForCausalLM.from_pretrained(train_config.model_name)
    if train_config.bf16:
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(rows, batch_size=train_config.batch_size):
        model(**batch).loss.backward()
        optimizer.step()

if __name__ == "__main__":
    fire.Fire(main)
"""


def fields(tmp_path: Path, line: str) -> dict[str, Value]:
    for name, text in {"configs.py": CONFIGS, "train.py": PROGRAM, "run.sh": f"{line}\n"}.items():
        (tmp_path / name).write_text(text)
    (study,) = build(("run.sh",), Project(tmp_path, Settings()))[0]
    return {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ("gpt2", 4, "fp32")),
        ("--batch_size 64", ("gpt2", 64, "fp32")),
        ("--batch-size=64 --unknown 3 --model_name facebook/opt-1.3b", ("facebook/opt-1.3b", 64, "fp32")),
        ("--bf16 --batch_size 8", ("gpt2", 8, "bf16")),
        ("--batch_size 8 --bf16 False", ("gpt2", 8, "fp32")),
        ("--batch_size 8 --bf16", ("gpt2", 8, "bf16")),
    ],
)
def test_options_of_the_command_line(given: str, expected: tuple[Value, ...], tmp_path: Path) -> None:
    found = fields(tmp_path, f"python train.py {given}")
    assert tuple(found[name] for name in ("model.name", "train.batch_size", "train.precision")) == expected
