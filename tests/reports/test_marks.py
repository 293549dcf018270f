"""Marks of figures: a lower bound, and what fits only by an assumption, never look like what is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from outcomes import GIB, device, outcome, study

from preflight.editor.beside import details, lenses, need
from preflight.engine.score.columns import of_estimates
from preflight.reports import html
from preflight.reports.drawings import drawn_map
from preflight.reports.estimate import render
from preflight.reports.figures import mark
from preflight.reports.style import Look
from preflight.reports.svg import text_of
from preflight.vocabulary.estimates import Estimates, FrontierRow, Interval
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.verdicts import Counts

ASSUMED = (Assumption("train.batch_size", 8, Standing.assumed, "so"),)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"lower_bound": True}, ">="),
        ({"lower_bound": True, "verdict": "exceeds"}, "!>="),
        ({"verdict": "fits-if"}, "*"),
        ({"verdict": "at-risk"}, "~"),
        ({"verdict": "fits"}, ""),
        ({}, "?"),
        ({"verdict": "at-risk", "assumptions": ASSUMED}, "!*"),
        ({"verdict": "unknown", "assumptions": ASSUMED, "lower_bound": True}, "!*>="),
        ({"capacity": None}, ""),
        ({"capacity": None, "assumptions": ASSUMED}, "*"),
    ],
)
def test_figure_shows_how_it_is_known_in_the_map_the_page_and_the_editor(
    changes: dict[str, object], shown: str
) -> None:
    found = replace(device(8 * GIB), verdict="unknown")
    found = replace(found, **changes)  # type: ignore[arg-type]
    job = build({"model.name": "bert-base-uncased", "train.batch_size": 1})

    def seen(asked: Job) -> Estimates:
        """Other at each length, so that the map has columns."""
        size = asked.train.seq_len or 0
        return Estimates(replace(found, process=Interval(size, 8 * GIB + size, size)), None)

    heading, _, row, *_ = drawn_map(job, seen, "T4", Look())
    assert row.split()[1] == f"{shown}8.0"
    assert all(sign in heading for sign in (">=", "*", "~", "?", "!") if sign in shown)
    assert mark(found) == shown
    assert need(found).startswith(f"{shown}8.0")
    assert ("at least 8 GiB" in details(found)) is found.lower_bound
    estimates = Estimates(found, None)
    page = html.of_estimate(job, estimates, "T4", seen, html.Beside(), (), ())
    assert f">{text_of(shown)}8.0<" in page


def test_row_of_batch_has_the_mark() -> None:
    found = Estimates(replace(device(8 * GIB), lower_bound=True, verdict="unknown"), None)
    assert of_estimates(found, build({"model.name": "bert-base-uncased"}), ())["mark"] == ">="


def test_largest_batch_that_is_not_known_is_not_none() -> None:
    job = build({"model.name": "bert-base-uncased"})
    late = replace(device(40 * GIB), find_largest_batch=lambda: None)
    rows = [FrontierRow(128, None, ((1, late),)), FrontierRow(256, 0, ((1, late),)), FrontierRow(512, 3, ((1, late),))]
    lines = render(job, Estimates(late, None), "T4", "", rows, None, Look()).splitlines()
    assert [line.split()[1] for line in lines if line.split()[:1] in (["128"], ["256"], ["512"])] == ["?", "none", "3"]
    assert "no batch size fits" not in lines


def test_lens_counts_what_fits_only_if_assumptions_hold(tmp_path: Path) -> None:
    found = study(Estimates(device(8 * GIB), None))
    counts = Counts(fits=1, fits_if=2, exceeds=3, unknown=4)
    search = replace(found, space=replace(found.space, counts=counts))
    [lens] = lenses(outcome(tmp_path, (), (search,)))
    assert "3 of 3 combinations do not fit, 2 fit only if assumptions hold, 4 unknown" in lens.label
