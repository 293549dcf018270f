"""Files of accelerate that leave the number of processes to the command line, and positional files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.api import StudyResult, check

FILE = """
compute_environment: LOCAL_MACHINE
deepspeed_config:
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
mixed_precision: bf16
"""
PROGRAM = """
import sys
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=4)
Trainer(model=model, args=args, train_dataset=data).train()
"""
START = "accelerate launch --config_file configs/zero3.yaml --num_processes 2 train.py"


def checked(root: Path, file: str, start: str) -> tuple[StudyResult, list[str]]:
    (root / "configs").mkdir()
    (root / "configs" / "zero3.yaml").write_text(file)
    (root / "configs" / "train.yaml").write_text("model: gpt2\nmax_seq_length: 512\n")
    (root / "train.py").write_text(PROGRAM)
    (root / "train.sh").write_text(f"{start}\n")
    reports = check([root / "train.sh"]).reports
    [study] = [one for report in reports for one in report.studies]
    return study, [finding.rule for report in reports for finding in report.findings if finding.severity == "error"]


@pytest.mark.parametrize("more", ["", "machine_rank: 0\n", "num_machines: 1\n", "num_processes: 4\n"])
@pytest.mark.parametrize("words", ["", " configs/train.yaml"])
def test_the_command_line_counts_the_processes(more: str, words: str, tmp_path: Path) -> None:
    study, errors = checked(tmp_path, FILE + more, START + words)
    assert study.space.worst is not None
    parallel = study.space.worst.job.parallel
    assert (parallel.strategy, parallel.ranks_per_node) == ("zero3", 2)
    assert study.space.worst.job.train.precision == "bf16-mixed"
    assert errors == []


@pytest.mark.parametrize(("flag", "read"), [("true", {}), ("false", {"zero3_init_flag": False})])
def test_a_model_that_is_not_cut_as_it_is_made_is_read(flag: str, read: dict[str, bool], tmp_path: Path) -> None:
    study, _ = checked(tmp_path, FILE.replace("flag: true", f"flag: {flag}"), START)
    assert study.space.worst is not None
    assert study.space.worst.job.parallel.options == read


def test_a_file_of_something_else_takes_no_overrides_from_a_program_without_hydra(tmp_path: Path) -> None:
    _, errors = checked(tmp_path, "port: 29500\nhosts: [a, b]\n", f"{START} configs/train.yaml")
    assert errors == []
