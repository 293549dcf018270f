"""FSDP by accelerate: what is trained is stored in fp32 under mixed precision."""

from __future__ import annotations

import pytest

from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.rank import view
from preflight.vocabulary.job import Job, build

FULL = {"train.precision": "bf16-mixed", "train.weights_dtype": "bf16"}
LORA = {**FULL, "train.peft.method": "lora", "train.peft.dtype": "bf16"}
PACKED = {**LORA, "train.quantization.type": "nf4"}


def seen(fields: dict[str, object], scheme: str) -> Job:
    return view(build(fields), ShardLayout(scheme))


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        (FULL, "ddp"),
        (FULL, "none"),
        ({**FULL, "train.precision": "bf16"}, "fsdp2"),
        ({**FULL, "software": {"torchtune": "0.6"}}, "fsdp2"),
        ({**FULL, "software": {"accelerate": "0.29.3"}}, "fsdp1"),
        (PACKED, "fsdp2"),
    ],
)
def test_what_others_leave_as_it_is(fields: dict[str, object], scheme: str) -> None:
    assert seen(fields, scheme) == build(fields)


@pytest.mark.parametrize("scheme", ["fsdp1", "fsdp2"])
def test_a_whole_model_that_trains_is_stored_in_fp32(scheme: str) -> None:
    assert seen(FULL, scheme).train.weights_dtype is None
    assert seen({**FULL, "software": {"accelerate": "1.2"}}, scheme).train.weights_dtype is None


@pytest.mark.parametrize(("fields", "scheme"), [(LORA, "fsdp1"), (LORA, "fsdp2"), (PACKED, "fsdp1")])
def test_adapters_are_stored_in_fp32_and_the_frozen_model_is_not(fields: dict[str, object], scheme: str) -> None:
    found = seen(fields, scheme).train
    assert (found.peft.dtype, found.weights_dtype) == ("fp32", "bf16")
