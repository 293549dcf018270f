"""Where the GPU memory of a job is unknown, `check` names the command that runs the program dry."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.reports.not_known import reason_of

UNKNOWN = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
model = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=args.bs):
    model(x).sum().backward()
    optimizer.step()
"""
SENTENCE = "a run of the program without a GPU tells what it needs:"
LAUNCH = "#!/bin/bash\n#SBATCH --gres=gpu:2\n"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("train.py", None, "python train.py"),
        ("job.sh", f"{LAUNCH}python train.py --bs 8\n", "python train.py --bs 8"),
        (
            "job.sh",
            f"{LAUNCH}torchrun --nproc_per_node 2 train.py --bs=8\n",
            "torchrun --nproc_per_node 2 train.py --bs=8",
        ),
        ("job.sh", f"{LAUNCH}python -m pkg.train --out $SLURM_TMPDIR\n", "python -m pkg.train --out ..."),
        (
            "sweep.yaml",
            "program: train.py\nmethod: grid\nparameters:\n  bs: {values: [4, 8]}\n",
            "python train.py --bs=...",
        ),
        ("job.sh", f"{LAUNCH}python train.py --bs 8 --out {'x' * 200}\n", "job.sh"),
    ],
)
def test_the_command(project: Write, check: Command, name: str, text: str | None, command: str) -> None:
    project({"train.py": UNKNOWN, "pkg/train.py": UNKNOWN, "pkg/__init__.py": "", **({name: text} if text else {})})
    found = check(name)
    assert f"\nnote: {SENTENCE}\n  preflight dry-run --save -- {command}\n" in found.out


def test_a_note_of_one_line_where_each_finding_has_one(project: Write, check: Command) -> None:
    project({"train.py": UNKNOWN})
    assert f"note: {SENTENCE} preflight dry-run --save -- python train.py\n" in check("train.py", "-v").out


def test_no_command_where_all_is_known(project: Write, check: Command) -> None:
    from command_line import FITTING, PROGRAM

    project({"train.py": PROGRAM, "sweep.yaml": FITTING})
    assert "dry-run" not in check("sweep.yaml").out


def test_the_command_starts_in_the_folder_of_its_project(project: Write, check: Command) -> None:
    project({"app/preflight.toml": "", "app/train.py": UNKNOWN})
    found = check("app/train.py").out
    assert "tells what it needs:\n  cd app && preflight dry-run --save -- python train.py\n" in found


CHOSEN = """\
import argparse
from transformers import AutoModel, AutoModelForMaskedLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="bert-base-uncased")
args = parser.parse_args()
if "roberta" in args.model:
    model = AutoModel.from_pretrained(args.model)
else:
    model = AutoModelForMaskedLM.from_pretrained(args.model)
Trainer(model, TrainingArguments("runs", per_device_train_batch_size=8), train_dataset=rows).train()
"""


def test_the_words_that_may_name_the_model_are_the_reason(project: Write, tmp_path: Path) -> None:
    """Also where conditions choose between two calls that load it."""
    project({"train.py": CHOSEN, "job.sh": f'{LAUNCH}python train.py "$@"\n'})
    [batch] = batches(["job.sh"], tmp_path, from_hook=False)
    [result] = analyse(*setup(batch, CheckOptions(gpu="T4"), tmp_path, rules=False)).studies
    assert reason_of(result).startswith("model.name is not known: words of the command line may set it")
