"""The host law against every measured point that is committed: what the documentation claims stays true."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.accuracy.host import plan, table

HERE = Path(table.__file__).parent


@pytest.fixture(scope="module")
def lines() -> list[table.Line]:
    rows = [json.loads(line) for line in (HERE / "points.jsonl").read_text().splitlines()]
    rows = [row for row in rows if not row["measured"]["killed"]]
    loaders = [row for row in rows if row["what"] == "loader"] + table.earlier.rows(HERE / "earlier.jsonl")
    return list(table.lines([*loaders, *(row for row in rows if row["what"] != "loader")]))


def test_the_law_explains_the_points(lines: list[table.Line]) -> None:
    claimed = [line for line in lines if line.group != table.LONG]
    errors = [abs(line.error) for line in claimed]
    assert statistics.median(errors) < 0.03
    assert sum(error > 0.1005 for error in errors) <= 1
    judged = [line.inside for line in claimed if line.inside is not None]
    assert judged.count(True) >= 0.95 * len(judged)


def test_long_runs_are_shown_and_not_claimed(lines: list[table.Line]) -> None:
    grown = [line for line in lines if line.group == table.LONG]
    assert grown
    assert all(line.error < 0 for line in grown)


def test_every_planned_point_has_a_name_of_its_own() -> None:
    names = Counter(point["id"] for point in plan.points())
    assert max(names.values()) == 1
    assert 5 <= len(plan.points(quick=True)) <= 10
