"""The host law against measured runs, and the properties that searches and fixes rely on.

MEASURED: peaks of anonymous plus shared memory over the process tree of real DataLoaders on the CPU (torch 2.13,
Debian 12; one run per row), bytes. Samples are float32 images of the given side, or records of a list.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.memory.device import estimate
from preflight.memory.host.checkpoint import weights_of
from preflight.memory.host.estimate import estimate_host, limit_of, solve_sample_bytes
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.words import at_most

SMALL, LARGE = 3 * 224 * 224 * 4, 3 * 640 * 640 * 4
VAL = {"data.validation_workers": 2, "data.validation_overlaps": True}

MEASURED = [
    # side, batch, workers, prefetch, further fields, peak
    (SMALL, 128, 0, 2, {}, 426_299_392),
    (SMALL, 32, 2, 2, {}, 361_053_184),
    (SMALL, 8, 8, 2, {}, 472_498_176),
    (SMALL, 128, 8, 4, {}, 3_463_555_072),
    (LARGE, 64, 2, 2, {}, 2_456_082_432),
    (LARGE, 16, 4, 4, {}, 2_193_380_352),
    (LARGE, 32, 8, 2, {}, 4_423_692_288),
    (SMALL, 64, 8, 2, {**VAL, "validation.batch_size": 128}, 1_852_131_328),
    (SMALL, 64, 2, 2, {**VAL, "parallel.ranks_per_node": 2}, 1_579_471_872),
    (SMALL, 64, 8, 2, {"data.validation_workers": 2, "data.persistent_workers": False}, 1_229_726_720),
    (SMALL, 64, 2, 2, {"data.start_method": "spawn"}, 780_378_112),
    (SMALL, 32, 2, 2, {"data.shuffle": False}, 312_144_896),
    (320, 512, 4, 2, {"data.in_memory_bytes": 208_924_672, "data.in_memory_kind": "objects"}, 861_362_176),
    (
        SMALL,
        64,
        2,
        2,
        {"data.start_method": "spawn", "data.in_memory_bytes": 602_112_000, "data.samples": 1000},
        2_849_320_960,
    ),
]  # fmt: skip


def job(sample: int | None, batch: int, workers: int, prefetch: int = 2, **fields: object) -> Job:
    values: dict[str, object] = {
        "data.sample_bytes": sample,
        "train.batch_size": batch,
        "data.workers": workers,
        "data.prefetch": prefetch,
        "data.persistent_workers": True,
        "data.shuffle": True,
        "data.samples": 1_000_000,
    }
    return build({**values, **fields})


def known(estimate: HostEstimate | Unknown) -> HostEstimate:
    assert isinstance(estimate, HostEstimate), estimate
    return estimate


@pytest.mark.parametrize(("sample", "batch", "workers", "prefetch", "fields", "peak"), MEASURED)
def test_measured_peaks(
    sample: int, batch: int, workers: int, prefetch: int, fields: dict[str, object], peak: int
) -> None:
    found = known(estimate_host(job(sample, batch, workers, prefetch, **fields), cuda=False, trains=False))
    assert found.per_node.expected == pytest.approx(peak, rel=0.063)
    assert found.per_node.low <= peak <= found.per_node.high
    assert sum(found.breakdown.values()) == found.per_node.expected


def test_views_of_one_array_stay_inside_the_interval() -> None:
    found = known(
        estimate_host(job(SMALL, 32, 8, **{"data.in_memory_bytes": 602_112_000, "data.samples": 1000}), cuda=False)
    )
    assert found.per_node.low <= 1_172_065_280 <= found.per_node.high


def test_cuda_is_a_part_of_every_rank_on_a_gpu() -> None:
    here = job(SMALL, 32, 2, **{"parallel.ranks_per_node": 4})
    assert known(estimate_host(here)).breakdown["cuda"] == 4 * 900 * 2**20
    assert "cuda" not in known(estimate_host(here, cuda=False)).breakdown


def test_validation_at_epoch_end_spikes_only_with_persistent_workers() -> None:
    fields = {"data.validation_workers": 4, "validation.batch_size": 64}
    kept = known(estimate_host(job(SMALL, 64, 4, **fields)))
    assert kept.peak == "validation"
    assert kept.train_only is not None
    assert kept.train_only < kept.per_node.expected
    dropped = known(estimate_host(job(SMALL, 64, 4, **fields, **{"data.persistent_workers": False})))
    assert dropped.peak == "training"
    assert dropped.train_only is None
    assert dropped.per_node.expected == kept.train_only


def test_workers_of_validation_that_end_take_nothing_when_training_goes_on() -> None:
    fields = {"data.validation_workers": 2, "validation.batch_size": 8}
    stay, end = (
        known(estimate_host(job(SMALL, 64, 4, **fields, **more)))
        for more in ({}, {"data.validation_persistent": False})
    )
    alone = known(estimate_host(job(SMALL, 64, 4)))
    assert (stay.peak, end.peak) == ("validation", "training")
    assert stay.per_node.expected > end.per_node.expected == alone.per_node.expected
    again = {"data.persistent_workers": False, "data.validation_persistent": True}
    assert known(estimate_host(job(SMALL, 64, 4, **fields, **again))).per_node.expected == stay.per_node.expected


def test_an_unknown_sample_is_solved_for_and_the_answer_is_the_edge() -> None:
    limit = 64 * 2**30
    here = job(None, 22, 2, **{"parallel.ranks_per_node": 4, "machine.memory_limit": limit})
    found = estimate_host(here)
    assert isinstance(found, Unknown)
    largest = solve_sample_bytes(here)
    assert largest is not None
    assert f"one decoded sample is at most {at_most(largest)}:" in found.words
    assert "data.sample_bytes" in found.words
    at = job(largest, 22, 2, **{"parallel.ranks_per_node": 4, "machine.memory_limit": limit})
    above = job(largest + 1, 22, 2, **{"parallel.ranks_per_node": 4, "machine.memory_limit": limit})
    assert known(estimate_host(at)).verdict == "fits"
    assert known(estimate_host(above)).verdict == "at-risk"


def test_what_no_sample_size_can_save_is_a_lower_bound_that_exceeds() -> None:
    here = job(None, 22, 2, **{"data.in_memory_bytes": 2**40, "machine.memory_limit": 2**36})
    found = known(estimate_host(here))
    assert found.verdict == "exceeds"
    assert any("lower bound" in note for note in found.notes)
    assert solve_sample_bytes(here) is None


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ({"data.workers": None}, "data.workers"),
        ({"train.batch_size": None}, "train.batch_size"),
        ({"parallel.ranks_per_node": None}, "parallel.ranks_per_node"),
        ({"data.in_memory_bytes": None}, "data.in_memory_bytes"),
        ({"parallel.offload": "optimizer"}, "model.parameters"),
    ],
)
def test_whatever_else_is_missing_is_named(field: dict[str, object], name: str) -> None:
    whole: dict[str, object] = {"data.sample_bytes": SMALL, "train.batch_size": 8, "data.workers": 2}
    assert isinstance(estimate_host(build(whole)), HostEstimate)
    missing = estimate_host(build({**whole, **field}))
    assert isinstance(missing, Unknown)
    assert name in missing.words


def test_text_samples_follow_from_the_length() -> None:
    found = known(
        estimate_host(build({"task": "causal-lm", "train.seq_len": 2048, "train.batch_size": 4, "data.workers": 2}))
    )
    assert any("int64 tensors of 2048 tokens" in note for note in found.notes)


def test_every_rank_loads_its_own_checkpoint() -> None:
    found = known(estimate_host(job(1000, 1, 0, **{"parallel.ranks_per_node": 8}), parameters=70_000_000_000))
    assert found.peak == "load"
    assert found.breakdown["checkpoint"] == 8 * 4 * 70_000_000_000


def test_offloaded_states_are_shared_between_nodes() -> None:
    fields = {"parallel.offload": "parameters", "parallel.strategy": "zero3", "parallel.nodes": 2}
    found = known(estimate_host(job(1000, 1, 0, **fields), parameters=10**9))
    assert found.breakdown["offload"] == 12 * 10**9


def test_dev_shm_can_be_what_runs_out() -> None:
    here = job(SMALL, 64, 4, **{"machine.node_memory": 2**36, "machine.shm": 64 * 2**20})
    found = known(estimate_host(here))
    assert found.verdict == "exceeds"
    assert found.limited_by == "/dev/shm"
    assert found.per_node.expected == (4 * 2 + 1) * 64 * SMALL


def test_which_limit_counts() -> None:
    assert limit_of(build({"machine.node_memory": 30, "machine.swap": 8})) == (38, "node_memory + swap")
    assert limit_of(build({"machine.node_memory": 30, "machine.memory_limit": 20})) == (20, "memory_limit")
    assert limit_of(build({"machine.node_memory": 10, "machine.memory_limit": 20})) == (10, "node_memory")
    assert limit_of(Job())[0] is None


@given(
    st.integers(1, 256),
    st.integers(0, 16),
    st.integers(1, 8),
    st.sampled_from(
        ["train.batch_size", "data.workers", "data.prefetch", "data.sample_bytes", "parallel.ranks_per_node"]
    ),
    st.booleans(),
    st.sampled_from([None, "2.34", "2.39"]),
)
def test_more_of_anything_never_needs_less(
    batch: int, workers: int, prefetch: int, field: str, persistent: bool, glibc: str | None
) -> None:
    fields: dict[str, object] = {
        "data.persistent_workers": persistent,
        "data.validation_workers": 2,
        "parallel.ranks_per_node": 2,
        "data.pin_memory": True,
        "software": {} if glibc is None else {"glibc": glibc},
    }
    one = job(SMALL, batch, workers, prefetch, **fields)
    more = one.model_copy(deep=True)
    *path, name = field.split(".")
    part = getattr(more, path[0])
    setattr(part, name, getattr(part, name) + 1)
    if field == "data.workers" and workers == 0:
        return  # without workers three batches are alive, one worker with a prefetch of one keeps two
    a, b = (known(estimate_host(this, bound=True)).per_node for this in (one, more))
    assert a.low <= b.low
    assert a.expected <= b.expected
    assert a.high <= b.high


def test_nothing_is_traced_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    asked = build({"model.architecture": "nobody_knows", "model.config": small, "task": "causal-lm"})
    told: list[object] = []

    def traced(resolved: object, kind: str, tracing: Tracing) -> Unknown:
        told.append(tracing)
        return Unknown("")

    monkeypatch.setattr("preflight.memory.device.prepare.laws_for", traced)
    assert weights_of(asked) is None
    assert weights_of(asked, tracing=Tracing(True, "other-python")) is None
    assert told == [SHIPPED_ONLY, Tracing(True, "other-python")]


CPU: dict[str, object] = {
    "model.parameters": 100_000_000, "train.batch_size": 4, "train.optimizer": "adamw", "train.precision": "fp32",
    "data.workers": 0, "data.sample_bytes": 1024, "machine.accelerator": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("stated", [{}, {"data.sample_bytes": None}])
@pytest.mark.parametrize("limit", [None, 4 * 2**30, 1024 * 2**30])
def test_a_training_on_the_processor_whose_activations_are_not_known_never_fits(
    limit: int | None, stated: dict[str, object]
) -> None:
    found = estimate_host(build({**CPU, **stated, "machine.memory_limit": limit}))
    assert isinstance(found, Unknown)
    assert found.cause is Cause.not_modelled


@pytest.mark.parametrize(("limit", "verdict"), [(2, "exceeds"), (64, "fits")])
def test_activations_of_own_layers_decide(limit: int, verdict: str) -> None:
    known = {**CPU, "model.activation_bytes": 100_000_000, "machine.memory_limit": limit * 2**30}
    found = estimate_host(build(known))
    assert isinstance(found, HostEstimate)
    assert found.breakdown["activations"] == 400_000_000
    assert found.verdict == verdict


def test_a_model_with_a_law_takes_the_tensors_of_its_law() -> None:
    """The device law of the same job, with the loops over parameters that torch chooses on the processor."""
    bert = {**CPU, "model.parameters": None, "model.name": "google-bert/bert-base-uncased", "train.seq_len": 128}
    asked = build({**bert, "task": "masked-lm"})
    found, more = (estimate_host(unchecked(asked, {"train.batch_size": size})) for size in (4, 8))
    assert isinstance(found, HostEstimate)
    assert isinstance(more, HostEstimate)
    device = estimate(unchecked(asked, {"train.optimizer_impl": "for-loop"}), None)
    assert isinstance(device, DeviceEstimate)
    tensors = found.breakdown["model"] + found.breakdown["activations"]
    assert tensors == pytest.approx(device.requested.expected, rel=0.001)
    assert more.breakdown["activations"] > 1.5 * found.breakdown["activations"]


def test_a_training_on_the_processor_exceeds_where_its_states_do() -> None:
    found = estimate_host(build({**CPU, "machine.memory_limit": 2**30}))
    assert isinstance(found, HostEstimate)
    assert found.verdict == "exceeds"
    assert found.per_node.low > 2**30


def test_stated_bytes_are_those_of_a_whole_sample() -> None:
    """A data set that returns two views of a picture says the bytes of both; a length says those of one sequence."""
    one, two = (known(estimate_host(job(SMALL, 32, 4, **{"train.sequences_per_sample": n}))) for n in (1, 2))
    assert two.per_node == one.per_node
    text = {"task": "causal-lm", "train.seq_len": 4096}
    one, two = (known(estimate_host(job(None, 32, 4, **text, **{"train.sequences_per_sample": n}))) for n in (1, 2))
    assert two.per_node.expected > one.per_node.expected
