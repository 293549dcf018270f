"""Search spaces judged by corners, against walking through all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations, product
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from small_spaces import SIZES, box, device, full, host_law, law, points, study, verdict_at

from preflight.space.grid import Side
from preflight.space.jobs import JobMaker
from preflight.space.judge import judge
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Choices, Const, Op, Range, Ref, Unbounded

BATCHES = (8, 64, 16, 32)


def small(**changes: object) -> Box:
    return box(
        {
            "batch": (Choices(BATCHES), "train.batch_size"),
            "length": (Range(128, 512, 128), "train.seq_len"),
            "model": (Choices(("small", "large")), "model.name"),
            "lr": (Choices((0.1, 0.2, 0.3)), None),
        }
    )


def test_axes_that_feed_nothing_are_not_counted() -> None:
    found = judge(study(small()), full(10**9), device(10**9))
    assert found.combinations == 32
    assert found.counts.fits == 32
    assert found.counts.exact
    assert found.boxes[0].safe is None
    assert found.boxes[0].unsafe_values == {}


def test_the_worst_combination() -> None:
    found = judge(study(small()), full(40_000), device(40_000))
    assert found.worst.assignment == {"batch": 64, "length": 512, "model": "large"}
    assert found.worst.job.train.batch_size == 64
    assert found.worst.job.model.name == "large"


def test_nothing_fits() -> None:
    found = judge(study(small()), full(10), device(10))
    assert (found.counts.fits, found.counts.unsafe) == (0, 32)
    assert found.boxes[0].safe is None
    assert set(found.boxes[0].unsafe_values) == {"batch", "length", "model"}


def test_per_model() -> None:
    found = judge(study(small()), full(20_000), device(20_000))
    by_model = {one.value: one for one in found.boxes[0].by_model}
    assert set(by_model) == {"small", "large"}
    assert by_model["small"].counts.fits > by_model["large"].counts.fits > 0
    assert by_model["large"].safe is not None
    assert "model" not in by_model["large"].safe.dropped


def test_values_that_fit_nowhere() -> None:
    found = judge(study(small()), full(9_000), device(9_000))
    assert found.boxes[0].unsafe_values == {"batch": (64,)} or 64 in found.boxes[0].unsafe_values["batch"]
    for value in found.boxes[0].unsafe_values["batch"]:
        fits = [p for p in points(small()) if p["batch"] == value and verdict_at(small(), p, 9_000) == "fits"]
        assert not fits


def test_a_single_job_takes_its_verdict_from_the_full_estimate() -> None:
    one = box({}, train__batch_size=Const(4))
    assert judge(study(one), full(10**6)).counts.fits == 1
    assert judge(study(one), full(100)).counts.exceeds == 1
    assert judge(study(one), full(None)).counts.unknown == 1


def test_an_unknown_model_is_unknown_not_safe() -> None:
    space = box(
        {
            "batch": (Choices(BATCHES), "train.batch_size"),
            "model": (Choices(("small", "strange")), "model.name"),
        }
    )
    found = judge(study(space), full(10**9), device(10**9))
    assert (found.counts.fits, found.counts.unknown) == (4, 4)


def test_a_host_that_is_known_does_not_vouch_for_an_unknown_device() -> None:
    space = box({"model": (Choices(("small", "strange")), "model.name")}, train__batch_size=Const(1))
    found = judge(study(space), full(10**9), device(10**9), Side(host_law, 100))
    assert (found.counts.fits, found.counts.unknown) == (1, 1)


def with_host(capacity: int, limit: int) -> Callable[[Job], Estimates]:
    """Both sides; the small model's loaders take 80, those of the large one nothing."""
    device_of = full(capacity)

    def estimate(job: Job) -> Estimates:
        size = 80 if job.model.name == "small" else 0
        per_node = Interval(size, size, size)
        host = HostEstimate(per_node, {}, limit, "memory_limit", per_node.verdict(limit))
        return replace(device_of(job), host=host)

    return estimate


def test_the_worst_is_one_that_exceeds_before_one_that_takes_more_of_the_gpu() -> None:
    space = box({"model": (Choices(("large", "small")), "model.name")}, train__batch_size=Const(1))
    host = Side(lambda job: (80, 80) if job.model.name == "small" else (0, 0), 50)
    found = judge(study(space), with_host(10**9, 50), device(10**9), host)
    assert found.worst.assignment == {"model": "small"}
    assert (found.counts.fits, found.counts.exceeds) == (1, 1)
    boxes = [box({}, model__name=Const(name), train__batch_size=Const(1)) for name in ("large", "small")]
    assert judge(study(*boxes), with_host(10**9, 50), device(10**9), host).worst.job.model.name == "small"


def unsure_of(least: int | None, capacity: int) -> tuple[Callable[[Job], Estimates], Side]:
    """Models nobody has a bound for take so many bytes at the least, or nobody knows."""
    known = full(capacity)

    def estimate(job: Job) -> Estimates:
        if job.model.name in SIZES or least is None or least <= capacity:
            return known(job)
        at_least = Interval(least, least, least)
        tiers = (at_least, at_least, at_least, at_least)
        return Estimates(
            DeviceEstimate(*tiers, "optimizer", "", {}, {}, None, capacity, "exceeds", lower_bound=True), None
        )

    def bytes_of(job: Job) -> int | None:
        found = estimate(job).device
        return found.process.expected if found is not None and found.verdict == "exceeds" else None

    return estimate, Side(law, capacity, bytes_of)


@pytest.mark.parametrize(("least", "exceeds"), [(None, 0), (500, 0), (2 * 10**6, 4)])
def test_what_no_bound_knows_is_judged_by_what_it_takes_at_the_least(least: int | None, exceeds: int) -> None:
    space = box(
        {
            "batch": (Choices(BATCHES), "train.batch_size"),
            "model": (Choices(("small", "strange")), "model.name"),
        }
    )
    estimate, side = unsure_of(least, 10**6)
    found = judge(study(space), estimate, side)
    assert (found.counts.fits, found.counts.exceeds, found.counts.unknown) == (4, exceeds, 4 - exceeds)
    assert (found.worst.assignment["model"] == "strange") is bool(exceeds)


def test_counts_say_of_the_worst_what_its_full_estimate_says() -> None:
    """A bound that knows nothing, or too little: one combination at least is what the full estimate says."""
    space = box({"batch": (Choices(BATCHES), "train.batch_size")}, model__name=Const("small"))
    for side in (Side(lambda job: None, 100), Side(lambda job: (1, 1), 100)):
        found = judge(study(space), full(100), side)
        assert (found.counts.exceeds, found.counts.exact) == (1, False)


def test_without_a_gpu_the_host_alone_is_judged() -> None:
    space = box({"workers": (Choices((1, 50)), "data.workers")}, train__batch_size=Const(1))
    found = judge(study(space), full(None), device(None), Side(host_law, 40))
    counts = found.counts
    assert (counts.fits, counts.unknown, counts.exceeds) == (0, 1, 1)  # nobody compared it with a GPU
    assert found.boxes[0].safe is not None
    assert found.boxes[0].safe.keep == {"workers": (1,)}


def test_an_unbounded_axis_makes_count_and_worst_unknown() -> None:
    space = box({"batch": (Unbounded("normal"), "train.batch_size")})
    found = judge(study(space), full(10**9), device(10**9))
    assert found.combinations is None
    assert not found.counts.exact
    assert found.counts.fits == 0
    assert found.worst.job.train.batch_size is None


def test_a_continuous_axis_is_judged_at_its_worst_corner() -> None:
    space = box(
        {"batch": (Range(1, 64, None, integer=False), {"train.batch_size": Op("int", (Ref("batch"),))})},
        train__seq_len=Const(10),
    )
    found = judge(study(space), full(400), device(400))
    assert found.combinations is None
    assert found.worst.job.train.batch_size == 64
    safe = found.boxes[0].safe
    assert safe is not None
    assert safe.keep["batch"][0] == 1
    assert 1 < float(str(safe.keep["batch"][1])) < 64


def test_a_falling_axis_is_turned_round() -> None:
    batch = Op("//", (Const(512), Ref("parts")))
    space = box({"parts": (Choices((1, 2, 4, 8)), {"train.batch_size": batch})}, train__seq_len=Const(10))
    found = judge(study(space), full(2_000), device(2_000))
    assert found.worst.assignment == {"parts": 1}
    safe = found.boxes[0].safe
    assert safe is not None
    assert safe.keep == {"parts": (8,)}
    assert safe.dropped == {"parts": (1, 2, 4)}


def test_an_axis_that_moves_both_ways_is_walked_through() -> None:
    fields = {"train.batch_size": Ref("b"), "train.seq_len": Op("-", (Const(100), Ref("b")))}
    space = box({"b": (Choices((10, 50, 90)), fields)})
    found = judge(study(space), full(2_500), device(2_500))
    assert found.worst.assignment == {"b": 50}
    assert (found.counts.fits, found.counts.exceeds) == (2, 1)


CONSTRAINED = {"cap": "batch * length <= 4096"}


def test_constraints_come_first() -> None:
    found = judge(study(small()), full(10**6), device(300_000), constraints={"none": "batch >= 1"})
    free = judge(study(small()), full(20_000), device(20_000)).boxes[0].safe
    tied = judge(study(small()), full(20_000), device(20_000), constraints={"long": "length >= 256"}).boxes[0].safe
    assert found.counts.fits == 32
    assert free is not None
    assert tied is not None
    assert tied.keep["length"][0] == 256
    assert tied.combinations <= free.combinations


def test_a_constraint_over_two_axes() -> None:
    space = box(
        {
            "vocab": (Choices((100, 1000, 10_000)), "train.vocab_size"),
            "d": (Choices((5, 50, 500)), None),
            "batch": (Choices((1, 2, 4)), "train.batch_size"),
        }
    )
    found = judge(study(space), full(15_000), device(15_000), constraints={"room": "vocab >= d * 2 + 1"})
    safe = found.boxes[0].safe
    assert safe is None or all(int(str(v)) >= 1001 for v in safe.keep["vocab"])


def brute_force(space: Box, capacity: int) -> int:
    """The size of the largest box: subsets of unordered axes times prefixes of ordered ones, all of it fitting."""
    fits = {tuple(p.values()) for p in points(space) if verdict_at(space, p, capacity) == "fits"}
    options = []
    for axis in space.memory_axes:
        assert isinstance(axis.domain, Choices)
        values = axis.domain.values
        options.append([c for n in range(1, len(values) + 1) for c in combinations(values, n)])
    best = 0
    for kept in product(*options):
        every = list(product(*kept))
        if len(every) > best and all(one in fits for one in every):
            best = len(every)
    return best


NUMBERS = st.lists(st.integers(1, 60), min_size=1, max_size=4, unique=True).map(tuple)


@settings(max_examples=60)
@given(
    NUMBERS,
    NUMBERS,
    st.sampled_from([("small",), ("small", "large"), ("large", "small", "other")]),
    st.integers(50, 9000),
)
def test_counts_and_safe_boxes_are_those_of_a_walk(
    batches: tuple[int, ...], lengths: tuple[int, ...], models: tuple[str, ...], capacity: int
) -> None:
    space = box(
        {
            "batch": (Choices(batches), "train.batch_size"),
            "length": (Choices(lengths), "train.seq_len"),
            "model": (Choices(models), "model.name"),
        }
    )
    walked = Counter(verdict_at(space, p, capacity) for p in points(space))
    found = judge(study(space), full(capacity), device(capacity))
    counts = found.counts
    assert counts.exact
    assert {"fits": counts.fits, "at-risk": counts.at_risk, "exceeds": counts.exceeds, "unknown": counts.unknown} == {
        name: walked[name] for name in ("fits", "at-risk", "exceeds", "unknown")
    }
    best = brute_force(space, capacity)
    safe = found.boxes[0].safe
    if safe is not None:
        assert safe.combinations == best
        kept = [p for p in points(space) if all(p[name] in values for name, values in safe.keep.items())]
        assert len(kept) == best
        assert all(verdict_at(space, p, capacity) == "fits" for p in kept)
    elif counts.unsafe:
        assert best == 0


def test_ties_keep_the_larger_model_then_the_longer_length() -> None:
    space = box({"model": (Choices(("small", "large")), "model.name"), "batch": (Choices((1, 2)), "train.batch_size")})
    safe = judge(study(space), full(365), device(365)).boxes[0].safe
    assert safe is not None
    assert safe.keep == {"model": ("small", "large"), "batch": (1,)}
    lengths = box(
        {"batch": (Choices((1, 2)), "train.batch_size"), "length": (Choices((10, 20)), "train.seq_len")},
    )
    safe = judge(study(lengths), full(300), device(300)).boxes[0].safe
    assert safe is not None
    assert safe.keep == {"batch": (1,), "length": (10, 20)}


@pytest.mark.parametrize("size", [1_000, 31_623])
def test_large_spaces_are_not_walked_through(size: int) -> None:
    space = box(
        {
            "batch": (Range(1, size, 1), "train.batch_size"),
            "length": (Range(1, size, 1), "train.seq_len"),
        }
    )
    start = process_time()
    found = judge(study(space), full(10**6), device(10**6))
    assert process_time() - start < 3.0
    counts = found.counts
    assert counts.fits + counts.at_risk + counts.exceeds + counts.unknown == size * size
    assert counts.unknown < size * size / 20
    safe = found.boxes[0].safe
    assert safe is not None
    assert safe.combinations > 416_000


def test_constrained_points_are_left_out_of_the_safe_box_only() -> None:
    found = judge(study(small()), full(10**5), device(50_000), constraints=CONSTRAINED)
    assert found.counts.fits + found.counts.unsafe == 32
    safe = found.boxes[0].safe
    assert safe is not None
    assert all(int(str(b)) * int(str(n)) <= 4096 for b in safe.keep["batch"] for n in safe.keep["length"])


@pytest.mark.parametrize(("times", "most"), [(1.5, 190), (1.0, 50)])
def test_with_the_worst_values_only_what_fits_is_asked(times: float, most: int) -> None:
    """Which of the others exceed is not asked again; where nothing needs more, a block that fits is asked once."""
    asked: list[Job] = []

    def worst(job: Job) -> tuple[int, int] | None:
        asked.append(job)
        found = law(job)
        return None if found is None else (int(found[0] * times), int(found[1] * times))

    space = box(
        {"batch": (Range(1, 50, 1), "train.batch_size"), "length": (Range(1, 50, 1), "train.seq_len")},
        model__name=Const("small"),
    )
    limit = 2_000
    found = judge(study(space), full(limit), device(limit), doubted=(Side(worst, limit), None)).counts
    jobs = (JobMaker(space).at(point).job for point in points(space))
    needs = [need[1] for need in map(law, jobs) if need is not None]
    assert found.fits == sum(int(need * times) <= limit for need in needs)
    assert found.fitting == sum(need <= limit for need in needs)
    assert len(asked) <= most
