"""Tests of a shell (`[ ]`, `[[ ]]`, `(( ))`, the patterns of `case`) as expressions that are true, false or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from preflight.documents.shell_words import Words
from preflight.vocabulary.budgets import SHELL_DEPTH
from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
_TEXTS = {"=": "==", "==": "==", "!=": "!="}
_JOINED = {"&&": "and", "||": "or", "-a": "and", "-o": "or"}
_EDGE = regex(r"([\w./:=,-]+)\*|\*([\w./:=,-]+)")
"""A pattern of plain text with anything behind it, or before it: `--bs=*`."""
_GLOB = regex(r"[*?\[\]@+!(]")


def condition(words: Words, node: Node, depth: int = 0) -> Expr:
    """Whether a command that is run for its status succeeds. All commands but tests are unknown."""
    place, inner = words.text.origin(*words.bounds(node), False), node.named_children
    if depth > SHELL_DEPTH:
        return unknown("it is nested too deeply", place, Cause.budget)
    if node.type in ("test_command", "parenthesized_expression") and len(inner) == 1:
        return condition(words, inner[0], depth + 1)
    if node.type == "negated_command" and len(inner) == 1:
        return Op("not", (condition(words, inner[0], depth + 1),), place)
    if node.type == "compound_statement" and words.source(node).startswith("((") and len(inner) == 1:
        return Op("!=", (Op("int", (words.arithmetic(inner[0]),), place), Const(0)), place)
    if node.type == "unary_expression" and len(inner) == 2 and words.source(inner[0]) in ("-z", "-n"):
        empty = "==" if words.source(inner[0]) == "-z" else "!="
        return Op(empty, (_text(words, inner[1]), Const("")), place)
    if node.type == "unary_expression" and len(inner) == 1 and words.source(node).startswith("!"):
        return Op("not", (condition(words, inner[0], depth + 1),), place)
    if node.type == "binary_expression":
        return _binary(words, node, depth)
    if node.type == "command" and inner and words.source(inner[0]) == "test":
        return _test(words, inner[1:], place)
    return unknown("it depends on a command or a file", place, Cause.run_time)


def _binary(words: Words, node: Node, depth: int) -> Expr:
    place = words.text.origin(*words.bounds(node), False)
    children = [child for child in node.children if child.type not in ("test_operator",) and child.is_named]
    operator = next((words.source(c) for c in node.children if not c.is_named or c.type == "test_operator"), "")
    if len(children) == 2:
        left, right = children
        if operator in _JOINED:
            sides = (condition(words, left, depth + 1), condition(words, right, depth + 1))
            return Op(_JOINED[operator], sides, place)
        if operator in _NUMBERS:
            numbers = tuple(Op("int", (words.value(side),), place) for side in (left, right))
            return Op(_NUMBERS[operator], numbers, place)
        if operator in _TEXTS and not _is_pattern(words, right):
            return Op(_TEXTS[operator], (_text(words, left), _text(words, right)), place)
    return unknown("the test is not followed", place, Cause.not_read)


def _test(words: Words, given: Sequence[Node], place: Origin) -> Expr:
    """`test $# -gt 0`, `test -n "$1"`: as between brackets."""
    if len(given) == 3 and (operator := words.source(given[1])) in _NUMBERS:
        numbers = tuple(Op("int", (words.value(side),), place) for side in (given[0], given[2]))
        return Op(_NUMBERS[operator], numbers, place)
    if len(given) == 3 and operator in ("=", "!="):
        return Op(_TEXTS[operator], (_text(words, given[0]), _text(words, given[2])), place)
    if len(given) == 2 and (sign := words.source(given[0])) in ("-z", "-n"):
        return Op("==" if sign == "-z" else "!=", (_text(words, given[1]), Const("")), place)
    return unknown("the test is not followed", place, Cause.not_read)


def matches(words: Words, subject: Node, patterns: Sequence[Node]) -> Expr:
    """Whether an item of a `case` is chosen, if none before it is."""
    found: list[Expr] = []
    for pattern in patterns:
        place = words.text.origin(*words.bounds(pattern), False)
        if words.source(pattern) == "*":
            found.append(Const(True, place))
        elif (edge := _EDGE.fullmatch(words.source(pattern))) is not None:
            operator = "startswith" if edge[1] else "endswith"
            found.append(Op(operator, (_text(words, subject), Const(edge[1] or edge[2])), place))
        elif _is_pattern(words, pattern):
            found.append(unknown("the pattern is not followed", place, Cause.not_read))
        else:
            found.append(Op("==", (_text(words, subject), _text(words, pattern)), place))
    return Op("or", tuple(found)) if found else unknown("there is no pattern", None, Cause.not_read)


def _is_pattern(words: Words, node: Node) -> bool:
    """Whether a word has unquoted signs of a pattern."""
    return node.type not in ("string", "raw_string") and _GLOB.search(words.source(node)) is not None


def _text(words: Words, node: Node) -> Expr:
    return Op("str", (words.value(node),), words.text.origin(*words.bounds(node), False))
