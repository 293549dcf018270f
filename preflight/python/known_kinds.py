"""Kinds of values of which no more is known: numbers, and names of files."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.evaluator import Evaluator
from preflight.python.objects import COUNTS, Abstract, Instance
from preflight.vocabulary.values import Expr, Op, Unknown

FILE_NAMES = frozenset({"glob", "iglob", "rglob", "listdir", "iterdir", "scandir"})
"""Functions and methods that give names of files."""


def of_file_names(value: Abstract) -> bool:
    """Whether a value is what such a function gave: ordered, cut or filtered it is one still."""
    return isinstance(value, Instance) and value.cls is None and value.made_by.rpartition(".")[2] in FILE_NAMES


LENGTH = "the length of the object is only known when the program runs"
DRAWN = "a number that is drawn at random"
"""Why numbers are not known, as the user is told: the words say of which kind they are."""
DRAWN_WHOLE = "a whole number that is drawn at random"
INDEX = "the number of the sample"
"""The index that a data set is asked for: a number, and no more is known of it."""


def kind_of_number(expr: Expr, ev: Evaluator) -> str:
    """float, int, bool or "" (it is no number, or not known): an index stays a number under arithmetic."""
    if isinstance(expr, Op) and expr.operator in ("+", "-", "*", "//", "%", "/", "**", "neg"):
        kinds = [kind_of_number(operand, ev) for operand in expr.operands]
        return "" if "" in kinds else "float" if "float" in kinds or expr.operator == "/" else "int"
    if isinstance(expr, Op) and expr.operator in ("==", "!=", "<", "<=", ">", ">=", "not", "in", "not in", "is"):
        return "bool"
    if isinstance(expr, Op) and expr.operator in ("int", "float", "bool"):  # of whatever it is, the result is a number
        return expr.operator
    if isinstance(expr, Op) and expr.operator == "len":
        return "int"
    if isinstance(expr, Op) and expr.operator == "if":
        then, otherwise = (kind_of_number(operand, ev) for operand in expr.operands[1:])
        return then if then == otherwise else ""
    if isinstance(expr, Op) and expr.operator == "get":  # an item of which it is not known which one it is
        every = ev.value_of(expr.operands[0])
        items = [*every.values()] if isinstance(every, Mapping) else every if isinstance(every, tuple) else ()
        kinds = [_name_of_number(one) for one in items]
        return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else ""
    value = ev.value_of(expr)
    if isinstance(value, Unknown):
        return {INDEX: "int", COUNTS: "int", LENGTH: "int", DRAWN_WHOLE: "int", DRAWN: "float"}.get(value.words, "")
    return _name_of_number(value)


def _name_of_number(value: object) -> str:
    return next(
        (name for kind, name in ((bool, "bool"), (int, "int"), (float, "float")) if isinstance(value, kind)), ""
    )


def is_number(expr: Expr, ev: Evaluator) -> bool:
    """Whether it is a number, even if it is not known which."""
    return bool(kind_of_number(expr, ev))
