"""Settings that a job leaves open: what holds whichever value they have."""

from __future__ import annotations

from preflight.engine.job_by_hand import completed
from preflight.memory.device import estimate
from preflight.memory.device.open_settings import at_most
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown, missing

GIB = 2**30
OPEN = {"model.name": "bert-large-uncased", "task": "sequence-classification", "train.batch_size": 16,
        "train.seq_len": 256, "train.precision": None, "train.optimizer": "adamw"}  # fmt: skip


def job(**fields: object) -> Job:
    return build(completed({**OPEN, **fields}))


def on(gib: int, **fields: object) -> DeviceEstimate | Unknown:
    return estimate(job(**fields, **{"machine.gpu_memory": gib * GIB}), None)


def test_what_fits_with_every_value_fits() -> None:
    found = on(40)
    whole = on(40, **{"train.precision": "fp32"})
    assert isinstance(found, DeviceEstimate)
    assert isinstance(whole, DeviceEstimate)
    assert found.verdict == "fits"
    assert found.process.expected == whole.process.expected  # at most
    assert found.process.low < whole.process.low
    assert any("train.precision not known" in note for note in found.notes)


def test_what_exceeds_with_every_value_exceeds() -> None:
    found = on(4)
    least = on(4, **{"train.precision": "bf16"})
    assert isinstance(found, DeviceEstimate)
    assert isinstance(least, DeviceEstimate)
    assert (found.verdict, found.lower_bound) == ("exceeds", True)
    assert found.process.expected == least.process.expected


def test_where_values_differ_the_reason_says_with_which_it_fits() -> None:
    found = on(10)
    assert isinstance(found, Unknown)
    assert found.words.startswith("train.precision is not known; it fits with train.precision bf16")
    assert "not with every value" in found.words


def test_two_open_settings() -> None:
    found = on(40, **{"train.gradient_checkpointing": None})
    assert isinstance(found, DeviceEstimate)
    assert found.verdict == "fits"
    assert any("train.precision and train.gradient_checkpointing" in note for note in found.notes)


def test_a_length_is_at_most_the_positions_of_the_model() -> None:
    found = on(80, **{"train.seq_len": None, "train.precision": "fp32"})
    longest = on(80, **{"train.seq_len": 512, "train.precision": "fp32"})
    assert isinstance(found, DeviceEstimate)
    assert isinstance(longest, DeviceEstimate)
    assert (found.verdict, found.lower_bound) == ("fits", False)
    assert found.process.expected == longest.process.expected
    shortest = on(80, **{"train.seq_len": 1, "train.precision": "fp32"})
    assert isinstance(shortest, DeviceEstimate)
    assert found.process.low == shortest.process.low
    assert any("at the 512 positions of the model" in note for note in found.notes)


def test_where_the_longest_does_not_fit_the_length_is_unknown() -> None:
    found = on(12, **{"train.seq_len": None, "train.precision": "fp32"})
    assert isinstance(found, Unknown)
    assert found.fields == ("train.seq_len",)


def test_a_length_and_a_precision() -> None:
    found = on(80, **{"train.seq_len": None})
    assert isinstance(found, DeviceEstimate)
    assert found.verdict == "fits"
    assert any("train.precision not known" in note for note in found.notes)


def test_nothing_ends_the_length_of_packed_rows_and_of_rotary_positions() -> None:
    open_length = {"train.seq_len": None, "train.precision": "fp32"}
    for more in ({"train.sequences": "packed"}, {"model.name": "EleutherAI/pythia-70m", "task": "causal-lm"}):
        found = on(80, **open_length, **more)
        assert isinstance(found, Unknown)
        assert found.fields == ("train.seq_len",)


def test_without_a_gpu_nothing_is_judged() -> None:
    found = estimate(job(), None)
    assert isinstance(found, Unknown)
    assert found.words == "train.precision is not known"


def test_no_length_is_estimated_where_the_longest_surely_does_not_fit() -> None:
    asked: list[int | None] = []

    def counted(one: Job) -> DeviceEstimate | Unknown:
        asked.append(one.train.seq_len)
        return estimate(one, None)

    fields = {"train.seq_len": None, "train.precision": "fp32", "machine.gpu_memory": 10 * GIB}
    length = missing("train.seq_len")
    assert at_most(job(**fields), length, counted, lambda one: False) is None
    assert asked == []
    assert at_most(job(**fields), length, counted, lambda one: None) is None
    assert asked == [512]  # the shortest is asked only where the longest fits
    assert at_most(job(**{**fields, "machine.gpu_memory": 80 * GIB}), length, counted, lambda one: True) is not None
    assert asked == [512, 512, 1]
