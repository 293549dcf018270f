"""The files of public figures: each row is a Job and a counter that is known, and the table has every row."""

from __future__ import annotations

from benchmarks.accuracy.heldout import held, lines, runs, text
from benchmarks.accuracy.score import Score
from benchmarks.accuracy.tool import job_of
from benchmarks.accuracy.truth import TIERS, Inexpressible
from preflight.vocabulary.estimates import Interval


def test_every_row_is_a_job_with_a_figure() -> None:
    rows = list(held())
    assert len(rows) >= 60
    assert len({each.run.id for each in rows}) == len(rows)
    for each in rows:
        assert not isinstance(each.run.fields, Inexpressible)
        job = job_of(each.run.fields)
        assert job.model.name or job.model.target, each.run.id
        assert each.run.quality in ("A", "B", "C"), each.run.id
        assert min(each.run.measured.values()) > 2**28, each.run.id
        assert set(each.run.measured) <= set(TIERS)


def test_a_counter_that_nobody_names_is_not_scored_with_those_that_are_named() -> None:
    unnamed = {each.run.id for each in held() if not each.stated}
    assert unnamed
    assert not unnamed & {run.id for run in runs()}


def test_the_table_has_answers_and_refusals() -> None:
    first, second = [each.run for each in held()][:2]
    tier = next(iter(first.measured))
    scores = [
        Score(first, "preflight", tier, 4 * 2**30, 2 * 2**30, Interval(2**30, 2 * 2**30, 3 * 2**30)),
        Score(second, "preflight", tier, 4 * 2**30, None, None, "no law"),
    ]
    answered, refused = lines(scores, {first.id: False, second.id: True})
    assert answered[2:7] == (f"({tier})", "4.00", "2.00", "-50.0%", "no")
    assert refused[-1] == "no law"
    shown = text(scores, {first.id: True, second.id: True})
    assert first.id in shown
    assert second.id in shown
