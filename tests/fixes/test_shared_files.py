"""Fixes of one launch beside others that read the same files, and of defaults that something else overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import preflight
from folders import Write

CONFIG = "batch_size: 512\ngrad_accum: 1\n"
PROGRAM = """\
import hydra
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = AutoModelForSequenceClassification.from_pretrained(cfg.model)
    Trainer(model, TrainingArguments("out", per_device_train_batch_size=cfg.batch_size,
            gradient_accumulation_steps=cfg.grad_accum)).train()

main()
"""
ASKED = ("--gpu", "RTX 4090", "--set", "train.seq_len=112", "--select", "gpu-memory-exceeded")


def script(words: str) -> str:
    return f"#!/bin/bash\n#SBATCH --gres=gpu:1\nsrun python train.py {words}\n"


def tree(**scripts: str) -> dict[str, str]:
    made = {f"{name}.sbatch": script(words) for name, words in scripts.items()}
    return {"train.py": PROGRAM, "conf/config.yaml": f"model: bert-base-uncased\n{CONFIG}", **made}


def fixed(capsys: pytest.CaptureFixture[str], root: Path, *names: str) -> tuple[str, dict[str, str]]:
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    printed = preflight(capsys, "check", *names, *ASKED, "--fix").out
    return printed, {
        path.relative_to(root).as_posix(): path.read_text() for path in before if path.read_text() != before[path]
    }


def test_a_launch_alone_has_its_configuration_edited(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    _, changed = fixed(capsys, project(tree(one="seed=1")), "one.sbatch")
    assert changed == {"conf/config.yaml": "model: bert-base-uncased\nbatch_size: 256\ngrad_accum: 2\n"}


def test_each_of_several_launches_gets_an_override(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tree(one="model=bert-large-uncased", two="+seed=2", three="+seed=3"))
    _, changed = fixed(capsys, root, "one.sbatch", "two.sbatch", "three.sbatch")
    assert changed == {
        "one.sbatch": script("model=bert-large-uncased batch_size=64 grad_accum=8"),
        "two.sbatch": script("+seed=2 batch_size=256 grad_accum=2"),
        "three.sbatch": script("+seed=3 batch_size=256 grad_accum=2"),
    }


def test_launches_that_were_not_checked_count(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    _, changed = fixed(capsys, project(tree(one="+seed=1", two="+seed=2")), "one.sbatch")
    assert changed == {"one.sbatch": script("+seed=1 batch_size=256 grad_accum=2")}


def test_without_an_override_the_fix_is_unsafe_and_names_the_others(
    project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PROGRAM.replace("cfg.batch_size", "512").replace("cfg.grad_accum", "1")
    root = project({**tree(one="model=bert-large-uncased", two="+seed=2"), "train.py": text})
    printed, changed = fixed(capsys, root, "one.sbatch")
    assert changed == {}
    assert "also in two.sbatch" in printed
    assert "--unsafe-fixes" in printed


def grouped(**options: str) -> dict[str, str]:
    """A Hydra tree whose defaults choose `data/a`, with options beside it."""
    program = PROGRAM.replace("cfg.batch_size", "cfg.data.batch_size").replace("cfg.grad_accum", "cfg.data.grad_accum")
    defaults = "defaults:\n  - data: a\n  - logger: csv\n  - _self_\nmodel: bert-base-uncased\n"
    files = {"data/a": CONFIG, "logger/csv": "name: csv\n", **options}
    named = {f"conf/{name}.yaml": text for name, text in files.items()}
    return {"train.py": program, "conf/config.yaml": defaults, **named}


def test_options_of_the_same_job_keep_its_fix(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(grouped(**{"logger/wandb": "name: wandb\n"}))
    _, changed = fixed(capsys, root, ".")
    assert changed == {"conf/data/a.yaml": "batch_size: 256\ngrad_accum: 2\n"}


def test_an_option_that_states_the_same_values_is_fixed_too(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(grouped(**{"data/b": f"{CONFIG}name: b\n"}))
    _, changed = fixed(capsys, root, ".")
    assert changed == {
        "conf/data/a.yaml": "batch_size: 256\ngrad_accum: 2\n",
        "conf/data/b.yaml": "batch_size: 256\ngrad_accum: 2\nname: b\n",
    }


CLI = """\
import torch
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

def main(batch_size: int = 512):
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
    Trainer(model, TrainingArguments("out", per_device_train_batch_size=batch_size)).train()

{last}
"""


def test_a_default_that_a_file_may_override_is_not_edited(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = project({"main.py": CLI.format(last="main()")})
    assert "batch_size: int = 256" in fixed(capsys, root, "main.py")[1]["main.py"]
    root = project({"main.py": CLI.format(last="main()\nLightningCLI(torch.nn.Module)")})
    assert fixed(capsys, root, "main.py")[1] == {}


ARGPARSE = """\
import argparse
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--batch_size", type=int, default=512)
args = parser.parse_args()
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=args.batch_size)).train()
"""


@pytest.mark.parametrize(("words", "edited"), [("", True), ("--config x.yaml", False)])
def test_a_default_beside_a_file_that_was_not_read(
    words: str, edited: bool, project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project({"train.py": ARGPARSE, "job.sbatch": script(words)})
    _, changed = fixed(capsys, root, "job.sbatch")
    assert ("train.py" in changed) is edited
