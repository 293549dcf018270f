"""How much of a long table of examples a plain `pytest` tries: .ci/run tries all of them."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest

ALL = os.environ.get("PREFLIGHT_ALL_EXAMPLES") == "1"


def examples(most: int) -> int:
    """For hypothesis' `max_examples`: a quarter in a plain run."""
    return most if ALL else most // 4


def sample(rows: Collection[Any], most: int) -> list[Any]:
    """For `parametrize`: `most` of the rows, evenly from first to last, in every run; the others are marked `slow`."""
    listed = list(rows)
    steps = max(most - 1, 1)
    chosen = {round(index * (len(listed) - 1) / steps) for index in range(min(most, len(listed)))}
    return [row if index in chosen else _slow(row) for index, row in enumerate(listed)]


def _slow(row: Any) -> Any:
    if hasattr(row, "marks"):
        return pytest.param(*row.values, id=row.id, marks=[*row.marks, pytest.mark.slow])
    return pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.slow)
