"""Texts that a program joins and cuts into pieces of one length -> train.seq_len, packed.

transformers' examples and course do it with a function that `datasets.map` runs over batches of tokens: it joins the
lists of a batch and cuts them, `[tokens[i : i + block_size] for i in range(0, total, block_size)]`. Every sample then
has that length, whatever the tokenizer was told.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, is_unknown, under
from preflight.python.objects import CallRecord, FunctionValue
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Op

_TOKENS = frozenset({"input_ids", "labels", "attention_mask"})
"""Keys of a batch of tokens."""
_ALL_KEYS = frozenset({"keys", "items"})
"""Methods by which a function takes every key of a batch: of texts that are no tokens yet, it would make letters."""


def grouped(records: Sequence[CallRecord]) -> list[Binding]:
    """The length of the pieces, under the conditions of the calls of `map` that make them.

    No tokenizer's length stands against it, not even one that is written in its call: the texts are joined after it.
    """
    steps = {id(record.node): record for record in records if record.name == "range" and len(record.args) == 3}
    found: list[Binding] = []
    for record in records:
        for length in _lengths(record, steps) if steps and record.method == "map" else ():
            packed = bind("train.sequences", Const("packed", length.origin or record.origin), Rank.literal)
            found += under(record.conditions, [bind("train.seq_len", bounded(length), Rank.literal), packed])
    return found


def _lengths(record: CallRecord, steps: dict[int, CallRecord]) -> Iterator[Expr]:
    """The lengths of the pieces that the function given to `map` makes."""
    given = record.keywords.get("function", record.arguments[0] if record.arguments else None)
    if isinstance(given, FunctionValue) and _of_tokens(given.node):
        for loop in _loops(given.node):
            rounds = steps.get(id(loop.iter))
            if rounds is not None and any(_is_piece(node, loop) for node in ast.walk(given.node)):
                yield rounds.args[2]


def _of_tokens(function: ast.AST) -> bool:
    """Whether a function cuts tokens. Another one may cut texts, before they are tokens."""
    return any(
        (isinstance(node, ast.Constant) and node.value in _TOKENS)
        or (isinstance(node, ast.Attribute) and node.attr in _ALL_KEYS)
        for node in ast.walk(function)
    )


def _loops(function: ast.AST) -> Iterator[ast.comprehension | ast.For]:
    for node in ast.walk(function):
        if isinstance(node, (ast.comprehension, ast.For)) and isinstance(node.target, ast.Name):
            yield node


def _is_piece(node: ast.AST, loop: ast.comprehension | ast.For) -> bool:
    """Whether it is `tokens[i : i + n]` of `for i in range(_, _, n)`."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(loop.iter, ast.Call)):
        return False
    start, end, index = node.slice.lower, node.slice.upper, ast.unparse(loop.target)
    length = ast.unparse(loop.iter.args[2])
    return (
        start is not None
        and end is not None
        and ast.unparse(start) == index
        and ast.unparse(end) in (f"{index} + {length}", f"{length} + {index}")
    )


def bounded(length: Expr) -> Expr:
    """`min(args.max_length, tokenizer.model_max_length)`: the minimum of what is known, on each branch."""
    if not isinstance(length, Op) or length.operator not in ("min", "if"):
        return length
    if length.operator == "if":
        condition, *branches = length.operands
        return Op("if", (condition, *map(bounded, branches)), length.origin)
    known = tuple(operand for operand in length.operands if not _is_unknown(operand))
    if known and len(known) < len(length.operands):
        return known[0] if len(known) == 1 else Op("min", known, length.origin)
    return length


def _is_unknown(expr: Expr) -> bool:
    """Whether it is unknown whichever branch is taken."""
    if isinstance(expr, Op) and expr.operator == "if":
        return all(map(_is_unknown, expr.operands[1:]))
    return is_unknown(expr)
