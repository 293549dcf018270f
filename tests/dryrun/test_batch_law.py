"""Tapes of several sizes, and the run that confirms their law or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from preflight.dryrun.batch_law import FoundLaw, NoLaw, law, lengths_to_try, sizes_to_try
from preflight.dryrun.process import NoAnswer
from preflight.dryrun.report_of_process import RunReport, read
from preflight.engine.target import gpu_named
from preflight.memory.device import recorded
from preflight.vocabulary.job import Job

MIB = 2**20
PLACES = [["load", "", "", "/w/a.py:1"], ["forward", "net", "", "/w/a.py:2"], ["backward", "net", "", "/w/a.py:2"],
          ["validation", "net", "", "/w/a.py:9"]]  # fmt: skip


def run_of(batch: int, per_sample: int = 3 * MIB, extra: int = 0, **more: Any) -> RunReport:
    """Weights, an activation for each sample, a gradient; backward frees the activation."""
    raw = {
        "end": "finished", "steps": [2], "trained": True, "validated": True, "places": PLACES,
        "sizes": [64 * MIB, batch * per_sample + extra, 64 * MIB, -2, MIB], "at": [0, 1, 2, 2, 1],
        "kinds": {"0": "weights", "2": "gradients"},
    }  # fmt: skip
    return read({**raw, **more})


def law_of(own: int, runs: Mapping[int, RunReport], length: int | None = None) -> FoundLaw:
    return law(own, length, runs[own], lambda batch, _: runs[batch], "/w")


NONE: dict[str, dict[int, RunReport]] = {
    "another number of tensors": {8: run_of(8), 16: run_of(16, sizes=[1, 2], at=[0, 1]), 24: run_of(24)},
    "another place": {8: run_of(8), 16: run_of(16, at=[0, 2, 2, 2, 1]), 24: run_of(24)},
    "another order of ends": {
        8: run_of(8),
        16: run_of(16, sizes=[64 * MIB, 48 * MIB, 64 * MIB, -1, MIB]),
        24: run_of(24),
    },
    "another third": {8: run_of(8), 16: run_of(16), 24: run_of(24, extra=2 * MIB)},
}


@pytest.mark.parametrize("kind", NONE)
def test_no_law(kind: str) -> None:
    with pytest.raises(NoLaw):
        law_of(8, NONE[kind])


def test_no_law_if_a_run_has_no_answer() -> None:
    def again(batch: int, length: int | None) -> RunReport:
        raise NoAnswer("the program failed")

    with pytest.raises(NoLaw, match="batch 16 has no answer: the program failed"):
        law(8, None, run_of(8), again, "/w")


def test_a_law_at_other_batches() -> None:
    found = law_of(8, {8: run_of(8), 16: run_of(16), 24: run_of(24)}).law
    for batch in (1, 8, 100):
        assert found.at(batch).events == type(found.at(batch).events)(run_of(batch).events)
    assert [one for one, _ in found.runs] == [8, 16, 24]
    assert found.why_not(16 * 24, None) == ""
    assert "more than 16 times" in found.why_not(16 * 24 + 1, None)
    assert found.why_not(8, 512) == "it has no law over the length"


# --- lengths ---------------------------------------------------------------------------------------------------------


def of_length(term: Callable[[int, int], int]) -> Callable[[int, int | None], RunReport]:
    """Runs of a program whose activation has this size, of length 128 if no other is asked."""

    def run(batch: int, length: int | None) -> RunReport:
        return run_of(batch, 0, term(batch, length or 128))

    return run


@pytest.mark.parametrize(
    "term",
    [
        lambda b, s: 4096 * b * s,
        lambda b, s: 512 * b * s * s,
        lambda b, s: 1000 * b * s + 77_000 * b + 900 * s + MIB,
        lambda b, s: MIB * b,
    ],
    ids=["tokens", "scores", "both and constants", "none"],
)
def test_a_law_over_the_length(term: Callable[[int, int], int]) -> None:
    again = of_length(term)
    found = law(8, 128, again(8, None), again, "/w")
    assert found.no_lengths == ""
    for batch, length in ((8, 128), (16, 64), (40, 192), (3, 256)):
        assert found.law.at(batch, length).events[1] == term(batch, length)
    assert found.law.why_not(8, 256) == ""
    assert "too far" in found.law.why_not(8, 257)
    assert "too far" in found.law.why_not(8, 31)


def test_a_square_beside_a_line_is_not_confirmed() -> None:
    """Two lengths cannot tell a sum of both from a line: the third run says that it is none."""
    again = of_length(lambda b, s: b * (512 * s * s + 16_384 * s))
    found = law(8, 128, again(8, None), again, "/w")
    assert found.law.lengths is None
    assert "foretell" in found.no_lengths


@pytest.mark.parametrize(
    ("own", "others"), [(128, (64, 96)), (100, (50, 75)), (512, (256, 384)), (2, None), (32, None)]
)
def test_lengths_to_try(own: int, others: tuple[int, int] | None) -> None:
    assert lengths_to_try(own) == others


# --- the window of the second step -----------------------------------------------------------------------------------


def stepping(batch: int, validates: bool, peak: int = 0) -> RunReport:
    """Two steps; validation comes before the second in some runs. `peak`: bytes of it."""
    between = [peak or MIB, -4] if validates else []
    step = [batch * MIB, 2 * MIB]
    sizes: list[int] = [64 * MIB, *step]
    at = [0, 1, 2]
    sizes += [-2]
    at += [2]
    marks: list[list[Any]] = [[len(sizes), "stepped"]]
    if validates:
        sizes, at = [*sizes[:3], sizes[3], peak or MIB, -5], [*at, 3, 3]
        marks = [[len(sizes), "stepped"]]
    first = len(sizes)
    sizes += [batch * MIB, MIB, -1 - first]
    at += [1, 2, 2]
    marks.append([len(sizes), "stepped"])
    assert between is not None
    return run_of(batch, sizes=sizes, at=at, marks=marks, kinds={"0": "weights"})


def test_runs_that_differ_before_the_second_step_have_a_law_of_it() -> None:
    runs = {8: stepping(8, True), 16: stepping(16, False), 24: stepping(24, True)}
    found = law_of(8, runs).law
    assert found.second_step
    assert recorded.peak(found.at(40).events).bytes == (64 + 40 + 2 + 1) * MIB
    assert "other moments" in found.why_not(4, None)


def test_no_law_of_the_second_step_if_another_moment_takes_more() -> None:
    runs = {8: stepping(8, True, 512 * MIB), 16: stepping(16, False), 24: stepping(24, True, 512 * MIB)}
    with pytest.raises(NoLaw, match="do not allocate the same tensors"):
        law_of(8, runs)


# --- the largest batch -----------------------------------------------------------------------------------------------


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    gpu = gpu_named("RTX 4090", "--gpu")
    found = law_of(800, {800: run_of(800), 1200: run_of(1200), 1600: run_of(1600)}).law
    largest = found.largest(Job(), gpu)
    assert largest is not None
    assert recorded.estimate(found.at(largest), Job(), gpu).verdict == "fits"
    assert recorded.estimate(found.at(largest + 1), Job(), gpu).verdict != "fits"


def test_a_law_does_not_reach_far() -> None:
    """A batch that nobody ran is named only near those that were."""
    found = law_of(1, {1: run_of(1, 1024), 2: run_of(2, 1024), 3: run_of(3, 1024)}).law
    assert found.largest(Job(), gpu_named("RTX 4090", "--gpu")) is None


@pytest.mark.parametrize(
    ("own", "others"), [(1, (2, 3)), (2, (3, 4)), (7, (10, 14)), (8, (16, 24)), (64, (96, 128)), (100, (150, 200))]
)
def test_sizes_to_try(own: int, others: tuple[int, int]) -> None:
    assert sizes_to_try(own) == others
