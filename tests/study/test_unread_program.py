"""A launch whose program is not among the files: what the program decides is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, Value, evaluate

DECIDED = ("train.optimizer", "train.precision", "train.grad_accum", "parallel.strategy", "data.workers")
SCRIPT = "#!/bin/bash\n#SBATCH --gpus-per-node=1\n"


def fields(root: Path, settings: Settings) -> dict[str, Value]:
    (study,) = build(("run.sh",), Project(root, settings))[0]
    return {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}


@pytest.mark.parametrize("line", ["python -m own.train", "torchrun -m own.train --bf16"])
def test_nothing_is_known_of_a_program_that_is_not_there(line: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{SCRIPT}{line}\n")
    found = fields(tmp_path, Settings())
    assert all(isinstance(found[name], Unknown) for name in DECIDED)


def test_what_the_user_states_is_of_a_program_that_the_user_knows(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{SCRIPT}python -m own.train\n")
    found = fields(tmp_path, Settings(set={"train.batch_size": 4}))
    assert (found["train.batch_size"], found["train.optimizer"]) == (4, "adamw")
