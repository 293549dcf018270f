"""Checkpoints on the GPU: what is read at the beginning, and what writing one takes."""

from __future__ import annotations

import pytest

from preflight.engine.job_by_hand import completed
from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate
from preflight.memory.device.estimate import bound
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build

A100 = find_gpu("A100-80GB")
GPT2 = {"model.name": "gpt2", "task": "causal-lm", "train.batch_size": 1, "train.seq_len": 64,
        "train.optimizer": "adamw", "train.precision": "fp32"}  # fmt: skip
PARAMETERS = 124_439_808
WEIGHTS, STATES = 4 * PARAMETERS, 8 * PARAMETERS
INT8 = {"model.name": "huggyllama/llama-7b", "task": "causal-lm", "train.batch_size": 1, "train.seq_len": 64,
        "train.precision": "fp16-mixed", "train.weights_dtype": "fp16", "train.gradient_checkpointing": True,
        "train.reentrant": True,
        "train.quantization.type": "int8", "train.optimizer": "adamw", "train.peft.method": "lora",
        "train.peft.targets": ["q_proj", "v_proj"], "train.peft.dropout": 0.05, "train.attention": "eager"}  # fmt: skip
LAYERS = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
"""Elements of Llama-7B's quantised layers: a byte each."""


def job(base: dict[str, object], **fields: object) -> Job:
    return build(completed({**base, **fields}))


def answer(one: Job) -> DeviceEstimate:
    found = estimate(one, A100)
    assert isinstance(found, DeviceEstimate)
    return found


def requested(base: dict[str, object], **fields: object) -> int:
    return answer(job(base, **fields)).requested.expected


def test_a_checkpoint_that_stays_is_a_second_copy_of_the_weights() -> None:
    plain, kept = requested(GPT2), requested(GPT2, **{"train.resumes": "kept"})
    assert kept - plain == pytest.approx(WEIGHTS, rel=1e-4)


def test_before_torch_2_1_the_optimizer_copied_its_states() -> None:
    old = {"software": {"torch": "2.0.1"}}
    assert requested(GPT2, **old, **{"train.resumes": "kept"}) - requested(GPT2, **old) == pytest.approx(
        WEIGHTS + STATES, rel=1e-4
    )


@pytest.mark.parametrize("how", ["no", "host", "trainer"])
def test_what_passes_through_the_host_takes_nothing(how: str) -> None:
    assert requested(GPT2, **{"train.resumes": how}) == requested(GPT2)


def test_passing_through_the_device_is_a_phase() -> None:
    found = answer(job(GPT2, **{"train.resumes": "device"}, software={"torch": "1.13"}))
    assert found.phase == "resume"  # weights twice and the states twice, before there are gradients
    assert found.requested.expected == pytest.approx(2 * WEIGHTS + 2 * STATES, rel=0.02)


def test_adapters_alone_are_in_their_checkpoint() -> None:
    kept = requested(INT8, **{"train.resumes": "kept"}) - requested(INT8)
    assert kept == pytest.approx(4 * 8 * 32 * 2 * (4096 + 4096), rel=0.01)  # fp32, rank 8, two targets of each layer


@pytest.mark.slow
@pytest.mark.parametrize(("installed", "doubles"), [("0.37.2", 0), ("0.38.1", 1), ("0.39.1", 0), (None, 0)])
def test_int8_layers_double_when_bitsandbytes_0_38_saves(installed: str | None, doubles: int) -> None:
    software = {} if installed is None else {"bitsandbytes": installed}
    found = answer(job(INT8, software=software))
    assert (found.phase == "save") == bool(doubles)
    if doubles:
        # a clone that stays, and the dictionary's own rows: two copies beside the first
        assert found.phases["save"] > 3 * LAYERS
        assert any("0.38" in note for note in found.notes)


def test_gathering_all_parameters_to_save() -> None:
    fields = {"parallel.strategy": "fsdp", "parallel.gpus_per_node": 8, "parallel.options": {"fsdp_version": 1}}
    streamed, whole = answer(job(GPT2, **fields)), answer(job(GPT2, **fields, **{"train.saves": "gathered"}))
    assert "save" not in streamed.phases
    between = streamed.phases["load"] + (WEIGHTS + STATES) // 8
    assert whole.phases["save"] >= between - WEIGHTS // 8 + WEIGHTS


@pytest.mark.parametrize("fields", [{"train.resumes": "kept"}, {"train.resumes": "device"}, {}])
def test_the_bound_of_a_search_is_not_below_the_request(fields: dict[str, object]) -> None:
    one = job(GPT2, **fields)
    found = bound(one, A100)
    assert found is not None
    assert found[1] >= answer(one).requested.expected
