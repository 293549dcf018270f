"""Loops of a script over its own options, of which nothing is known, and commands of a site that start a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.job import Job
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Standing

TRAIN = """
import argparse
import torch
from torch.utils.data import DataLoader
from data import dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
args = parser.parse_args()
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=args.batch):
    model(batch).mean().backward()
    optimizer.step()
"""
LOOP = """\
while [[ "$1" != "" ]]; do
  case $1 in
    -b | --batch ) shift; BATCH=$1 ;;
    * ) echo "unknown: $1"; exit 1 ;;
  esac
  shift
done
"""
COUNTED = LOOP.replace('[[ "$1" != "" ]]', "(( $# ))")
ENDLESS = LOOP.replace('[[ "$1" != "" ]]', "true").replace("exit 1", "break")
OPTIONS = 'while getopts "b:" name; do\n  case $name in\n    b) BATCH=$OPTARG ;;\n  esac\ndone\n'


def job_and_standing(folder: Path, script: str) -> tuple[Job, Standing | None]:
    (folder / "train.py").write_text(TRAIN)
    (folder / "run.sh").write_text(f"#!/bin/bash\n{script}")
    batch = Batch(folder, Settings(), None, ("run.sh",), ())
    [found] = engine.check(*engine.setup(batch, engine.CheckOptions(), folder)).studies
    return found.space.worst.job, found.standings.get("train.batch_size")


@pytest.mark.parametrize("loop", [LOOP, COUNTED, ENDLESS, OPTIONS])
def test_without_options_a_script_has_its_own_values(loop: str, tmp_path: Path) -> None:
    job, standing = job_and_standing(tmp_path, f"BATCH=12\n{loop}python train.py --batch $BATCH\n")
    assert (job.train.batch_size, standing) == (12, Standing.assumed)


@pytest.mark.parametrize("loop", [LOOP, OPTIONS])
def test_an_option_without_a_value_before_the_loop_is_not_known(loop: str, tmp_path: Path) -> None:
    job, standing = job_and_standing(tmp_path, f"{loop}python train.py --batch $BATCH\n")
    assert (job.train.batch_size, standing) == (None, Standing.unknown)


def test_options_that_a_caller_gives_are_read(project: Write) -> None:
    script = f"#!/bin/bash\nBATCH=12\n{LOOP}python train.py --batch $BATCH\n"
    outer = "#!/bin/bash\n#SBATCH --gres=gpu:1\nbash run.sh -b 3\n"
    folder = project({"train.py": TRAIN, "run.sh": script, "job.sh": outer})
    batch = Batch(folder, Settings(), None, ("job.sh",), ())
    [found] = engine.check(*engine.setup(batch, engine.CheckOptions(), folder)).studies
    assert (found.space.worst.job.train.batch_size, found.standings["train.batch_size"]) == (3, Standing.read)


def test_other_loops_may_run(tmp_path: Path) -> None:
    loop = "while [ -f running ]; do BATCH=$(cat next); done\n"
    job, _ = job_and_standing(tmp_path, f"BATCH=12\n{loop}python train.py --batch $BATCH\n")
    assert job.train.batch_size is None


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("apptainer_wrapper exec torchrun --nproc_per_node 2", 2),
        ("site_container exec --nv -B /data:/data image.sif accelerate launch --num_processes 4", 4),
        ("srun apptainer_wrapper exec python", 1),
        ('srun site_container exec bash -c "torchrun --nproc_per_node 2', 2),
    ],
)
def test_the_exec_of_a_site_starts_the_program_behind_it(command: str, gpus: int, tmp_path: Path) -> None:
    end = '"' if "bash -c" in command else ""
    job, standing = job_and_standing(tmp_path, f"{command} train.py --batch 5{end}\n")
    assert (job.train.batch_size, standing, job.parallel.gpus_per_node) == (5, Standing.read, gpus)
