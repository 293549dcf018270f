"""The verdict of a search space on one combination is never surer than the estimate of that job."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from preflight.engine import estimator as module
from preflight.engine.estimator import Estimator
from preflight.machines.gpus import find_gpu
from preflight.space.grid import AT_RISK, EXCEEDS, FITS
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY

# Kept blocks are a third to a half of what this job reserves: its bound is too low.
SCATTERED: dict[str, object] = {
    "model.name": "t5-base", "train.batch_size": 1, "train.seq_len": 4096, "train.target_len": 128,
    "train.precision": "fp16-mixed", "train.optimizer": "adafactor", "train.attention": "eager",
    "train.sequences": "exact", "train.gradient_checkpointing": True, "train.grad_accum": 4,
    "validation.batch_size": 8,
}  # fmt: skip
TEXT = {
    "model.name": some.sampled_from(["gpt2", "bert-base-uncased", "facebook/opt-125m"]),
    "train.batch_size": some.integers(1, 48),
    "train.seq_len": some.sampled_from([37, 128, 512, 1000]),
    "train.precision": some.sampled_from(["fp32", "bf16-mixed", "bf16"]),
    "train.optimizer": some.sampled_from(["adamw", "sgd", "adafactor"]),
    "train.attention": some.sampled_from(["eager", "sdpa"]),
    "train.gradient_checkpointing": some.booleans(),
    "train.grad_accum": some.sampled_from([1, 4]),
    "train.sequences": some.sampled_from(["exact", "bound", "dynamic"]),
    "validation.batch_size": some.sampled_from([None, 8, 64]),
}
GPU = find_gpu("A100-80GB")


def on(job: Job, capacity: int) -> tuple[int | None, str, Estimator]:
    """The space's verdict, the estimate's, and who says it."""
    found = unchecked(job, {"machine.gpu_memory": capacity})
    estimator = Estimator(GPU, SHIPPED_ONLY)
    side, _ = estimator.sides(estimator.full)
    device = estimator.full(found).device
    assert device is not None
    return side.judge(found)[0], device.verdict, estimator


def test_a_job_whose_blocks_do_not_fit_into_each_other() -> None:
    job = build(SCATTERED)
    estimator = Estimator(GPU, SHIPPED_ONLY)
    bound, device = estimator.device_bound(job), estimator.full(job).device
    assert bound is not None
    assert device is not None
    assert device.process.high > bound[1]
    said, verdict, _ = on(job, device.process.high - 2**20)
    assert verdict == "at-risk"
    assert said == AT_RISK


@pytest.mark.slow
@settings(max_examples=40, derandomize=True)
@given(some.fixed_dictionaries(TEXT), some.floats(0.5, 1.6))
def test_no_verdict_is_surer_than_the_estimate(fields: dict[str, object], share: float) -> None:
    job = build({name: value for name, value in fields.items() if value is not None})
    bound = Estimator(GPU, SHIPPED_ONLY).device_bound(job)
    assume(bound is not None)
    assert bound is not None
    said, verdict, _ = on(job, round(share * bound[1]))
    if said == FITS:
        assert verdict == "fits"
    if said == EXCEEDS:
        assert verdict == "exceeds"


def test_beyond_the_budget_the_worst_that_was_seen_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    job = build(SCATTERED)
    device = Estimator(GPU, SHIPPED_ONLY).full(job).device
    assert device is not None
    capacity = device.process.high - 2**20
    monkeypatch.setattr(module, "CLOSE_ESTIMATES", 1)
    estimator = Estimator(GPU, SHIPPED_ONLY)
    side, _ = estimator.sides(estimator.full)
    ranks = [
        side.judge(unchecked(job, {"machine.gpu_memory": capacity, "train.grad_accum": steps}))[0] for steps in (4, 8)
    ]
    assert set(ranks) == {AT_RISK}
