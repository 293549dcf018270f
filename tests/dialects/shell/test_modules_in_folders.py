"""`python -m pkg.train` in a folder of the project that is not its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.space.jobs import job_maker
from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study

PROGRAM = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from src.sizes import SIZE

model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=SIZE):
    model(**batch).loss.backward()
    optimizer.step()
"""


def studies(root: Path, script: str, text: str, **sizes: int) -> tuple[Study, ...]:
    """Of a script, in a project with the program in each of these folders."""
    for folder, size in sizes.items():
        home = root / folder / "src"
        (home / "train").mkdir(parents=True)
        (home / "train" / "run.py").write_text(PROGRAM)
        (home / "sizes.py").write_text(f"SIZE = {size}\n")
    path = root / script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{text}\n")
    found, _ = build([script], Project(root, Settings()))
    return found


def batch(study: Study) -> object:
    return job_maker(study.boxes[0]).at({}).job.train.batch_size


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("scripts/job.sh", "cd code\npython -m src.train.run"),
        ("scripts/job.sh", "cd code && torchrun --nproc_per_node 2 -m src.train.run"),
        ("code/scripts/job.sh", "python -m src.train.run"),
        ("code/scripts/job.sh", 'cd "$(dirname "$0")/.."\npython3 -u -m src.train.run'),
    ],
)
def test_the_module_of_the_folder_it_is_started_in(script: str, text: str, tmp_path: Path) -> None:
    (study,) = studies(tmp_path, script, text, code=24)
    assert "code/src/train/run.py" in study.paths
    assert batch(study) == 24


def test_of_two_folders_that_of_the_command_counts(tmp_path: Path) -> None:
    (study,) = studies(tmp_path, "scripts/job.sh", "cd other\npython -m src.train.run", code=24, other=8)
    assert batch(study) == 8


def test_a_module_that_is_in_no_folder_above_is_not_searched(tmp_path: Path) -> None:
    (study,) = studies(tmp_path, "scripts/job.sh", "python -m src.train.run", code=24)
    assert study.paths == ("scripts/job.sh",)


def test_an_environment_that_a_job_makes_is_not_what_it_trains(tmp_path: Path) -> None:
    text = "python3 -m venv env\npython3 -m pip install torch\npython3 missing.py"
    (study,) = studies(tmp_path, "job.sh", text)
    assert "venv" not in str(study.unread)
    assert not any("venv" in link.target for reading in study.readings for link in reading.links)
