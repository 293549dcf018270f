"""What an edit could change, and the job that it leaves."""

from __future__ import annotations

from functools import partial
from operator import gt

import pytest
from cases import bounds_of, case, origin

from preflight.fixes.what_if import changed, largest
from preflight.vocabulary.values import Const, Expr, Op


@pytest.mark.parametrize("derived", [Op("*", (Const(16, origin(1)), Const(2)), origin(1)), Const(32, origin(1))])
def test_fields_derived_from_the_same_text_follow(derived: Expr) -> None:
    text = Const(16, origin(1))
    fields = {"data.workers": text, "data.validation_workers": derived}
    after = changed(case(fields), {"data.workers": 8})
    assert (after.data.workers, after.data.validation_workers) == (8, 16)
    assert bounds_of(fields)["data.validation_workers"].origin == origin(1)


@pytest.mark.parametrize("good", range(9))
@pytest.mark.parametrize("guess", range(9))
def test_a_wrong_guess_costs_questions_and_changes_nothing(good: int, guess: int) -> None:
    asked: list[int] = []

    def fits(value: int) -> bool:
        asked.append(value)
        return value < good

    found = largest(range(8), fits, lambda value: value < guess)
    assert found == (good - 1 if good else None)
    assert len(asked) <= 2 or guess != good


def test_the_largest_without_a_guess() -> None:
    assert [largest(range(8), partial(gt, good)) for good in (0, 3, 8)] == [None, 2, 7]
