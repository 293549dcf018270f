"""Words and values as the shell makes them: cut at white space, joined, unfolded, each piece with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.dialects.reading import Word
from preflight.values import Const, Expr, Op, Origin, Ref, Span, Unknown

MAX_UNROLLED = 64
"""Iterations of one loop that are followed; a longer list is read once, with its variable unknown."""

MAX_VALUE = 2**17
"""Characters of one value: the kernel takes no longer word (MAX_ARG_STRLEN)."""

PART = 64
"""What each part of a value counts for, so that doubling a variable again and again comes to an end."""


def literal_word(text: str, origin: Origin) -> Word:
    """A word of known text, cut at its first `=` so that the value has a place of its own."""
    head, equals, tail = text.partition("=")
    if not equals:
        return Word(text, None, origin) if text.startswith("-") else Word("", Const(text, origin), origin)
    length = origin.span.end - origin.span.start
    start = origin.span.start + len(head) + 1 + (length == len(text) + 2)
    exact = origin.editable and length in (len(text), len(text) + 2)
    place = Origin(origin.path, Span(start, start + len(tail)), editable=True) if exact else origin
    return Word(head + equals, Const(tail, place), origin)


def word_text(word: Word) -> str | None:
    """A word as the program sees it, None where its value is not known."""
    if word.value is None:
        return word.prefix
    if isinstance(word.value, Const) and not isinstance(word.value.value, Unknown):
        return f"{word.prefix}{word.value.value}"
    return None


def of_value(value: Expr, origin: Origin) -> Word:
    if isinstance(value, Const) and isinstance(value.value, str):
        found = literal_word(value.value, value.origin or origin)
        return Word(found.prefix, found.value, origin)
    if isinstance(value, Op) and value.operator == "concat" and isinstance(value.operands[0], Const):
        first = value.operands[0]
        head, equals, tail = str(first.value).partition("=")
        if equals and isinstance(first.value, str):  # "--bs=" next to something that is not a constant
            rest = (Const(tail, first.origin), *value.operands[1:]) if tail else value.operands[1:]
            return Word(head + equals, rest[0] if len(rest) == 1 else Op("concat", rest, value.origin), origin)
    return Word("", value, origin)


def split(value: Expr, origin: Origin) -> Iterator[Word]:
    """The words that the shell cuts an unquoted value into, at white space."""
    pieces: list[Expr] = []
    for part in operands_of(value) if isinstance(value, Op) else (value,):
        if not (isinstance(part, Const) and isinstance(part.value, str)):
            pieces.append(part)
            continue
        for match in re.finditer(r"\s+|\S+", part.value):
            if not match.group().isspace():
                pieces.append(Const(match.group(), _within(part, match.start(), match.end())))
            elif pieces:
                yield of_value(_side_by_side(pieces), origin)
                pieces = []
    if pieces:
        yield of_value(_side_by_side(pieces), origin)


def _side_by_side(pieces: list[Expr]) -> Expr:
    return pieces[0] if len(pieces) == 1 else Op("concat", tuple(pieces), pieces[0].origin)


def _within(part: Const, start: int, end: int) -> Origin | None:
    """The place of a piece of a constant, where the file holds the constant as it is."""
    origin, text = part.origin, str(part.value)
    if origin is None:
        return None
    extra = origin.span.end - origin.span.start - len(text)
    if not origin.editable or extra not in (0, 2):
        return Origin(origin.path, origin.span, None, origin.via, False)
    at = origin.span.start + extra // 2
    return Origin(origin.path, Span(at + start, at + end), None, origin.via)


def whole(word: Word) -> Expr:
    if word.value is None:
        return Const(word.prefix, word.origin)
    return word.value if not word.prefix else Op("concat", (Const(word.prefix), word.value), word.origin)


def joined(words: tuple[Word, ...]) -> Expr:
    parts: list[Expr] = []
    for word in words:
        parts += [Const(" "), whole(word)] if parts else [whole(word)]
    return parts[0] if len(parts) == 1 else Op("concat", tuple(parts))


def brace_words(text: str, origin: Origin) -> tuple[Word, ...]:
    """`{0..4}` and `{a,b}` as the whole of a word; nothing for any other text."""
    numbers = re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", text)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return tuple(
            Word("", Const(str(n), origin), origin) for n in range(first, last + step, step)[: MAX_UNROLLED + 1]
        )
    listed = re.fullmatch(r"\{([^{},\s]+(?:,[^{},\s]+)+)\}", text)
    return tuple(Word("", Const(one, origin), origin) for one in listed[1].split(",")) if listed is not None else ()


def size_of(expr: Expr) -> int:
    """Characters and parts of a value, counted no further than MAX_VALUE."""
    total, queue = 0, [expr]
    while queue and total <= MAX_VALUE:
        one = queue.pop()
        total += PART + (len(one.value) if isinstance(one, Const) and isinstance(one.value, str) else 0)
        if isinstance(one, Op):
            queue += one.operands
    return total


def is_tuple(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "tuple"


def operands_of(expr: Expr) -> tuple[Expr, ...]:
    return expr.operands if isinstance(expr, Op) else ()


def is_all_arguments(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "all" and expr.operands == (Ref("@", expr.origin),)


def is_unknown(expr: Expr) -> bool:
    return isinstance(expr, Const) and isinstance(expr.value, Unknown)


def has_blank(expr: Expr) -> bool:
    """Whether a value has white space where the shell would cut it."""
    if isinstance(expr, Const):
        return isinstance(expr.value, str) and bool(re.search(r"\s", expr.value))
    return isinstance(expr, Op) and expr.operator == "concat" and any(has_blank(operand) for operand in expr.operands)
