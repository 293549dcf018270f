"""What a check may not import: packages that a file of its kind does not need, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS
from thorough import sample

TRAIN = """\
import argparse
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model_name", default="bert-base-uncased")
parser.add_argument("--batch_size", type=int, default=16)
args = parser.parse_args()
model = AutoModelForSequenceClassification.from_pretrained(args.model_name)
Trainer(model, TrainingArguments("out", per_device_train_batch_size=args.batch_size, bf16=True)).train()
"""
SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size: {values: [8, 16]}
  max_length: {value: 128}
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --mem=32G
#SBATCH --gres=gpu:1
srun python train.py --batch_size 8
"""
FILES = {"train.py": TRAIN, "sweep.yaml": SWEEP, "job.sbatch": SCRIPT, "preflight.toml": 'gpu = "RTX 4090"\n'}

HEAVY = ("torch", "transformers", "numpy", "scipy", "hydra", "omegaconf", "antlr4")
UNNEEDED = {
    "sweep.yaml": (*HEAVY, "ruamel", "rich", "tree_sitter", "tree_sitter_bash"),
    "job.sbatch": (*HEAVY, "ruamel", "rich"),
    "train.py": (*HEAVY, "ruamel", "rich"),  # the script beside it may launch it
}

CODE = """\
import sys
{first}
from preflight.cli import run
status = run(["check", {name!r}])
print(status, *sorted(name for name in {names!r} if name in sys.modules), file=sys.stderr)
"""


def _imported(folder: Path, name: str, names: tuple[str, ...], first: str = "") -> tuple[int, list[str], str]:
    """(exit status, those of `names` that were imported, what was printed) of a check in a process of its own."""
    for path, text in FILES.items():
        (folder / path).write_text(text)
    code = CODE.format(first=first, name=name, names=names)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    status, *found = done.stderr.splitlines()[-1].split()
    return int(status), found, done.stdout


@pytest.mark.parametrize("name", sample(sorted(UNNEEDED), 1))
def test_a_check_imports_what_it_needs(name: str, tmp_path: Path) -> None:
    status, found, printed = _imported(tmp_path, name, UNNEEDED[name])
    assert status == 0
    assert "1 study" in printed
    assert "fits" in printed or "GiB" in printed
    assert found == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    _, found, _ = _imported(tmp_path, "sweep.yaml", ("numpy", "yaml", "torch"), first="import yaml, numpy")
    assert found == ["numpy", "yaml"]


def test_help_imports_neither_the_engine_nor_pydantic(tmp_path: Path) -> None:
    heavy = {"pydantic", "yaml", "preflight.engine.check"}
    code = f"import sys; from preflight.cli import run; run(['--help']); print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=HANGS)
    assert done.stdout.splitlines()[-1] == "set()"
