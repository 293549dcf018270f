"""A submission as the engine sees it: where it starts, what its words and its environment say."""

from __future__ import annotations

import pytest
from folders import Write

from preflight.slurm.sbatch.arguments import parse
from preflight.slurm.sbatch.asking import asked
from preflight.slurm.sbatch.question import Question
from preflight.study.build import build
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Unknown, evaluate

PROGRAM = """\
import argparse
import os

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
training = TrainingArguments(per_device_train_batch_size=args.bs)
Trainer(model=model, args=training, train_dataset=data).train()
"""
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"


def study(script: str, *words: str) -> Study:
    """The study that a submission makes."""
    line = parse(words)
    question = Question(line, "on", script.encode(), line.script, "scontrol")
    found = asked(question, script)
    assert found is not None
    (only,), _ = build((found.name,), found.project)
    return only


def batch(script: str, *words: str) -> object:
    (box,) = study(script, *words).boxes
    return evaluate(box.fields["train.batch_size"].expr)


@pytest.mark.parametrize(
    ("where", "words", "program"),
    [
        (".", ["scripts/job.sh"], "train.py"),
        ("scripts", ["job.sh"], "scripts/train.py"),
        ("src", ["../scripts/job.sh"], "src/train.py"),
        (".", ["-D", "src", "scripts/job.sh"], "src/train.py"),
        ("scripts", ["--chdir=../src", "job.sh"], "src/train.py"),
    ],
)
def test_programs_are_looked_for_where_the_job_starts(
    where: str, words: list[str], program: str, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project({"preflight.toml": "", **{f"{name}train.py": PROGRAM for name in ("", "scripts/", "src/")}})
    monkeypatch.chdir(root / where)
    assert study(HEAD + "python train.py\n", *words).paths[:2] == ("scripts/job.sh", program)


def test_words_and_environment_reach_the_script(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"preflight.toml": "", "train.py": PROGRAM})
    script = HEAD + "python train.py --bs ${1:-$BATCH}\n"
    monkeypatch.setenv("BATCH", "32")
    assert batch(script, "job.sh", "16") == 16
    assert batch(script, "job.sh") == 32
    assert batch(script, "--export=ALL,BATCH=8", "job.sh") == 8
    assert isinstance(batch(script, "--export=NONE", "job.sh"), Unknown)
    assert batch(script.replace("gpu:1\n", "gpu:1 --export=BATCH\n"), "job.sh") == 32
    assert isinstance(batch(script.replace("gpu:1\n", "gpu:1 --export=PATH\n"), "job.sh"), Unknown)


def test_the_words_of_another_submission_are_not_this_ones(project: Write) -> None:
    """A script beside it submits the same job with other words."""
    script = HEAD + 'python train.py "$@"\n'
    project({"preflight.toml": "", "train.py": PROGRAM, "job.sh": script, "all.sh": "sbatch job.sh --bs 64\n"})
    assert batch(script, "job.sh", "--bs", "16") == 16
    assert batch(script, "job.sh") == 4


def test_a_script_that_the_settings_leave_out_is_not_checked(project: Write) -> None:
    project({"preflight.toml": 'exclude = ["legacy/**"]\n'})
    line = parse(["legacy/job.sh"])
    assert asked(Question(line, "on", b"", line.script, "scontrol"), "#!/bin/sh\n") is None
