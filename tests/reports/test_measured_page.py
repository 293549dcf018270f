"""Recorded runs as a page: what was measured beside what the law said of it."""

from __future__ import annotations

from msgspec.structs import replace
from outcomes import GIB, device

from preflight.reports import measured
from preflight.reports.figures import measured_figure
from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.watched import MeasuredPeak, MeasuredRun

RUN = MeasuredRun(
    "3f2a1b", "2026-01-02 10:11", "oom", "bert batch 8 x 128", "A100, torch 2.7", 9, 61.0,
    (MeasuredPeak("allocated", "forward", 3 * GIB), MeasuredPeak("allocated", "backward", 6 * GIB),
     MeasuredPeak("reserved", "backward", 7 * GIB)),
    {"allocated": Interval(4 * GIB, 5 * GIB, 8 * GIB)}, {"limit": 9 * GIB}, "memory ran out in backward", "1.0",
)  # fmt: skip


def test_a_run_beside_the_law_of_its_time() -> None:
    figure = measured_figure(RUN, device(40 * GIB))
    assert figure is not None
    assert [one.tier for one in figure.tiers] == ["allocated", "reserved"]
    assert [one.share for one in figure.tiers] == [1.2, None]  # a law of then is not filled up with one of now
    assert figure.top == 8 * GIB


def test_a_run_without_a_law_is_beside_the_estimate_unless_that_is_made_of_runs() -> None:
    bare, found = replace(RUN, laws={}), device(40 * GIB)
    figure = measured_figure(bare, found)
    assert figure is not None
    assert figure.tiers[1].law == found.reserved
    for other in (replace(found, recorded=("ran before",)), replace(found, lower_bound=True), None):
        figure = measured_figure(bare, other)
        assert figure is not None
        assert figure.tiers[1].law is None
    assert measured_figure(replace(RUN, peaks=()), found) is None


def test_one_run_and_several() -> None:
    one = measured.render([RUN])
    for part in ("run 3f2a1b of 2026-01-02 10:11: oom after 9 steps", "memory ran out in backward", "6 GiB",
                 "5 GiB (4 GiB to 8 GiB)", "120%", "preflight 1.0, as it was recorded", "inside"):  # fmt: skip
        assert part in one, part
    several = measured.render([RUN, replace(RUN, name="77aa", outcome="completed", died="", peaks=())])
    assert "2 recorded runs" in several
    assert "No peak of a GPU was recorded" in several
    assert "data-filter" in several
    many = measured.render([replace(RUN, name=f"n{at}") for at in range(25)])
    assert many.count("<svg viewBox") == 20
    assert "preflight runs RUN has one" in many
