"""What older releases of torch keep and load beside today's."""

from __future__ import annotations

import pytest

from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate
from preflight.memory.device.estimate import room
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build

V100 = find_gpu("V100")
BERT = {"model.name": "bert-large-uncased", "task": "sequence-classification", "train.batch_size": 4,
        "train.seq_len": 512, "train.precision": "fp32", "train.gradient_checkpointing": False,
        "train.optimizer": "adamw", "train.attention": "eager", "machine.gpu": "V100"}  # fmt: skip
SCORES = 4 * 16 * 512**2 * 4
"""Bytes of one layer's scores: batch x heads x length squared, fp32."""


def bert(torch: str | None = None, **more: object) -> Job:
    return build({**BERT, **more, "software": {} if torch is None else {"torch": torch}})


def answer(job: Job) -> DeviceEstimate:
    found = estimate(job, V100)
    assert isinstance(found, DeviceEstimate)
    return found


@pytest.mark.parametrize(("torch", "layers"), [("1.10.2", 24), ("1.9.0+cu111", 24), ("1.11.0", 0), ("2.4", 0)])
def test_before_1_11_every_layer_keeps_its_scores(torch: str, layers: int) -> None:
    old, today = answer(bert(torch)), answer(bert("2.4"))
    # Before 2.0 zeroed gradients stay as well: they are in both figures of a step that is not the first.
    stays = answer(bert("1.13")).allocated.expected - today.allocated.expected if torch.startswith("1.") else 0
    assert old.allocated.expected - today.allocated.expected - stays == layers * SCORES


def test_checkpoints_keep_none_and_fused_attention_has_none() -> None:
    for more in ({"train.gradient_checkpointing": True}, {"train.attention": "sdpa"}):
        old, newer = answer(bert("1.10", **more)), answer(bert("1.13", **more))
        assert old.allocated.expected == newer.allocated.expected


def test_kernels_are_loaded_at_once_before_1_13() -> None:
    contexts = [room(bert(torch), V100)[1] for torch in (None, "1.12", "1.13")]
    assert contexts[0] == contexts[2]
    assert contexts[1].expected == 1343 * 2**20  # nvidia-smi on a V100 after one small tensor, CUDA 11.2
    assert contexts[1].low < contexts[1].expected < contexts[1].high
