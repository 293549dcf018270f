"""The code cells of a notebook, each character with its place in the file.

Source: nbformat 5.10, `v4/nbformat.v4.schema.json` (`cells`, `source`) and `v3/nbformat.v3.schema.json` (`worksheets`,
`input`). Outputs and attachments are passed over by the standard library's decoder.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder

from msgspec import Struct, field

from preflight.vocabulary.budgets import PROGRAM_CHARACTERS, TREE_DEPTH
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Span

_DECODER = JSONDecoder(parse_int=float)
"""As a float, a number of any length is read."""
_SPACE = re.compile(r"[ \t\n\r]*")
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<one>.))", re.DOTALL)
_ONE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HIGH, _LOW, _AFTER = 0xD800, 0xDC00, 0xE000
"""Surrogates: a pair of two escapes is one character; one alone is none."""


class Placed(Struct, frozen=True):
    """A text, and where each of its characters is written: from `starts` to `ends`."""

    text: str = ""
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def part(self, start: int, end: int | None = None) -> Placed:
        return Placed(self.text[start:end], self.starts[start:end], self.ends[start:end])

    def replaced(self, text: str) -> Placed:
        """Another text in its place: each character is written where this text is."""
        if not self.text:
            return Placed()
        return Placed(text, (self.starts[0],) * len(text), (self.ends[-1],) * len(text))

    def span(self, start: int = 0, end: int | None = None) -> Span:
        """Where a part of the text is written."""
        end = len(self.text) if end is None else min(end, len(self.text))
        if start < end:
            return Span(self.starts[start], self.ends[end - 1])
        at = self.starts[start] if start < len(self.starts) else self.ends[-1] if self.ends else 0
        return Span(at, at)

    @classmethod
    def of(cls, parts: list[Placed]) -> Placed:
        """Texts one after the other."""
        return cls(
            "".join(one.text for one in parts),
            tuple(place for one in parts for place in one.starts),
            tuple(place for one in parts for place in one.ends),
        )


class Cell(Struct, frozen=True):
    """A code cell. `is_parameters`: papermill and others run the notebook with other values than it states."""

    code: Placed
    is_parameters: bool = False


class Notebook(Struct):
    """What a notebook states."""

    cells: list[Cell] = field(default_factory=list)
    metadata: object = None
    metadata_span: Span = field(default_factory=lambda: Span(0, 0))

    @property
    def is_python(self) -> bool:
        """Whether the kernel runs Python: by its language, else by its name. Nothing says otherwise: it does."""
        for key, name in (("kernelspec", "language"), ("language_info", "name"), ("kernelspec", "name")):
            known = self.metadata.get(key) if isinstance(self.metadata, dict) else None
            found = known.get(name) if isinstance(known, dict) else None
            if isinstance(found, str) and found:
                return "py" in found.lower() if name == "name" else found.lower() in ("python", "ipython")
        return True

    def cell_at(self, offset: int) -> int:
        """The index of the code cell that an offset of the file is in, or behind."""
        return bisect_right([cell.code.starts[0] for cell in self.cells], offset) - 1


def read_notebook(source: Source) -> Notebook:
    """The code cells and the metadata of a file. Raises DocumentError if it is not JSON, or over a budget."""
    scanner = _Scanner(source.text)
    found = Notebook()
    end = scanner.space(0)
    for key, at in scanner.members(0):
        end = at
        if key == "cells":
            found.cells += scanner.cells(at)
        elif key == "worksheets":
            for sheet in scanner.elements(at):
                for name, inner in scanner.members(sheet):
                    if name == "cells":
                        found.cells += scanner.cells(inner)
        elif key == "metadata":
            found.metadata, end = scanner.value(at)
            found.metadata_span = Span(at, end)
    if sum(len(cell.code.text) for cell in found.cells) > PROGRAM_CHARACTERS:
        raise DocumentError(f"it is {PROGRAM_CHARACTERS.over}", Span(0, 0), mistake=False)
    return found


class _Scanner:
    """Walks objects and lists without keeping them. What it passes over is decoded and dropped."""

    def __init__(self, text: str) -> None:
        self.text = text

    def space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        assert match is not None
        return match.end()

    def value(self, at: int) -> tuple[object, int]:
        """The value that begins at an offset, and its end."""
        try:
            return _DECODER.raw_decode(self.text, at)
        except JSONDecodeError as error:
            raise _wrong(error.msg, error.pos) from None
        except RecursionError:
            raise _wrong(f"it is nested more than {TREE_DEPTH} levels deep", at) from None

    def members(self, at: int) -> Iterator[tuple[str, int]]:
        """The keys of the object at an offset, each with the offset of its value; nothing if it is not one."""
        at = self.space(at)
        if not self.text.startswith("{", at):
            return
        for here in self._items(at, "}"):
            key, colon = self.value(here)
            colon = self.space(colon)
            if not isinstance(key, str) or not self.text.startswith(":", colon):
                raise _wrong("a key with ':' was expected", here)
            yield key, self.space(colon + 1)

    def elements(self, at: int) -> Iterator[int]:
        """The offsets of the values of the list at an offset; nothing if it is not one."""
        at = self.space(at)
        if self.text.startswith("[", at):
            yield from self._items(at, "]")

    def _items(self, at: int, closing: str) -> Iterator[int]:
        here = self.space(at + 1)
        while not self.text.startswith(closing, here):
            yield here
            _, end = self.value(here)
            if closing == "}":
                _, end = self.value(self.space(self.space(end) + 1))
            here = self.space(end)
            if self.text.startswith(",", here):
                here = self.space(here + 1)
            elif not self.text.startswith(closing, here):
                raise _wrong(f"',' or '{closing}' was expected", here)

    def cells(self, at: int) -> Iterator[Cell]:
        """The code cells of a list of cells. A cell without text is none."""
        for here in self.elements(at):
            kind: object = None
            tags: object = None
            written: int | None = None
            language: object = "python"
            for key, inner in self.members(here):
                if key == "cell_type":
                    kind, _ = self.value(inner)
                elif key == "language":
                    language, _ = self.value(inner)
                elif key == "metadata":
                    metadata, _ = self.value(inner)
                    tags = metadata.get("tags") if isinstance(metadata, dict) else None
                    own = metadata.get("vscode") if isinstance(metadata, dict) else None
                    language = own.get("languageId", language) if isinstance(own, dict) else language
                elif key in ("source", "input"):
                    written = inner
            code = self.code(written) if (kind, language) == ("code", "python") and written is not None else Placed()
            if code.text.strip():
                yield Cell(code, isinstance(tags, list) and "parameters" in tags)

    def code(self, at: int) -> Placed:
        """The text of a cell: one string, or a list of lines."""
        strings = [at] if self.text.startswith('"', at) else list(self.elements(at))
        return Placed.of([self._string(one) for one in strings if self.text.startswith('"', one)])

    def _string(self, at: int) -> Placed:
        _, end = self.value(at)
        chars: list[str] = []
        places: list[int] = []
        here = at + 1
        for escape in _ESCAPE.finditer(self.text, here, end - 1):
            chars += self.text[here : escape.start()]
            places += range(here, escape.start())
            chars.append(_character(escape))
            places.append(escape.start())
            here = escape.end()
        chars += self.text[here : end - 1]
        places += range(here, end - 1)
        return _in_whole_characters(chars, places, end - 1)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape["code"], 16)) if escape["code"] else _ONE.get(escape["one"], escape["one"])


def _in_whole_characters(chars: list[str], places: list[int], end: int) -> Placed:
    """The text with pairs of surrogates as one character, and U+FFFD for one alone."""
    whole: list[str] = []
    starts: list[int] = []
    at = 0
    while at < len(chars):
        code, width = ord(chars[at]), 1
        char = chars[at]
        if _HIGH <= code < _AFTER:
            low = ord(chars[at + 1]) if at + 1 < len(chars) else 0
            paired = code < _LOW <= low < _AFTER
            char = chr(0x10000 + (code - _HIGH) * 0x400 + low - _LOW) if paired else "\ufffd"
            width = 2 if paired else 1
        whole.append(char)
        starts.append(places[at])
        at += width
    return Placed("".join(whole), tuple(starts), tuple([*starts[1:], end][: len(starts)]))


def _wrong(message: str, at: int) -> DocumentError:
    return DocumentError(message, Span(at, at + 1))
