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
DRAWN_SMALL = "a whole number, one of -5 to 256, that is drawn at random"
_SMALL = {DRAWN_SMALL: True}
"""Whether all that an unknown number may be are small."""
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
        return {INDEX: "int", COUNTS: "int", LENGTH: "int", DRAWN_WHOLE: "int", DRAWN_SMALL: "int", DRAWN: "float"}.get(
            value.words, ""
        )
    return _name_of_number(value)


def _name_of_number(value: object) -> str:
    return next(
        (name for kind, name in ((bool, "bool"), (int, "int"), (float, "float")) if isinstance(value, kind)), ""
    )


def is_number(expr: Expr, ev: Evaluator) -> bool:
    """Whether it is a number, even if it is not known which."""
    return bool(kind_of_number(expr, ev))


SHARED = range(-5, 257)
"""Whole numbers of which CPython has one object each (Objects/longobject.c); so it has of True and False."""
NUMBER = 32
"""Bytes of any other number, in blocks of 16."""


def number_bytes(expr: Expr, ev: Evaluator) -> int | None:
    """What a number takes that each item of a list has one of; None: it is no number, or not known to be one."""
    kind = kind_of_number(expr, ev)
    if not kind:
        return None
    return 0 if kind == "bool" or (kind == "int" and _is_shared(expr, ev)) else NUMBER


def _is_shared(expr: Expr, ev: Evaluator) -> bool:
    """Whether a whole number is one of SHARED, whichever it is."""
    if isinstance(expr, Op) and expr.operator == "%":
        divisor = ev.value_of(expr.operands[1])
        return isinstance(divisor, int) and divisor - 1 in SHARED and divisor > 0
    if isinstance(expr, Op) and expr.operator == "int":
        return kind_of_number(expr.operands[0], ev) == "bool" or _is_shared(expr.operands[0], ev)
    value = ev.value_of(expr)
    return _SMALL.get(value.words, False) if isinstance(value, Unknown) else isinstance(value, int) and value in SHARED
