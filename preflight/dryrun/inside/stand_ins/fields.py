"""Lines of a made-up text in the fields that the program takes from each: `user, item = line.split()`.

Its own function says how many there are, what parts them, and which of them are numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from .own_code import MOST, beginnings, tree_of

LINES = 8192
"""Lines in fields: more than a batch of most programs."""
_REPEATED = 64
_VALUES = 97
"""Different numbers in a field: with more, few lines would be of the same user."""
_SEPARATORS = ("\t", "|", "||", "|||", " ||| ", ";")
_NUMBERS = ("int", "float")


def in_fields(text: str, frame: Any) -> str:
    """The text with the fields that the function at work takes from a line; with separators at which its file splits
    lines, where it says no more."""
    if frame is None:
        return text
    tree = tree_of(frame.f_code.co_filename)
    function = _function_at(tree, frame.f_lineno)
    found = max(_splits(function or tree), key=len, default=())
    if found:
        return _lines(found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "split" and len(node.args) == 1:
            mark = getattr(node.args[0], "value", None)
            if isinstance(mark, str) and mark.strip(" ") and mark != "\n" and mark in _SEPARATORS:
                lines = [mark.join(line.split(" ", 1)) for line in text.splitlines() if " " in line]
                begun = [f"{one}{word}" for one in beginnings() for word in ("a word", "words", "some words")]
                return "\n".join([*lines, *(mark.join((one, one)) for one in begun * _REPEATED)]) + "\n"
    return text


def _lines(kinds: tuple[str, ...]) -> str:
    """Lines of fields. `kinds`: what separates them, then what each is."""
    mark, *fields = kinds
    steps = [2 * at + 1 for at in range(len(fields))]
    rows = (
        [str((number * step) % _VALUES + 1) if kind else f"word{number % _VALUES}" for kind, step in zip(fields, steps)]
        for number in range(LINES)
    )
    return "\n".join(mark.join(row) for row in rows) + "\n"


def _function_at(tree: ast.AST, line: int) -> ast.AST | None:
    """The innermost function around a line."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [
        node for node in ast.walk(tree) if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _splits(function: ast.AST) -> Iterator[tuple[str, ...]]:
    """Each split of a line in a function whose fields are told: the separator, then "int" or "" for each field."""
    turned = {_name_in(node) for node in ast.walk(function) if _turns(node)}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        split = next((one for one in ast.walk(node.value) if _is_split(one)), None)
        if split is None:
            continue
        target = node.targets[0]
        all_turned = any(_turns(one) or getattr(one, "id", "") in _NUMBERS for one in ast.walk(node.value))
        if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(one, ast.Starred) for one in target.elts):
            names = [getattr(one, "id", "") for one in target.elts]
        elif isinstance(target, ast.Name):
            places = _places_of(target.id, function)
            names = [f"{target.id}[{at}]" for at in range(max(places) + 1)] if places else []
        else:
            continue
        if names:
            yield (_separator(split), *("int" if all_turned or name in turned else "" for name in names))


def _is_split(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "split" and not node.keywords


def _separator(split: Any) -> str:
    mark = getattr(split.args[0], "value", None) if split.args else None
    return mark if isinstance(mark, str) and mark and "\n" not in mark else " "


def _turns(node: ast.AST) -> bool:
    """`int(x)`."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in _NUMBERS and len(node.args) == 1


def _name_in(node: Any) -> str:
    return ast.unparse(node.args[0])


def _places_of(name: str, function: ast.AST) -> list[int]:
    """The numbers in `fields[2]`."""
    taken = [
        node for node in ast.walk(function) if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == name
    ]
    numbers = [getattr(node.slice, "value", None) for node in taken]
    return [one for one in numbers if type(one) is int and 0 <= one < MOST]
