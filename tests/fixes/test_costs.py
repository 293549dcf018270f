"""What a fix costs in time: only what the table knows, as a range that has a source."""

from __future__ import annotations

import pytest

from preflight.fixes.costs import RECOMPUTED, costs_of
from preflight.vocabulary.findings import Change
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.values import Const, Ref, Value, unknown


def study(*boxes: dict[str, object]) -> Study:
    def bound(name: str, value: object) -> Bound:
        return Bound(name, value if isinstance(value, (Const, Ref)) else Const(value))  # type: ignore[arg-type]

    return Study(
        ("a.sh",), (), tuple(Box({name: bound(name, value) for name, value in fields.items()}) for fields in boxes)
    )


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (Change("train.precision", "bf16-mixed"), {}),
        (Change("train.gradient_checkpointing", False), {}),
        (Change("train.batch_size", 8), {}),
        (Change("train.batch_size", 8), {"train.batch_size": 8}),
        (Change("train.batch_size", 16), {"train.batch_size": 8}),
        (Change("train.batch_size", 0), {"train.batch_size": 8}),
        (Change("train.batch_size", 8), {"train.batch_size": unknown("it depends")}),
        (Change("train.batch_size", 8), {"train.batch_size": Ref("axis")}),
        (Change("train.batch_size", keep=(8,)), {"train.batch_size": 16}),
    ],
)
def test_nothing_is_said_of_what_is_not_known(change: Change, fields: dict[str, object]) -> None:
    assert costs_of([change], study(fields)) == ()


def test_without_a_study_nothing_is_said() -> None:
    assert costs_of([Change("train.gradient_checkpointing", True)], None) == ()


def test_checkpointing_computes_a_forward_again() -> None:
    assert costs_of([Change("train.gradient_checkpointing", True)], study({})) == (RECOMPUTED,)
    assert 1 < RECOMPUTED.low < 4 / 3 < RECOMPUTED.high  # a forward is a third of a step
    assert RECOMPUTED.source


@pytest.mark.parametrize(
    ("field", "old", "new", "factor"),
    [
        ("train.batch_size", 64, 16, 4),
        ("train.batch_size", 48, 32, 1.5),
        ("data.workers", 16, 4, 4),
        ("validation.batch_size", 8, 1, 8),
    ],
)
def test_smaller_takes_at_most_as_many_times_longer(field: str, old: Value, new: Value, factor: float) -> None:
    [cost] = costs_of([Change(field, new)], study({field: old}))
    assert (cost.low, cost.high) == (1, factor)
    assert cost.why
    assert cost.source


def test_the_worst_branch_decides() -> None:
    [cost] = costs_of([Change("train.batch_size", 4)], study({"train.batch_size": 8}, {"train.batch_size": 32}))
    assert cost.high == 8
