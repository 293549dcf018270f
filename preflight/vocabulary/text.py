"""Text with positions, and edits as splices of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from preflight.vocabulary.values import Span


class Place(Struct, frozen=True):
    """A span as a person counts it: lines and columns from 1, columns in code points, ends exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


class DocumentError(Exception):
    """A document cannot be parsed; `span` is the place, `message` the reason in words for the user.

    `mistake`: it is wrong, and whoever uses it would fail on it. Else it is in a language or version that is not read.
    """

    def __init__(self, message: str, span: Span, mistake: bool = True) -> None:
        super().__init__(message)
        self.message, self.span, self.mistake = message, span, mistake


class Source(Struct, frozen=True, dict=True):
    """A file's text exactly as it stands: line endings kept, a byte-order mark left out of `text` (but for shell
    scripts, which it is a part of).

    `path` is relative to the project's root, with `/`. `bom` says whether the file starts with a UTF-8 mark. `coding`
    is another one than UTF-8 that a Python file states (`# coding: latin-1`).
    """

    path: str
    text: str
    bom: bool = False
    coding: str = "utf-8"

    def bytes_of(self, text: str) -> bytes:
        """Another text as the file would hold it. Raises UnicodeEncodeError where its coding lacks a character."""
        mark = "\ufeff" if self.bom else ""
        return (mark + text).encode(self.coding)

    @cached_property
    def _starts(self) -> list[int]:
        starts, text = [0], self.text
        at = text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = text.find("\n", at + 1)
        return starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column (code points) of an offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Offset of a 1-based line and column (code points)."""
        return self._starts[line - 1] + column - 1

    def line(self, number: int) -> str:
        """A line's text, its ending left out."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def place(self, span: Span) -> Place:
        """The span in lines and columns."""
        return Place(self.path, *self.line_column(span.start), *self.line_column(span.end))


class Edit(Struct, frozen=True):
    """Replace `span` of the file `path` by `text`."""

    path: str
    span: Span
    text: str


class CannotEdit(ValueError):
    """No edit makes the requested change and no other one. The message tells the user why."""


class EditConflict(ValueError):
    """Two edits of one file overlap."""


def splice(text: str, edits: Iterable[Edit]) -> str:
    """`text` with the edits of one file applied; everything outside their spans is unchanged.

    Raises EditConflict when two of them overlap. Equal edits count once.
    """
    ordered = sorted(set(edits), key=lambda e: (e.span.start, e.span.end))
    for before, after in pairwise(ordered):
        if after.span.start < before.span.end or after.span == before.span:
            raise EditConflict(f"edits overlap at offset {after.span.start} of {after.path}")
    pieces, at = [], 0
    for edit in ordered:
        pieces += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    return "".join([*pieces, text[at:]])
