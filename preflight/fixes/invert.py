"""Inversion of expressions: from the value that a Job field should have to the literals that produce it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from preflight.vocabulary.values import Const, Expr, Op, Ref, Unknown, Value, evaluate, names

Literals = tuple[tuple[Const, Value], ...]
"""Literals and the values that they should have."""


def solutions(expr: Expr, value: Value) -> Iterator[Literals]:
    """Ways to give `expr` the value `value` by changing one literal, the most direct way first.

    Only invertible operations are followed: arithmetic with a constant, powers of a constant, conversions, and the
    branch of a condition that other values decide.
    """
    if isinstance(expr, Const):
        if expr.origin is not None and expr.origin.editable and not isinstance(expr.value, (Unknown, Mapping)):
            yield ((expr, value),)
        return
    if isinstance(expr, Ref):
        return
    yield from _operation(expr, value)


def _operation(expr: Op, value: Value) -> Iterator[Literals]:
    operator, operands = expr.operator, expr.operands
    if operator in ("int", "float", "round", "bool", "str") and len(operands) == 1:
        yield from solutions(operands[0], value)
    elif operator == "if":
        test = evaluate(operands[0])
        if not isinstance(test, Unknown):
            yield from solutions(operands[1] if test else operands[2], value)
    elif operator == "or" and operands:
        chosen = next((operand for operand in operands if _truth(operand)), operands[-1])
        yield from solutions(chosen, value)
    elif operator in ("min", "max") and len(operands) == 2:
        yield from _extreme(expr, value)
    elif len(operands) == 2 and isinstance(value, (int, float)) and not isinstance(value, bool):
        for at in (0, 1):
            wanted = _operand(operator, operands, at, value)
            if wanted is not None and _same(expr, at, wanted, value):
                yield from solutions(operands[at], wanted)


def _truth(expr: Expr) -> bool:
    value = evaluate(expr)
    return not isinstance(value, Unknown) and bool(value)


def _extreme(expr: Op, value: Value) -> Iterator[Literals]:
    """`min(64, x)` becomes 16 if x is 16, as long as the other operand allows it."""
    for at in (0, 1):
        if _same(expr, at, value, value):
            yield from solutions(expr.operands[at], value)


def _operand(operator: str, operands: tuple[Expr, ...], at: int, value: int | float) -> int | float | None:
    """The value of operand `at` for which the operation has the value `value`, the other operand unchanged."""
    other = evaluate(operands[1 - at])
    if any(True for _ in names(operands[1 - at])) or isinstance(other, bool) or not isinstance(other, (int, float)):
        return None
    try:
        found = _solve(operator, at, value, other)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(found, float) and _whole(operands[at]) and abs(found - round(found)) < 1e-9:
        return round(found)  # `_same` checks that the operation gives the exact value
    return found


def _solve(operator: str, at: int, value: int | float, other: int | float) -> int | float | None:
    if operator == "+":
        return value - other
    if operator == "-":
        return value + other if at == 0 else other - value
    if operator == "*":
        return value // other if isinstance(value, int) and value % other == 0 else value / other
    if operator == "/":
        return value * other if at == 0 else other / value
    if operator == "//":
        return value * other if at == 0 else other // value
    if operator == "**":
        return value ** (1 / other) if at == 0 else math.log(value, other)
    return None


def _whole(expr: Expr) -> bool:
    return isinstance(evaluate(expr), (int, str)) and not isinstance(evaluate(expr), bool)


def _same(expr: Op, at: int, wanted: Value, value: Value) -> bool:
    """Whether the operation has exactly the value `value` when operand `at` is `wanted`. A whole number stays whole."""
    operands = list(expr.operands)
    operands[at] = Const(wanted)
    worth = evaluate(Op(expr.operator, tuple(operands)))
    return worth == value and not (_whole(expr.operands[at]) and isinstance(wanted, float))
