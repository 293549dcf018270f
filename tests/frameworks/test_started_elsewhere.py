"""Scripts that a job script starts from another folder: LLaMA-Factory's own script, and a project by its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.api import check
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.values import evaluate

FACTORY = (
    "CUDA_VISIBLE_DEVICES={gpus} python ../../src/train_bash.py --stage sft --do_train "
    "--model_name_or_path meta-llama/Llama-2-7b-hf --finetuning_type lora --lora_target q_proj,v_proj "
    "--cutoff_len 1024 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --fp16\n"
)
LOOP = """
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x in torch.utils.data.DataLoader(data, batch_size=4):
    model(x).sum().backward()
    optimizer.step()
"""


def studies(root: Path, script: str) -> list[StudyResult]:
    path = root / "run.sh"
    path.write_text(f"#!/bin/bash\n{script}")
    return [one for report in check([path]).reports for one in report.studies]


def value(one: StudyResult, field: str) -> object:
    bound = one.study.boxes[0].fields.get(field)
    return None if bound is None else evaluate(bound.expr)


def test_llama_factorys_script_outside_the_project(tmp_path: Path) -> None:
    [one] = studies(tmp_path, FACTORY.format(gpus="0"))
    found = {field: value(one, field) for field in ("model.name", "train.batch_size", "train.seq_len", "train.peft.r")}
    assert list(found.values()) == ["meta-llama/Llama-2-7b-hf", 2, 1024, 8]
    assert one.space.worst.job.parallel.ranks_per_node == 1


def test_one_process_on_several_gpus_is_not_one_gpu(tmp_path: Path) -> None:
    assert studies(tmp_path, FACTORY.format(gpus="0,1")) == []
    assert studies(tmp_path, FACTORY.format(gpus="$1")) == []
    [one] = studies(tmp_path, FACTORY.format(gpus="0,1").replace("python", "torchrun --nproc_per_node 2"))
    assert one.space.worst.job.parallel.ranks_per_node == 2


def test_a_script_of_the_project_with_that_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train_bash.py").write_text(LOOP)
    [one] = studies(tmp_path, FACTORY.format(gpus="0").replace("../../", ""))
    assert value(one, "train.batch_size") == 4


@pytest.mark.parametrize(
    ("started", "found"),
    [("OWN/src/train.py", 1), ("other/src/train.py", 0), ("src/src/train.py", 0), ("x/train.py", 0)],
)
def test_a_project_by_its_own_name(started: str, found: int, tmp_path: Path) -> None:
    """Another repository has a src/train.py, too."""
    started = started.replace("OWN", tmp_path.name)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(LOOP)
    (tmp_path / "train.py").write_text(LOOP)
    assert len(studies(tmp_path, f"python {started}\n")) == found
