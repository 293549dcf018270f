"""States that exceed a GPU by themselves say so, whatever else is not known; where they fit, a field is asked for."""

from __future__ import annotations

import pytest

from preflight.memory.device.estimate import estimate
from preflight.memory.device.lower_bound import lower_bound
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.values import missing as not_stated

GIB = 2**30


def job(gpu_memory: float, **fields: object) -> DeviceEstimate | Unknown:
    """A full training of Llama-2-7b, 6.74 B parameters."""
    known: dict[str, object] = {
        "model.name": "meta-llama/Llama-2-7b-hf",
        "task": "causal-lm",
        "train.batch_size": 1,
        "train.seq_len": 512,
        "train.precision": "bf16",
        "train.optimizer": "adamw",
        "machine.gpu_memory": round(gpu_memory * GIB),
    }
    return estimate(build(known | {name.replace("__", "."): value for name, value in fields.items()}), None)


@pytest.mark.parametrize(
    "missing", ["train.seq_len", "train.batch_size", "train.precision", "train.gradient_checkpointing"]
)
def test_states_above_the_gpu_need_no_other_answer(missing: str) -> None:
    found = job(40, **{missing: None})
    assert isinstance(found, DeviceEstimate)
    assert (found.verdict, found.lower_bound) == ("exceeds", True)
    assert "train." in found.notes[-1]


@pytest.mark.parametrize("missing", ["train.seq_len", "train.batch_size"])
def test_states_below_the_gpu_ask_for_what_is_missing(missing: str) -> None:
    found = job(80, **{missing: None})
    assert found == not_stated(missing)


def test_an_unknown_precision_is_the_least_of_all() -> None:
    """Weights, gradients and two states in 16 bits: 8 bytes a parameter."""
    found = job(40, train__precision=None, train__seq_len=None)
    assert isinstance(found, DeviceEstimate)
    assert found.requested.expected == pytest.approx(8 * 6.74e9, rel=0.01)


def test_adapters_and_frozen_parts_count_weights_alone() -> None:
    adapted = job(8, train__seq_len=None, train__peft__method="lora")
    frozen = job(8, train__seq_len=None, train__frozen=["embeddings"])
    for found in (adapted, frozen):
        assert isinstance(found, DeviceEstimate)
        assert found.requested.expected == pytest.approx(2 * 6.74e9, rel=0.01)
    assert isinstance(job(16, train__seq_len=None, train__peft__method="lora"), Unknown)


@pytest.mark.parametrize("missing", ["train.seq_len", "train.batch_size"])
def test_what_exceeds_with_a_batch_or_length_of_one_exceeds(missing: str) -> None:
    """The states alone have room in 52 GiB, and what the optimizer's step copies (foreach) has not."""
    found = job(52, **{missing: None})
    assert isinstance(found, DeviceEstimate)
    assert (found.verdict, found.lower_bound, found.largest_batch_size) == ("exceeds", True, None)
    assert f"{missing} is not known, and 1 is the least that it can be" in found.notes[-1]
    least = job(52, **{missing: 1})
    assert isinstance(least, DeviceEstimate)
    assert found.process == least.process


def test_both_unknown_take_the_least_of_both() -> None:
    found = job(52, train__seq_len=None, train__batch_size=None)
    assert isinstance(found, DeviceEstimate)
    assert found.lower_bound
    assert len([note for note in found.notes if "the least that it can be" in note]) == 2


def test_gradients_that_never_exist_all_at_once_are_not_counted() -> None:
    found = job(20, train__seq_len=None, train__optimizer_in_backward=True, train__optimizer="sgd")
    assert isinstance(found, Unknown)
    held = job(20, train__seq_len=None, train__optimizer="sgd")
    assert isinstance(held, DeviceEstimate)
    assert held.breakdown["gradients"] == pytest.approx(2 * 6.74e9, rel=0.01)


@pytest.mark.parametrize(("strategy", "known"), [("zero3", False), ("fsdp", False), ("zero2", True)])
def test_a_pipelines_model_with_adapters_has_no_bound_where_its_cut_is_not_known(strategy: str, known: bool) -> None:
    """Scripts that prepare the adapters alone leave the frozen denoiser whole on every rank."""
    stated = {
        "model.name": "runwayml/stable-diffusion-v1-5", "train.batch_size": 1, "train.precision": "fp16-mixed",
        "train.optimizer": "adamw", "train.peft.method": "lora", "parallel.strategy": strategy,
        "parallel.gpus_per_node": 4,
    }  # fmt: skip
    why = Unknown("no law is shipped", Cause.no_law)
    found = lower_bound(build(stated), (24 * 2**30, Interval(0, 0, 0)), why)
    assert isinstance(found, DeviceEstimate) == known
    if isinstance(found, Unknown):
        assert found.cause is Cause.not_modelled


@pytest.mark.parametrize(("flag", "exceeds"), [(False, True), (True, False), (None, False)])
def test_a_model_that_is_cut_on_the_gpu_is_whole_there_first(flag: bool | None, exceeds: bool) -> None:
    """13.5 GB of weights on each of eight GPUs with 12 GiB, of which a rank keeps an eighth."""
    stated = {
        "model.parameters": 6_740_000_000, "train.precision": "bf16", "train.peft.method": "lora",
        "parallel.strategy": "zero3", "parallel.gpus_per_node": 8, "parallel.ranks_per_node": 8,
        "parallel.options": {"zero3_init_flag": flag},
    }  # fmt: skip
    why = Unknown("no law is shipped", Cause.no_law)
    found = lower_bound(build(stated), (12 * GIB, Interval(0, 0, 0)), why)
    assert isinstance(found, DeviceEstimate)
    assert (found.verdict == "exceeds", found.phase) == (exceeds, "load")
    assert found.breakdown["weights"] == pytest.approx(2 * 6.74e9 * (1 if exceeds else 1 / 8), rel=0.01)


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_deepspeed_updates_a_copy_and_keeps_the_weights_in_16_bits(strategy: str) -> None:
    """The bound of the states is no higher than the estimate of the whole job, and near to it where nothing else is."""
    ranks = {"parallel.strategy": strategy, "parallel.gpus_per_node": 4, "parallel.ranks_per_node": 4}
    fields = {**ranks, "train.precision": "fp16-mixed", "train.optimizer": "adamw"}
    bound = job(8, **{"train.seq_len": None, **fields})
    whole = job(8, **{"train.seq_len": 16, **fields})
    assert isinstance(bound, DeviceEstimate)
    assert isinstance(whole, DeviceEstimate)
    assert bound.lower_bound
    kept = sum(whole.breakdown[part] for part in ("weights", "gradients", "optimizer"))
    assert 0.9 * kept < bound.requested.expected <= 1.001 * kept
