"""The host law against every measured point that is committed: what the documentation claims stays true."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.accuracy.host import draw, plan, table

HERE = Path(table.__file__).parent


ROWS = [json.loads(line) for line in (HERE / "points.jsonl").read_text().splitlines()]
DRAWN = [json.loads(line) for line in (HERE / "drawn.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def lines() -> list[table.Line]:
    rows = [row for row in ROWS if not row["measured"]["killed"]]
    loaders = [row for row in rows if row["what"] == "loader"] + table.earlier.rows(HERE / "earlier.jsonl")
    return [*table.lines([*loaders, *(row for row in rows if row["what"] != "loader")]), *table.bases()]


def test_the_law_explains_the_points(lines: list[table.Line]) -> None:
    errors = [abs(line.error) for line in lines]
    assert statistics.median(errors) < 0.02
    assert sum(error > 0.1 for error in errors) <= 2  # heaps that grew, either way
    assert max(errors) < 0.12
    judged = [line.inside for line in lines if line.inside is not None]
    assert judged.count(True) >= 0.95 * len(judged)


@pytest.mark.parametrize("draw", draw.DRAWS)
def test_the_law_explains_points_drawn_at_random(draw: str) -> None:
    rows = [row for row in DRAWN if row["draw"] == draw and not row["measured"]["killed"]]
    found = list(table.lines(rows))
    errors = [abs(line.error) for line in found]
    assert statistics.median(errors) < 0.03
    assert sum(error <= 0.1 for error in errors) >= 0.88 * len(errors)
    assert sum(line.inside is True for line in found) >= 0.9 * len(found)


def test_a_draw_is_the_same_for_everybody() -> None:
    assert [point["id"] for name in draw.DRAWS for point in draw.points(name)] == [row["id"] for row in DRAWN]


def test_every_planned_point_has_a_name_of_its_own() -> None:
    names = Counter(point["id"] for point in [*plan.points(), *(p for name in draw.DRAWS for p in draw.points(name))])
    assert max(names.values()) == 1
    assert 5 <= len(plan.points(quick=True)) <= 10
