"""How far a folder is searched for what starts a file, and what a study says where that is not to the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.ask import check
from preflight.study import launchers
from preflight.vocabulary.budgets import LAUNCHER_FILES, Budget
from preflight.vocabulary.reading import NOT_SEARCHED

PROGRAM = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
given = TrainingArguments("out", per_device_train_batch_size=args.batch_size)
Trainer(model=model, args=given, train_dataset=data).train()
"""
SCRIPTS = 4


@pytest.fixture
def scripts(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with more scripts than are searched."""
    monkeypatch.setattr(launchers, "LAUNCHER_FILES", Budget(SCRIPTS - 2, LAUNCHER_FILES.of))
    texts = {f"jobs/job{n}.sh": f"python train.py --batch_size {n + 1}\n" for n in range(SCRIPTS)}
    return project({"train.py": PROGRAM, **texts})


def unsearched(path: str) -> list[bool]:
    return [NOT_SEARCHED in one.study.facts for report in check(path).reports for one in report.studies]


def test_a_script_among_many_may_be_started_by_another(scripts: Path) -> None:
    assert unsearched("jobs/job0.sh") == [True]


def test_scripts_that_are_all_checked_are_all_searched(scripts: Path) -> None:
    assert unsearched(".") == [False] * SCRIPTS
