"""Whether a job fits, told without a replay: "no" is certain, so the estimate never says otherwise."""

from __future__ import annotations

import pytest

from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate, may_fit
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY

JOBS: tuple[dict[str, object], ...] = (
    {"model.name": "gpt2", "train.seq_len": 1024},
    {"model.name": "bert-base-uncased", "train.seq_len": 512, "train.sequences": "dynamic"},
    {"model.name": "meta-llama/Llama-3.2-1B", "train.seq_len": 512, "train.gradient_checkpointing": True},
    {"model.name": "resnet50", "train.image_size": 224, "train.optimizer": "sgd"},
    {"model.name": "bert-base-uncased", "train.seq_len": 512, "train.grad_accum": 4, "validation.batch_size": 256},
)


def job(fields: dict[str, object], batch: int) -> Job:
    return build({"train.precision": "bf16-mixed", "train.optimizer": "adamw", "train.batch_size": batch, **fields})


@pytest.mark.parametrize("fields", JOBS, ids=lambda fields: str(fields["model.name"]))
def test_no_is_certain(fields: dict[str, object]) -> None:
    gpu = find_gpu("A100-80GB")
    said = []
    for batch in (1, 64, 96, 128, 192, 256, 4096):
        one = job(fields, batch)
        found = estimate(one, gpu, SHIPPED_ONLY)
        assert isinstance(found, DeviceEstimate), found
        said.append(may_fit(one, gpu, SHIPPED_ONLY))
        if said[-1] is False:
            assert found.verdict == "exceeds"
    assert said[0] is True
    assert said[-1] is False


def test_a_lower_bound_never_fits() -> None:
    rotary = job({"model.name": "EleutherAI/pythia-70m", "train.seq_len": None, "train.precision": "fp32"}, 2)
    assert may_fit(rotary, find_gpu("A100-80GB"), SHIPPED_ONLY) is False


def test_where_a_setting_with_few_values_is_open_nothing_is_said() -> None:
    """`estimate` tries its values, and may find that the job fits with each."""
    open_ = job({"model.name": "bert-base-uncased", "train.seq_len": 128, "train.precision": None}, 2)
    found = estimate(open_, find_gpu("A100-80GB"), SHIPPED_ONLY)
    assert isinstance(found, DeviceEstimate)
    assert found.verdict == "fits"
    assert may_fit(open_, find_gpu("A100-80GB"), SHIPPED_ONLY) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"model.name": "gpt2", "train.seq_len": None, "train.precision": "fp32"},
        {"model.name": "openai/whisper-small", "train.target_len": None},
    ],
)
def test_where_the_positions_end_an_open_length_nothing_is_said(fields: dict[str, object]) -> None:
    """`estimate` tries the longest, and may find that it fits."""
    found = estimate(job(fields, 1), find_gpu("A100-80GB"), SHIPPED_ONLY)
    assert isinstance(found, DeviceEstimate)
    assert found.verdict == "fits"
    assert may_fit(job(fields, 1), find_gpu("A100-80GB"), SHIPPED_ONLY) is None


def test_without_a_capacity_nothing_fits() -> None:
    assert may_fit(job(JOBS[0], 1), None, SHIPPED_ONLY) is False
