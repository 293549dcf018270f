"""Batches of different lengths: which are replayed, and what their leftovers do to the interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from preflight.machines.gpus import find_gpu
from preflight.memory.device import estimate
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import intervals, varying_lengths
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effect import Again
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

GPU = find_gpu("A100-80GB")
GIB = 2**30


def job(**fields: object) -> Job:
    return build({
        "model.name": "EleutherAI/pythia-70m", "train.batch_size": 8, "train.seq_len": 2048,
        "train.precision": "bf16-mixed", **{k.replace("__", "."): v for k, v in fields.items()},
    })  # fmt: skip


def estimated(one: Job) -> DeviceEstimate:
    found = estimate(one, GPU)
    assert isinstance(found, DeviceEstimate), found
    return found


def test_lengths_are_spread_over_all_that_are_allowed() -> None:
    found = [each["s"] for each in varying_lengths.earlier(job(train__sequences="dynamic"), {"b": 8, "s": 1000})]
    assert len(found) == varying_lengths.EARLIER
    assert len(set(found)) == len(found)
    assert min(found) < 250
    assert max(found) > 900
    assert max(b - a for a, b in zip(sorted(found), sorted(found)[1:], strict=False)) < 250


def test_a_target_is_as_long_as_its_source() -> None:
    found = varying_lengths.earlier(job(train__sequences="dynamic"), {"b": 8, "s": 400, "t": 100})
    assert all(abs(each["s"] - 4 * each["t"]) <= 4 for each in found)


@pytest.mark.parametrize("fields", [{}, {"train__sequences": "exact"}, {"train__sequences": "packed"}])
def test_where_nothing_says_that_they_vary_they_do_not(fields: dict[str, object]) -> None:
    assert varying_lengths.earlier(job(**fields), {"b": 8, "s": 1000}) == ()


def test_images_have_no_lengths() -> None:
    assert varying_lengths.earlier(job(train__sequences="dynamic"), {"b": 8, "n": 196}) == ()
    assert varying_lengths.earlier(job(train__sequences="dynamic", train__image_size=224), {"b": 8, "t": 77}) == ()


def test_a_new_longest_batch_leaves_the_blocks_of_shorter_ones() -> None:
    """The mechanism, by hand: a block of 40 MiB does not serve a request of 50 MiB."""
    allocator = CachingAllocator()
    for size in (30, 40, 50):
        allocator.free(allocator.malloc(size * 2**20))
    assert allocator.peak_allocated == 50 * 2**20
    assert allocator.peak_reserved == (30 + 40 + 50) * 2**20


def test_reserved_memory_grows_and_allocated_does_not() -> None:
    even, mixed = estimated(job(train__sequences="exact")), estimated(job(train__sequences="dynamic"))
    assert mixed.reserved.expected > 1.2 * even.reserved.expected
    assert mixed.reserved.high > mixed.reserved.expected > mixed.reserved.low
    assert sum(mixed.breakdown.values()) == mixed.process.expected


@pytest.fixture
def as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths that are not stretched: what effects do to an interval."""
    monkeypatch.setattr(intervals, "factors", lambda *_: intervals.Factors())


@pytest.mark.usefixtures("as_they_are")
def test_where_samples_are_cut_only_the_high_end_grows() -> None:
    unsaid, cut = estimated(job()), estimated(job(train__sequences="bound"))
    assert cut.reserved.expected == unsaid.reserved.expected
    assert cut.reserved.low == unsaid.reserved.low
    assert cut.reserved.high > unsaid.reserved.high


@pytest.mark.usefixtures("as_they_are")
@pytest.mark.parametrize("sequences", ["dynamic", "bound"])
def test_what_is_cached_never_makes_a_job_exceed_its_card(sequences: str) -> None:
    need = estimated(job()).process
    room = {"machine.gpu_memory": need.high + GIB // 4}
    found = estimated(job(train__sequences=sequences, **room))
    assert found.verdict == "fits"
    assert found.process.high <= need.high + GIB // 4


def test_an_interval_stays_in_order() -> None:
    steady = Interval(90, 100, 110)
    for varied in (80, 100, 150, 10**6):
        for room in (50, 105, 200):
            for dynamic in (False, True):
                found = varying_lengths.interval(steady, varied, room, dynamic)
                assert found.low <= found.expected <= found.high
                assert found.high <= max(steady.high, room)
                assert found.expected >= steady.expected


def test_one_growing_segment_leaves_less() -> None:
    plain = estimated(job(train__sequences="dynamic"))
    grown = estimated(job(train__sequences="dynamic", train__allocator__expandable_segments=True))
    assert grown.reserved.expected < plain.reserved.expected


@pytest.mark.parametrize(("sequences", "least"), [("dynamic", "expected"), ("bound", "high")])
def test_on_a_full_gpu_nothing_is_replayed(sequences: str, least: str) -> None:
    """Whatever the replay gave, the interval would be the same: only room that is left can be filled."""
    prepared = prepare(job(train__sequences=sequences), GPU)
    assert not isinstance(prepared, Unknown)
    steady = Interval(90, 100, 110)
    room = getattr(steady, least)
    for varied in (80, 150, 10**6):
        assert varying_lengths.interval(steady, varied, room, sequences == "dynamic") == steady

    def never(one: PreparedJob, earlier: Sequence[Mapping[str, int]]) -> Interval:
        raise AssertionError("replayed")

    effect = varying_lengths.VaryingLengths()
    assert effect.reserved(prepared, steady, Again(never, room)) == steady
    with pytest.raises(AssertionError, match="replayed"):
        effect.reserved(prepared, steady, Again(never, room + 1))
