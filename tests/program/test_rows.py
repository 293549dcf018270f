"""Rows that read calls: what must say nothing, then what is read, with its place and its rank."""

from __future__ import annotations

import ast

import pytest
from msgspec import ValidationError, convert

from preflight.program.rows import Sheet, TablePart, read_call
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.values import Const, Expr, Origin, Ref, Span

CALL, WRITTEN = Origin("train.py", Span(0, 9)), Origin("train.py", Span(4, 5))


def call(name: str = "library.Config", *args: Expr, function: str | None = None, **kwargs: Expr) -> CallRecord:
    return CallRecord(
        name, None, name.rpartition(".")[2], args, kwargs, {}, "train.py", ast.Name("x"), CALL, function=function
    )


def sheet(row: dict[str, object], **more: object) -> Sheet:
    part = {"calls": ["Config"], "signature": ["first", "second"], "rows": [row], **more}
    return convert({"home": "program", "parts": [part]}, Sheet)


SIZE = {"field": "train.batch_size", "key": "second"}
FOUR = Const(4, WRITTEN)


@pytest.mark.parametrize(
    ("row", "more", "record"),
    [
        (SIZE, {}, call("library.Other", second=FOUR)),
        (SIZE, {"modules": ["another."]}, call(second=FOUR)),
        (SIZE, {"training": True}, call(function="Model.validate", second=FOUR)),
        (SIZE, {"given": ["first"]}, call(second=FOUR)),
        (SIZE, {}, call(second=Const(None, WRITTEN))),
        (SIZE, {}, call("library.Config", FOUR)),
    ],
)
def test_calls_that_say_nothing(row: dict[str, object], more: dict[str, object], record: CallRecord) -> None:
    assert read_call(sheet(row, **more), record) == []


@pytest.mark.parametrize(
    ("row", "record", "expr", "rank", "place"),
    [
        (SIZE, call(second=FOUR), FOUR, Rank.literal, WRITTEN),
        (SIZE, call("library.Config", Const(1), FOUR), FOUR, Rank.literal, WRITTEN),
        (SIZE, call(second=Ref("batch")), Ref("batch"), Rank.read, None),
        ({**SIZE, "default": 2}, call(), Const(2), Rank.default, None),
        ({**SIZE, "default": 2}, call(second=Const(None, WRITTEN)), Const(2), Rank.default, None),
        ({**SIZE, "else": 2}, call(), Const(2, CALL), Rank.literal, CALL),
        ({**SIZE, "else": 2}, call(second=FOUR), FOUR, Rank.literal, WRITTEN),
        ({"field": "train.compile", "value": True}, call(), Const(True, CALL), Rank.literal, CALL),
        ({"field": "task", "value": "other", "rank": "default"}, call(), Const("other", CALL), Rank.default, CALL),
    ],
)
def test_what_a_call_says(
    row: dict[str, object], record: CallRecord, expr: Expr, rank: Rank, place: Origin | None
) -> None:
    [binding] = read_call(sheet(row), record)
    assert (binding.expr, binding.rank, binding.origin) == (expr, rank, place)


def test_a_part_with_a_key_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValidationError):
        convert({"calls": ["Config"], "positions": ["first"], "rows": []}, TablePart)
