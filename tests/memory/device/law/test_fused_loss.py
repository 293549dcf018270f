"""Jobs under torch.compile: each batch and length has a law of its own."""

from __future__ import annotations

import pytest

from preflight.engine.job_by_hand import completed
from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build

pytest.importorskip("torch")

CONFIG = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 352,
          "vocab_size": 1024, "num_hidden_layers": 5}  # fmt: skip


def job(batch: int, compiled: bool = True) -> Job:
    return build(completed({
        "model.architecture": "llama", "model.config": CONFIG, "task": "causal-lm", "train.batch_size": batch,
        "train.seq_len": 128, "train.precision": "bf16", "train.compile": compiled, "train.optimizer": "adamw",
    }))  # fmt: skip


def answer(one: Job) -> DeviceEstimate:
    found = estimate(one, find_gpu("T4"))
    assert isinstance(found, DeviceEstimate)
    return found


@pytest.mark.slow
def test_batches_of_one_process_do_not_share_a_law() -> None:
    small, large = answer(job(2)), answer(job(64))
    assert large.requested.expected > 2 * small.requested.expected
    assert large.requested.expected < answer(job(64, compiled=False)).requested.expected
    assert small.largest_batch_size == large.largest_batch_size
    assert 64 < (small.largest_batch_size or 0) < 1 << 16
