"""Which jobs of an array and which parts of a heterogeneous job stop a submission."""

from __future__ import annotations

import pytest
from folders import Write

from preflight.slurm.sbatch.arguments import parse
from preflight.slurm.sbatch.asking import asked, read
from preflight.slurm.sbatch.question import Question

PROGRAM = """\
import argparse

from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int)
parser.add_argument("--seed", type=int)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
training = TrainingArguments(per_device_train_batch_size=args.bs, seed=args.seed)
Trainer(model=model, args=training, train_dataset=data).train()
"""
SETTINGS = "[set]\ntrain.seq_len = 1024\n"
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:rtx_4090:1 --mem=64G\n"
"""A GPU of 24 GB: gpt2 with 1,024 tokens takes a batch of 8 and not one of 64."""

ARRAY = HEAD + "#SBATCH --array=0-3\nBS=({})\nsrun python train.py --bs ${{BS[$SLURM_ARRAY_TASK_ID]}}\n"
PARTS = "#!/bin/bash\n#SBATCH {}\n#SBATCH hetjob\n#SBATCH {}\n{}\n"
SMALL, LARGE, NONE = "--gres=gpu:rtx_4090:1 --mem=64G", "--gres=gpu:h200:1 --mem=64G", "-n4 --mem=4G"
STEP = "srun {} python train.py --bs 32"


@pytest.mark.parametrize(
    ("script", "stops"),
    [
        (ARRAY.format("64 128 256 512"), True),
        (ARRAY.format("1 2 64 512"), False),  # tasks 0 and 1 run
        (ARRAY.format("64 64 64"), False),  # task 3 has no batch size
        (ARRAY.format("1 2 4 8"), False),
        (HEAD + "#SBATCH --array=0-99\nsrun python train.py --bs 64 --seed $SLURM_ARRAY_TASK_ID\n", True),
        (HEAD + "#SBATCH --array=0-99\nsrun python train.py --bs 4 --seed $SLURM_ARRAY_TASK_ID\n", False),
        (HEAD + "#SBATCH --array=1-90\nsrun python train.py --bs $((64 + SLURM_ARRAY_TASK_ID))\n", False),  # too many
        (PARTS.format(SMALL, NONE, STEP.format("")), True),
        (PARTS.format(SMALL, LARGE, STEP.format("")), True),  # without --het-group: on the first part
        (PARTS.format(SMALL, LARGE, STEP.format("--het-group=1")), False),
        (PARTS.format(LARGE, SMALL, STEP.format("--het-group=1")), True),
        (PARTS.format(LARGE, SMALL, STEP.format("")), False),
        (PARTS.format(SMALL, SMALL, STEP.format("--het-group=0,1")), False),  # nobody says which process is where
        (PARTS.format(NONE, SMALL, f"{STEP.format('--het-group=1')} : --het-group=0 hostname"), True),
    ],
)
def test_what_stops(script: str, stops: bool, project: Write) -> None:
    project({"preflight.toml": SETTINGS, "train.py": PROGRAM})
    question = Question(parse(["job.sh"]), "on", script.encode(), "job.sh", "scontrol")
    found = asked(question, script)
    assert found is not None
    answer = read(question, found)
    assert not answer["unchecked"]
    assert answer["stop"] is stops, answer["text"]


UNNAMED = "#!/bin/bash\n#SBATCH --gres=gpu:1 --mem=64G\n"
RUN = "python train.py --bs 4\n"
OPEN_LENGTH = "python train.py --bs 64\n"
"""A batch that fits at some lengths, and not at the 1,024 positions of the model."""


@pytest.mark.parametrize(
    ("script", "settings", "words"),
    [
        (HEAD + RUN, SETTINGS, ""),
        (HEAD + OPEN_LENGTH, "", "train.seq_len is not known"),
        (UNNAMED + OPEN_LENGTH, "", "train.seq_len is not known"),
        (HEAD + RUN, "", ""),
        (HEAD + "python train.py --bs $UNSET_HERE\n", SETTINGS, "train.batch_size is not known"),
        (HEAD + "make all\n", SETTINGS, "the model is not known"),
        ("#!/bin/bash\n#SBATCH --mem=1G\nmake all\n", SETTINGS, ""),
        (HEAD + RUN, SETTINGS + 'machine.accelerator = "cpu"\n', ""),
    ],
)
def test_what_could_not_be_judged_is_said(script: str, settings: str, words: str, project: Write) -> None:
    project({"preflight.toml": settings, "train.py": PROGRAM})
    for options in (["job.sh"], *([["--quiet", "job.sh"]] if script == UNNAMED + OPEN_LENGTH else [])):
        question = Question(parse(options), "on", script.encode(), "job.sh", "scontrol")
        found = asked(question, script)
        assert found is not None
        answer = read(question, found)
        assert not answer["stop"]
        said = str(answer["unjudged"])
        assert (words in said and bool(words) == bool(said)) if options == ["job.sh"] else said == ""


def test_a_gpu_that_nobody_names_is_said_once(project: Write) -> None:
    project({"preflight.toml": SETTINGS, "train.py": PROGRAM})
    script = UNNAMED + RUN
    question = Question(parse(["job.sh"]), "on", script.encode(), "job.sh", "scontrol")
    found = asked(question, script)
    assert found is not None
    answer = read(question, found)
    assert str(answer["text"]).count("no GPU is stated, so") == 1
    assert answer["unjudged"] == ""


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ("--bs 8 --attn eager", ["job.sh"], "train.attention = sdpa"),
        pytest.param("--bs 8 --attn eager", ["--quiet", "job.sh"], "", marks=pytest.mark.slow),
        ("--bs 8", ["job.sh"], ""),
    ],
)
def test_what_has_to_hold_is_said(words: str, options: list[str], said: str, project: Write) -> None:
    project({"preflight.toml": SETTINGS, "train.py": PROGRAM})
    script = f"{HEAD}python train.py {words}\n"
    question = Question(parse(options), "on", script.encode(), "job.sh", "scontrol")
    found = asked(question, script)
    assert found is not None
    answer = read(question, found)
    assert not answer["stop"]
    assert answer["unjudged"] == ""
    assumed = str(answer["assumed"])
    assert (said in assumed) if said else assumed == ""
