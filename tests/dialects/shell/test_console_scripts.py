"""Console scripts: commands that the installation of the project's own package makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects.shell.console_scripts import stub_of
from preflight.space.jobs import job_maker
from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

PROGRAM = """
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

def main(given=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=4)
    args = parser.parse_args(given)
    model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(load(), batch_size=args.size):
        model(**batch).loss.backward()
        optimizer.step()
"""
NAMED = {
    "project": ("pyproject.toml", '[project]\nname = "tool"\n\n[project.scripts]\ntool-train = "tool.cli:main"\n'),
    "poetry": ("pyproject.toml", '[tool.poetry.scripts]\nother = "tool.no:main"\n"tool-train" = "tool.cli:main"\n'),
    "configuration": ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n    tool-train = tool.cli:main\n"),
    "setup": ("setup.py", 'setup(entry_points={"console_scripts": ["tool-train = tool.cli:main"]})\n'),
}
NOT_NAMED = {
    "another section": ("pyproject.toml", '[project.entry-points."x"]\ntool-train = "tool.cli:main"\n'),
    "another name": ("pyproject.toml", '[project.scripts]\ntool-eval = "tool.cli:main"\n'),
    "no such module": ("pyproject.toml", '[project.scripts]\ntool-train = "tool.none:main"\n'),
    "no function": ("pyproject.toml", '[project.scripts]\ntool-train = "tool.cli"\n'),
}


def tree(root: Path, name: str, text: str, source: str = "src") -> Project:
    (root / source / "tool").mkdir(parents=True)
    (root / source / "tool/__init__.py").write_text("")
    (root / source / "tool/cli.py").write_text(PROGRAM)
    (root / name).write_text(text)
    (root / "jobs").mkdir()
    (root / "jobs/run.sbatch").write_text("#!/bin/bash\n#SBATCH --gres=gpu:1\ntool-train --size 24\n")
    return Project(root, Settings())


@pytest.mark.parametrize("source", ["src", "."])
@pytest.mark.parametrize("kind", NAMED)
def test_the_function_is_started_with_the_words(kind: str, source: str, tmp_path: Path) -> None:
    project = tree(tmp_path, *NAMED[kind], source)
    [study], _ = build(["jobs/run.sbatch"], project)
    assert [Path(path).name for path in study.paths] == ["run.sbatch", "cli.py"]
    job = job_maker(study.boxes[0]).at({}).job
    assert (job.train.batch_size, job.model.name) == (24, "gpt2")


@pytest.mark.parametrize("name", ["tool", "tool-cli"])
def test_a_command_with_the_name_of_its_package(name: str, tmp_path: Path) -> None:
    project = tree(tmp_path, "pyproject.toml", f'[project.scripts]\n{name} = "tool.cli:main"\n')
    (tmp_path / "src/tool_cli.py").write_text("x = 1\n")
    (tmp_path / "jobs/run.sbatch").write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{name} --size 24\n")
    [study], _ = build(["jobs/run.sbatch"], project)
    assert job_maker(study.boxes[0]).at({}).job.train.batch_size == 24


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tool-train --size 24", 1),
        ("CUDA_VISIBLE_DEVICES=0 tool-train --size 24", 1),
        ("# tool-train --size 24", 0),
        ("cat tool-train.log", 0),
        ("echo tool-train", 0),
    ],
)
def test_a_script_that_starts_nothing_else(line: str, found: int, tmp_path: Path) -> None:
    project = tree(tmp_path, *NAMED["project"])
    (tmp_path / "run.sh").write_text(line + "\n")
    assert len(build(["run.sh"], project)[0]) == found


@pytest.mark.parametrize("kind", NOT_NAMED)
def test_other_commands_are_no_program(kind: str, tmp_path: Path) -> None:
    assert stub_of("tool-train", "jobs", tree(tmp_path, *NOT_NAMED[kind])) is None


def test_a_command_without_a_package(tmp_path: Path) -> None:
    assert stub_of("tool-train", "jobs", Project(tmp_path, Settings())) is None
