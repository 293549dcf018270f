"""yacs' trees of settings: files, lists and other trees that are laid over the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, read_program, values

PROGRAM = """\
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from yacs.config import CfgNode as CN

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
args = parser.parse_args()
defaults = CN()
defaults.TRAIN = CN({"BATCH": 8, "LR": 0.1})
defaults.TRAIN.STEPS = 5

def settings():
    config = defaults.clone()
    config.defrost()
    {line}
    config.freeze()
    return config

config = settings()
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=config.TRAIN.BATCH):
    model(**batch).loss.backward()
    optimizer.step()
"""


def batch(line: str, root: Path, **given: int) -> object:
    reading = read_program(PROGRAM.replace("{line}", line), root, base__yaml="TRAIN:\n  BATCH: 3\n")
    return values(reading, given)["train.batch_size"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("config.merge_from_file('base.yaml')", 3),
        ("config.merge_from_list(['TRAIN.LR', 1.0, 'TRAIN.BATCH', '5'])", 5),
        ("config.merge_from_other_cfg(CN({'TRAIN': {'BATCH': 6}}))", 6),
        ("config.TRAIN.BATCH = 7", 7),
        ("config.set_new_allowed(True)", 8),
        ("other = defaults.clone(); other.TRAIN.BATCH = 9", 8),
    ],
)
def test_what_is_laid_over_counts(line: str, expected: int, tmp_path: Path) -> None:
    assert batch(line, tmp_path) == expected


@pytest.mark.parametrize(
    "line",
    [
        "config.merge_from_file('elsewhere.yaml')",
        "config.merge_from_file(chosen())",
        "config.merge_from_list(chosen())",
        "config.merge_from_list([chosen(), 4])",
        "config.merge_from_list(['TRAIN.BATCH'])",
        "config.merge_from_other_cfg(chosen())",
    ],
)
def test_what_is_not_known_may_replace_any(line: str, tmp_path: Path) -> None:
    assert is_unknown(batch(line, tmp_path))  # type: ignore[arg-type]


def test_a_flag_may_set_it(tmp_path: Path) -> None:
    line = "config.TRAIN.BATCH = args.batch_size or config.TRAIN.BATCH"
    assert batch(line, tmp_path, batch_size=2) == 2
