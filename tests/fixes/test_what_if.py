"""What an edit could change, and the job that it leaves."""

from __future__ import annotations

import pytest
from cases import bounds_of, case, origin

from preflight.fixes.what_if import changed
from preflight.vocabulary.values import Const, Expr, Op


@pytest.mark.parametrize("derived", [Op("*", (Const(16, origin(1)), Const(2)), origin(1)), Const(32, origin(1))])
def test_fields_derived_from_the_same_text_follow(derived: Expr) -> None:
    text = Const(16, origin(1))
    fields = {"data.workers": text, "data.validation_workers": derived}
    after = changed(case(fields), {"data.workers": 8})
    assert (after.data.workers, after.data.validation_workers) == (8, 16)
    assert bounds_of(fields)["data.validation_workers"].origin == origin(1)
