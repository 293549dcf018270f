"""Literals that would make an expression worth a value: each solution is tried."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.fixes.invert import solutions
from preflight.vocabulary.values import Const, Expr, Op, Origin, Ref, Span, Unknown, Value, evaluate


def literal(value: Value, at: int = 0) -> Const:
    return Const(value, Origin("a.py", Span(at, at + 1)))


def found(expr: Expr, value: Value) -> list[Value]:
    return [new for solution in solutions(expr, value) for _, new in solution]


A = literal(16)


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (Const(16), 8),  # a default that is written nowhere
        (Const(16, Origin("a.py", Span(0, 1), editable=False)), 8),
        (literal(Unknown("why")), 8),
        (Ref("axis"), 8),
        (Op("*", (A, Const(4))), 33),
        (Op("**", (Const(2), literal(6))), 17),
        (Op("//", (Const(512), Ref("axis"))), 8),
        (Op("+", (A, Ref("axis"))), 8),
        (Op("get", (Const({"a": 1}), literal("a"))), 2),
        (Op("if", (Ref("axis"), literal(1), literal(2))), 3),
        (Op("%", (A, Const(7))), 1),
    ],
)
def test_no_way(expr: Expr, value: Value) -> None:
    assert found(expr, value) == []


@pytest.mark.parametrize(
    ("expr", "value", "expected"),
    [
        (A, 8, [8]),
        (literal("16"), 8, [8]),
        (Op("int", (literal("16"),)), 8, [8]),
        (Op("*", (A, Const(4))), 32, [8]),
        (Op("*", (Const(4), A)), 32, [8]),
        (Op("+", (A, Const(1))), 9, [8]),
        (Op("-", (Const(20), A)), 12, [8]),
        (Op("//", (A, Const(4))), 2, [8]),
        (Op("/", (A, Const(4))), 2, [8]),
        (Op("**", (Const(2), literal(6))), 8, [3]),
        (Op("**", (Const(5), literal(2))), 125, [3]),
        (Op("min", (A, Const(64))), 8, [8]),
        (Op("if", (Const(True), literal(1), literal(2))), 3, [3]),
        (Op("if", (Const(False), literal(1), literal(2))), 3, [3]),
        (Op("or", (Const(None), literal(2))), 3, [3]),
        (Op("*", (literal(16), literal(4, 9))), 32, [8, 2]),
        (literal(False), True, [True]),
    ],
)
def test_ways(expr: Expr, value: Value, expected: list[Value]) -> None:
    assert found(expr, value) == expected


def changed(expr: Expr, old: Const, new: Value) -> Expr:
    if expr is old:
        return Const(new)
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(changed(operand, old, new) for operand in expr.operands))
    return expr


NUMBERS = st.integers(1, 64)
LEAVES = st.builds(lambda n, at: literal(n, at), NUMBERS, st.integers(0, 1000)) | NUMBERS.map(Const)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda name, a, b: Op(name, (a, b)), st.sampled_from(["+", "-", "*", "//", "min", "max", "**"]), inner, inner
    ),
    max_leaves=4,
)


@given(EXPRESSIONS, st.integers(1, 4096))
def test_a_solution_solves(expr: Expr, value: int) -> None:
    for solution in solutions(expr, value):
        for old, new in solution:
            assert evaluate(changed(expr, old, new)) == value
