"""The user's invariants: what is read, where they hold, and the bounds that follow."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_spaces import box

from preflight.space.constraints import Limits, holds, in_box, limits, parse, violations, worst_corner
from preflight.vocabulary.errors import SettingsError
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Choices, Const, Expr, Origin, Range, Ref, Span

VOCABULARY = parse("vocabulary", "graph_vocab_size >= graph_d * (path_len - 1) + 1")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "a[0] > 1",
        "[x for x in y]",
        "a = 1",
        "a >",
        "lambda: 1",
        "a if b else c",
        "f'{a}' == b",
        "max(a, key=b) > 1",
        "a @ b > 1",
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_not_read(text: str) -> None:
    with pytest.raises(SettingsError, match="constraint mine"):
        parse("mine", text)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a >= 2", {"a": 2}, True),
        ("a.b.c * 2 < d", {"a.b.c": 2, "d": 4}, False),
        ("1 < a <= 8", {"a": 8}, True),
        ("a % 8 == 0 and not a > 64", {"a": 64}, True),
        ("a > 64 or b == 'adamw'", {"a": 1, "b": "adamw"}, True),
        ("min(a, b) + max(a, b) == -(-3)", {"a": 1, "b": 2}, True),
        ("a in (8, 16)", {"a": 9}, False),
        ("a // b ** 2 >= 1.5", {"a": 8, "b": 2}, True),
    ],
)
def test_read(text: str, values: dict[str, object], expected: bool) -> None:
    assert holds(parse("mine", text).expr, values) is expected  # type: ignore[arg-type]


def test_what_is_not_set_is_not_known() -> None:
    assert holds(VOCABULARY.expr, {"graph_d": 5}) is None


def graph(vocabulary: int, spokes: tuple[int, ...] = (5000, 1_000_000, 10_000)) -> Box:
    at = Origin("sweep.yaml", Span(10, 18))
    constants: dict[str, Expr] = {
        "graph_vocab_size": Const(vocabulary, at),
        "graph_d": Ref("graph_d"),
        "path_len": Const(5),
    }
    found = box({"graph_d": (Choices(spokes), None)}, constants, train__vocab_size=Const(vocabulary, at))
    fields = dict(found.fields)
    fields["train.vocab_size"] = type(fields["train.vocab_size"])("train.vocab_size", Const(vocabulary, at), at)
    return Box(fields, found.axes, {}, constants)


def test_a_constraint_that_holds_is_not_violated() -> None:
    assert list(violations((VOCABULARY,), graph(10_000_000))) == []
    assert list(violations((VOCABULARY,), graph(4_000_001))) == []


def test_a_violation_carries_its_values() -> None:
    (found,) = violations((VOCABULARY,), graph(4_000_000))
    assert found.assignment == {"graph_d": 1_000_000}
    assert not found.everywhere
    assert found.values == {"graph_vocab_size": 4_000_000, "graph_d": 1_000_000, "path_len": 5}
    (found,) = violations((VOCABULARY,), graph(100))
    assert found.everywhere


def test_bounds_of_a_field_known_by_another_name() -> None:
    assert limits((VOCABULARY,), graph(10_000_000), "train.vocab_size") == Limits(4_000_001, None, (VOCABULARY.text,))
    assert limits((VOCABULARY,), graph(10_000_000), "train.batch_size") == Limits()


def test_bounds_of_both_kinds() -> None:
    constraints = (parse("low", "train.batch_size * 2 >= 15"), parse("high", "train.batch_size < 100"))
    found = limits(constraints, box({}, train__batch_size=Const(16)), "train.batch_size")
    assert (found.low, found.high) == (8, 99)


def test_bounds_use_the_hardest_corner_of_the_other_axes() -> None:
    space = box({"n": (Range(1, 7, 1), None)}, train__batch_size=Const(16))
    found = limits((parse("room", "train.batch_size >= 3 * n"),), space, "train.batch_size")
    assert found.low == 21


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-20, 20))
def test_the_hardest_corner_decides(a: int, b: int, c: int) -> None:
    space = box({"x": (Range(1, 5, 1), None), "y": (Range(0, 4, 1), None)})
    expr = in_box(parse("mine", f"{a} * x + {b} * y >= {c}"), space)
    corner = worst_corner(expr, space)
    assert corner is not None
    everywhere = all(holds(expr, {"x": x, "y": y}) for x, y in product(range(1, 6), range(5)))
    assert (holds(expr, {"x": 1, "y": 0, **corner}) is True) == everywhere
