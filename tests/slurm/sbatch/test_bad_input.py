"""What a user gets for mistakes: a line that says where, the exit status of the guide, and never a lost job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from folders import Write
from processes import HANGS

PROGRAM = """\
import argparse

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments(per_device_train_batch_size=args.bs), train_dataset=data).train()
"""
SETTINGS = "[set]\ntrain.seq_len = 1024\n"
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:rtx_4090:1 --mem=8G\n"
MACHINE = """\
[node.a]
gpu = "RTX 4090"
gpu_type = "rtx_4090"
gpus = 1

[partition.p]
nodes = ["a"]
default = true
"""


@pytest.fixture
def folder(project: Write) -> Path:
    return project(
        {
            "preflight.toml": SETTINGS, "train.py": PROGRAM, "small.sh": f"{HEAD}python train.py --bs 1\n",
            "large.sh": f"{HEAD}python train.py --bs 64\n", "machine.toml": MACHINE,
            "other.toml": "format = 2\n" + MACHINE, "key.toml": MACHINE.replace("gpus = 1", "gpuss = 1"),
        }
    )  # fmt: skip


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A preflight of its own, with a controller that nobody can reach."""
    environment = {**os.environ, "SLURM_CONF": str(folder / "no-slurm.conf")}
    return subprocess.run(
        [sys.executable, "-m", "preflight", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=HANGS, check=False,
    )  # fmt: skip


SUBMIT = ("sbatch", "--preflight-only", "--preflight-timeout=200")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--preflight-machine=nope.toml", "large.sh"), "was not checked: --machine: no machine 'nope.toml'"),
        (("--preflight-machine=other.toml", "large.sh"), "other.toml:1: this version reads format 1, and"),
        (("--preflight-machine=key.toml", "large.sh"), "key.toml:4: node.a.gpuss: no such key"),
    ],
)
def test_a_machine_file_that_cannot_be_used_loses_no_job(words: tuple[str, ...], said: str, folder: Path) -> None:
    found = ran(folder, *SUBMIT, *words)
    assert found.returncode == 0
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["nope.toml", "other.toml", "key.toml"])
def test_check_says_the_same_and_ends_with_2(machine: str, folder: Path) -> None:
    found = ran(folder, "check", "--machine", machine, "large.sh")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("preflight: error: --machine: ")
    assert found.stderr.count("\n") == 1


def test_a_partition_that_there_is_none_of_is_sbatchs_to_refuse(folder: Path) -> None:
    found = ran(folder, *SUBMIT, "--preflight-verbose", "--preflight-machine=machine.toml", "-p", "nope", "large.sh")
    assert found.returncode == 0
    assert "there is no partition nope (machine has p)" in " ".join(found.stdout.split())
    assert "sbatch command line:1:4" in found.stdout
    assert "sbatch answers: Invalid partition name specified" in found.stdout


def test_directives_that_cannot_be_read_have_their_place(folder: Path) -> None:
    (folder / "bad.sh").write_text(
        "#!/bin/bash\n#SBATCH --gres=gpu:rtx_4090:1 --mem=$MEM --nodes=abc\n#SBATCH --time=1h -p\n"
        "python train.py --bs $BATCH\n"
    )
    found = ran(folder, "check", "bad.sh")
    assert found.returncode == 1
    for said, place in (
        ("--mem=$MEM (error: Invalid --mem specification): directives are not expanded", "bad.sh:2:37"),
        ('--nodes=abc (error: "abc" is not a valid node count)', "bad.sh:2:50"),
        ("--time=1h (error: Invalid --time specification)", "bad.sh:3:16"),
        ("--partition needs a value", "bad.sh:3:19"),
    ):
        assert said.split()[0] in found.stdout
        assert place in found.stdout
    assert "the batch size is unknown: it fits RTX 4090 up to" in " ".join(found.stdout.split())
    assert ran(folder, *SUBMIT, "bad.sh").returncode == 0  # what the variable is, the job knows


@pytest.mark.slow
def test_a_controller_that_nobody_can_reach_confines_nothing(folder: Path) -> None:
    (folder / "tight.sh").write_text((folder / "small.sh").read_text().replace("--mem=8G", "--mem=600M"))
    found = ran(folder, *SUBMIT, "tight.sh")
    assert found.returncode == 0
    assert "error[slurm-memory-too-low]" in found.stdout
    assert ran(folder, *SUBMIT, "large.sh").returncode == 1  # the GPU is too small wherever it is
