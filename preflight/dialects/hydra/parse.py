"""Parses the text of an OmegaConf interpolation into literals, lookups and calls (grammar: omegaconf 2.3)."""

from __future__ import annotations

import re
from typing import TypeAlias, Union

from preflight.vocabulary.records import dataclass
from preflight.vocabulary.values import Scalar

MAX_DEPTH = 20
"""Interpolations inside interpolations."""

_NUMBER = re.compile(r"[-+]?(?:\d+(?:_\d+)*)(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?")
_RESOLVER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*:")


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar


@dataclass(frozen=True, slots=True)
class Lookup:
    """`${a.b}`; the key may hold interpolations itself."""

    key: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`${name:argument,argument}`."""

    name: str
    arguments: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list written as an argument."""

    items: tuple[tuple[Part, ...], ...]


Part: TypeAlias = Union[Literal, Lookup, Call, Sequence]


def parse(text: str) -> tuple[Part, ...] | None:
    """The parts of a text with interpolations, None where it is malformed or nested without bound."""
    try:
        return _Parser(text).text()
    except (IndexError, _Malformed):
        return None


def primitive(text: str) -> Scalar:
    """An unquoted argument: a number, true, false, null, or the text itself."""
    word = text.strip()
    lowered = word.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "null":
        return None
    if _NUMBER.fullmatch(word):
        digits = word.replace("_", "")
        return float(digits) if any(c in digits for c in ".eE") else int(digits)
    return word


class _Malformed(Exception):
    pass


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self.source, self.at, self.depth = text, 0, 0

    def text(self) -> tuple[Part, ...]:
        """Literal text and interpolations up to the end."""
        parts: list[Part] = []
        plain: list[str] = []
        while self.at < len(self.source):
            if self.source.startswith("\\${", self.at):
                plain.append("${")
                self.at += 3
            elif self.source.startswith("${", self.at):
                _flush(plain, parts)
                parts.append(self.interpolation())
            else:
                plain.append(self.source[self.at])
                self.at += 1
        _flush(plain, parts)
        return tuple(parts) or (Literal(""),)

    def interpolation(self) -> Part:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Malformed
        self.at += 2
        resolver = _RESOLVER.match(self.source, self.at)
        if resolver is not None:
            self.at = resolver.end()
            found: Part = Call(resolver.group(1), self.arguments("}"))
        else:
            found = Lookup(self.key())
        self.depth -= 1
        return found

    def key(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        plain: list[str] = []
        while self.source[self.at] != "}":
            if self.source.startswith("${", self.at):
                _flush(plain, parts)
                parts.append(self.interpolation())
            else:
                plain.append(self.source[self.at])
                self.at += 1
        self.at += 1
        if not parts:
            plain = ["".join(plain).strip()]
        _flush(plain, parts)
        return tuple(parts)

    def arguments(self, close: str) -> tuple[tuple[Part, ...], ...]:
        """Comma-separated arguments up to the closing character."""
        found: list[tuple[Part, ...]] = []
        while True:
            argument = self.argument(close)
            ended = self.source[self.at] == close
            self.at += 1
            if argument or not ended or found:
                found.append(argument or (Literal(""),))
            if ended:
                return tuple(found)

    def argument(self, close: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        plain: list[str] = []
        depth = 0
        while depth or self.source[self.at] not in (",", close):
            char = self.source[self.at]
            if self.source.startswith("${", self.at):
                _flush(plain, parts)
                parts.append(self.interpolation())
                continue
            if char in "'\"" and not "".join(plain).strip():
                plain = []
                parts += self.quoted(char)
                continue
            if char == "[" and not "".join(plain).strip() and not parts:
                self.at += 1
                plain = []
                parts.append(Sequence(self.arguments("]")))
                continue
            depth += (char in "([{") - (char in ")]}")
            plain.append(self.source[self.at + 1] if char == "\\" else char)
            self.at += 2 if char == "\\" else 1
        text = "".join(plain)
        if parts:
            _flush([text.strip()] if text.strip() else [], parts)
            return tuple(parts)
        return (Literal(primitive(text)),) if text.strip() else ()

    def quoted(self, quote: str) -> list[Part]:
        """A quoted argument: text in which interpolations still count."""
        self.at += 1
        parts: list[Part] = []
        plain: list[str] = []
        while self.source[self.at] != quote:
            if self.source.startswith("${", self.at):
                _flush(plain, parts)
                parts.append(self.interpolation())
                continue
            if self.source[self.at] == "\\" and self.source[self.at + 1] == quote:
                self.at += 1
            plain.append(self.source[self.at])
            self.at += 1
        self.at += 1
        _flush(plain, parts)
        return parts or [Literal("")]


def _flush(plain: list[str], parts: list[Part]) -> None:
    if plain:
        parts.append(Literal("".join(plain)))
        plain.clear()
