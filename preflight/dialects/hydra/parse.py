"""Parser of OmegaConf interpolations: literals, lookups and calls, read by OmegaConf's own grammar."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import TypeAlias, Union

from msgspec import Struct
from omegaconf.errors import GrammarParseError, InterpolationResolutionError
from omegaconf.grammar_parser import parse as grammar
from omegaconf.grammar_visitor import GrammarVisitor

from preflight.vocabulary.budgets import INTERPOLATED_CHARACTERS, INTERPOLATED_DEPTH
from preflight.vocabulary.values import Scalar


class Literal(Struct, frozen=True):
    value: Scalar


class InterpolatedKey(Struct, frozen=True):
    """`${a.b}`; the key may contain interpolations."""

    key: tuple[Part, ...]


class ResolverCall(Struct, frozen=True):
    """`${name:argument,argument}`."""

    name: str
    arguments: tuple[tuple[Part, ...], ...]


class Sequence(Struct, frozen=True):
    """A list written as an argument."""

    items: tuple[tuple[Part, ...], ...]


Part: TypeAlias = Union[Literal, InterpolatedKey, ResolverCall, Sequence]

_MARK = re.compile("\0(\\d+)\0")


@lru_cache(maxsize=4096)  # every study that reads a file reads its texts again
def parse(text: str) -> tuple[Part, ...] | None:
    """The parts of a text with interpolations, None if it is malformed or nested too deeply."""
    found = _Parts()
    value = found.read(text, "configValue", "DEFAULT_MODE")
    return None if value is None else found.parts_of(value)


def primitive(text: str) -> Scalar:
    """An unquoted argument: a number, true, false, null, or the text itself."""
    found = _Parts().read(text.strip(), "singleElement", "VALUE_MODE")
    if isinstance(found, (bool, int, float)) or (found is None and text.strip().lower() == "null"):
        return found
    return text.strip()


class _Parts:
    """OmegaConf's visitor joins texts and asks for the value of each interpolation in them. It gets a mark for each
    interpolation, and the joined text is split at the marks afterwards."""

    def __init__(self) -> None:
        self.marked: list[Part] = []

    def read(self, text: str, rule: str, mode: str) -> object:
        """The visitor's result for a text; None also if the text is malformed or too long."""
        if len(text) > INTERPOLATED_CHARACTERS or "\0" in text or _depth(text) > INTERPOLATED_DEPTH:
            return None
        visitor = GrammarVisitor(self._lookup, self._call, None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an argument left empty, `${f:,1}`, is a text without characters
                return visitor.visit(grammar(text, rule, mode))
        except (GrammarParseError, InterpolationResolutionError, ValueError):  # ValueError: a number without end
            return None

    def parts_of(self, value: object) -> tuple[Part, ...]:
        if isinstance(value, list):
            return (Sequence(tuple(self.parts_of(item) for item in value)),)
        if isinstance(value, dict):
            value = "{" + ",".join(f"{key}:{item}" for key, item in value.items()) + "}"
        if not isinstance(value, str):
            return (Literal(value if isinstance(value, (bool, int, float)) else None),)
        found: list[Part] = []
        for index, piece in enumerate(_MARK.split(value)):
            if index % 2:
                found.append(self.marked[int(piece)])
            elif piece:
                found.append(Literal(piece))
        return tuple(found) or (Literal(""),)

    def _mark(self, part: Part) -> str:
        self.marked.append(part)
        return f"\0{len(self.marked) - 1}\0"

    def _lookup(self, key: str, memo: object) -> str:
        return self._mark(InterpolatedKey(self.parts_of(key)))

    def _call(self, name: str, args: tuple[object, ...], args_str: tuple[str, ...]) -> str:
        plain = [isinstance(value, dict) and "${" not in text for value, text in zip(args, args_str, strict=True)]
        texts = [text if as_text else value for as_text, value, text in zip(plain, args, args_str, strict=True)]
        return self._mark(ResolverCall(_MARK.sub("${...}", name), tuple(self.parts_of(text) for text in texts)))


def _depth(text: str) -> int:
    """The largest number of open brackets; brackets in quoted texts count too."""
    depth = deepest = 0
    for char in text:
        depth = max(0, depth + (char in "[{") - (char in "]}"))
        deepest = max(deepest, depth)
    return deepest
