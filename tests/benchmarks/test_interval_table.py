"""The table of interval widths: made from its scores, and what it may and may not follow from."""

from __future__ import annotations

import json

import pytest

from benchmarks.accuracy.intervals import (
    ENOUGH,
    LEAST,
    PAGE,
    Residual,
    calibration,
    factors,
    kinds,
    left_out,
    made,
    neighbours,
    read,
    text,
)
from preflight.memory.device.step import intervals
from preflight.memory.device.step.intervals import Factors, stretched, with_effects
from preflight.vocabulary.estimates import Interval

STEADY, SHARDED = "steady, versions stated", "sharded, versions stated"


def scores(kind: str, source: str, *at: float) -> list[Residual]:
    return [Residual(f"{source}-{n}", source, kind, "reserved", one) for n, one in enumerate(at)]


def test_the_table_and_its_page_are_made_from_the_scores() -> None:
    rows = read()
    found = calibration(rows)
    assert json.loads(intervals.TABLE.read_text(encoding="utf-8")) == found
    assert PAGE.read_text(encoding="utf-8") == text(rows, found) + "\n"


def test_every_kind_of_job_has_factors_in_every_tier() -> None:
    for tier, table in intervals.calibration()["tiers"].items():
        assert list(table) == kinds(), tier
        assert all(one["below"] >= LEAST.below and one["above"] >= LEAST.above for one in table.values())


def test_nine_in_ten_of_a_hundred_runs_are_inside_without_their_source() -> None:
    held = [inside for _, inside in left_out(read())]
    assert len(held) >= 100
    assert 0.88 <= sum(held) / len(held) <= 0.94


def test_a_source_with_many_runs_has_one_vote() -> None:
    many = scores(STEADY, "many", *[0.1] * 100)
    others = [one for name in "abc" for one in scores(STEADY, name, 2.0, -1.5)]
    assert factors([*many, *others]) == Factors(1.5, 2.0)


def test_a_kind_with_few_runs_takes_the_wider_neighbour() -> None:
    steady = [one for name in "abc" for one in scores(STEADY, name, 1.2, -0.9, 0.3)]
    rows = [*steady, *scores(SHARDED, "d", 1.0, -1.9)]
    assert len(steady) >= ENOUGH
    assert made("reserved", STEADY, rows) == Factors(0.9, 1.2)
    assert set(neighbours("reserved", SHARDED, rows)) == {"steady, all tiers", "all"}
    assert made("reserved", SHARDED, rows) == factors(rows) == Factors(1.9, 1.2)
    assert made("reserved", SHARDED, rows[-2:]) is None


def test_as_hard_jobs_of_other_tiers_stand_in_for_a_tier_without_runs() -> None:
    rows = [one for name in "abc" for one in scores(SHARDED, name, 1.0, -1.9, 0.1)]
    assert set(neighbours("process", "sharded, versions not stated", rows)) == {"sharded, all tiers"}
    assert made("process", "sharded, versions not stated", rows) == Factors(1.9, 1.0)


def test_a_source_says_nothing_of_its_own_interval() -> None:
    rows = [one for name in "abc" for one in scores(STEADY, name, 0.6, -0.6, 0.3)]
    assert len(rows) > ENOUGH
    far = scores(STEADY, "far", 5.0)
    assert [inside for _, inside in left_out([*rows, *far])] == [True] * len(rows) + [False]


@pytest.mark.parametrize(
    ("found", "interval"),
    [
        (Interval(95, 100, 130), Interval(90, 100, 130)),  # what was cached is the most that there can be
        (Interval(95, 110, 115), Interval(80, 110, 120)),  # the interval without it reaches further
        (Interval(95, 100, 110), Interval(90, 100, 120)),  # nothing was added
    ],
)
def test_what_effects_add_is_not_stretched(found: Interval, interval: Interval) -> None:
    assert with_effects(Interval(95, 100, 110), found, Factors(2.0, 2.0)) == interval


def test_both_sides_are_stretched_and_the_figure_stays() -> None:
    assert stretched(Interval(90, 100, 120), Factors(2.0, 0.5)) == Interval(80, 100, 110)
    assert stretched(Interval(1, 100, 120), Factors(2.0, 1.0)).low == 0
