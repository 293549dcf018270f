"""Why a value is unknown, what a value stands on, and which of several bindings wins: as data."""

from __future__ import annotations

import pytest

from preflight.vocabulary.reading import Rank
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.study import Bound, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, brief, evaluate, missing, unknown


@pytest.mark.parametrize(
    ("expr", "cause"),
    [
        (Ref("bs"), Cause.not_set),
        (Op("open", (Const("x"),)), Cause.not_read),
        (Op("int", (Const("many"),)), Cause.invalid),
        (unknown("a pattern"), Cause.not_read),
        (unknown("it changes in a loop", cause=Cause.run_time), Cause.run_time),
        (Op("+", (unknown("SLURM sets it", cause=Cause.run_time), Const(1))), Cause.run_time),
    ],
)
def test_an_expression_keeps_the_cause_of_what_it_lacks(expr: Expr, cause: Cause) -> None:
    found = evaluate(expr)
    assert isinstance(found, Unknown)
    assert found.cause is cause


def test_a_name_that_stands_for_itself_cannot_be_computed() -> None:
    found = evaluate(Ref("a"), {"a": Ref("a")})
    assert isinstance(found, Unknown)
    assert found.cause is Cause.not_possible


def test_a_missing_field_is_named_as_data() -> None:
    found = missing("train.image_size", "it decides the number of tiles")
    assert (found.cause, found.fields) == (Cause.not_set, ("train.image_size",))
    assert found.words == "train.image_size is not known (it decides the number of tiles)"


@pytest.mark.parametrize(
    ("bound", "standing"),
    [
        (Bound("train.seq_len", unknown("a pattern")), Standing.unknown),
        (Bound("train.seq_len", Const(None), default=True), Standing.unknown),
        (Bound("train.seq_len", Op("int", (Const("many"),)), setting="length"), Standing.unknown),
        (Bound("train.seq_len", Const(512), setting="length"), Standing.by_name),
        (Bound("train.seq_len", Const(512), default=True, source=Source.library), Standing.default),
        (Bound("train.seq_len", Ref("length"), setting="length"), Standing.by_name),
        (Bound("train.seq_len", Const(512)), Standing.read),
        (Bound("train.seq_len", Const(512), source=Source.command_line), Standing.read),
    ],
)
def test_what_a_value_stands_on(bound: Bound, standing: Standing) -> None:
    assert bound.standing is standing


def test_the_more_a_binding_says_the_higher_its_rank() -> None:
    assert sorted(Rank) == [
        Rank.hint,
        Rank.not_followed,
        Rank.by_name,
        Rank.default,
        Rank.read,
        Rank.literal,
        Rank.mapped,
        Rank.settings,
        Rank.command_line,
    ]


def test_no_internal_text_reaches_a_user() -> None:
    found = evaluate(Op("int", (Const("many"),)))
    assert isinstance(found, Unknown)
    assert found.words == "int of 'many' has no value"
    assert str(found) == "unknown (int of 'many' has no value)"
    assert brief((1, {"a": found})) == "(1, {'a': unknown})"
