"""How expressions move with an axis, against their values."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.space.monotone import direction, increasing, interval
from preflight.vocabulary.values import Const, Expr, Op, Ref, Unknown, evaluate

X, Y = Ref("x"), Ref("y")
KNOWN = {"x": (1.0, 64.0), "y": (2.0, 8.0)}


def op(name: str, *operands: Expr | int) -> Op:
    return Op(name, tuple(Const(o) if isinstance(o, int) else o for o in operands))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (op("%", X, 8), None),
        (op("if", op(">", X, 3), Const(1), Const(2)), None),
        (op("*", op("-", X, 8), Y), 1),
        (op("*", X, op("-", Y, 5)), None),
        (op("get", Const({"1": 2}), X), None),
        (op("-", X, X), None),
        (Const(3), 0),
        (Y, 0),
        (X, 1),
        (op("+", X, 3), 1),
        (op("-", 100, X), -1),
        (op("neg", X), -1),
        (op("*", X, 4), 1),
        (op("*", X, -4), -1),
        (op("//", 512, X), -1),
        (op("//", X, 4), 1),
        (op("min", X, 16), 1),
        (op("max", op("neg", X), -3), -1),
        (op("**", 2, X), 1),
        (op("int", op("*", X, Y)), 1),
        (op("if", op(">", Y, 3), X, op("*", X, 2)), 1),
    ],
)
def test_direction(expr: Expr, expected: int | None) -> None:
    assert direction(expr, "x", KNOWN) == expected


@pytest.mark.parametrize("field", ["train.gradient_checkpointing", "parallel.nodes", "model.name", "train.precision"])
def test_fields_without_an_order(field: str) -> None:
    assert not increasing(field)


@pytest.mark.parametrize("field", ["train.batch_size", "model.config.n_layer", "train.copies.ema", "data.workers"])
def test_fields_that_memory_grows_with(field: str) -> None:
    assert increasing(field)


NUMBERS = st.integers(-6, 9).map(Const)
EXPRESSIONS = st.recursive(
    NUMBERS | st.just(X) | st.just(Y),
    lambda inner: st.builds(
        lambda name, a, b: Op(name, (a, b)),
        st.sampled_from(["+", "-", "*", "//", "/", "min", "max", "%"]),
        inner,
        inner,
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.integers(2, 8))
def test_a_direction_is_never_wrong(expr: Expr, y: int) -> None:
    way = direction(expr, "x", KNOWN)
    values = [evaluate(expr, {"x": Const(x), "y": Const(y)}) for x in range(1, 65)]
    if way is None or any(isinstance(value, Unknown) for value in values):
        return
    pairs = list(itertools.pairwise(values))
    assert all(a <= b for a, b in pairs) if way >= 0 else all(a >= b for a, b in pairs)  # type: ignore[operator]
    assert way != 0 or len(set(map(repr, values))) == 1


@given(EXPRESSIONS, st.integers(1, 64), st.integers(2, 8))
def test_an_interval_holds_every_value(expr: Expr, x: int, y: int) -> None:
    found = interval(expr, KNOWN)
    value = evaluate(expr, {"x": Const(x), "y": Const(y)})
    if found is not None and isinstance(value, (int, float)):
        assert found[0] - 1e-9 <= value <= found[1] + 1e-9
