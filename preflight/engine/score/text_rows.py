"""Rows of text files: a Job as JSON in each line, and tables whose columns a character separates."""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar

from msgspec import Struct

from preflight.engine.score.columns import Answer, of_error
from preflight.engine.score.naming import COUNTED
from preflight.engine.score.tables import AT_ONCE, parsed
from preflight.vocabulary.errors import UsageError

LONGEST_LINE = 1 << 20
"""Bytes of a row: a Job takes a few hundred, with a whole configuration of a model a few thousand."""
DELIMITERS = ",;\t|"
"""What separates columns: the one that the line of names has most of."""
NO_TEXT = {
    b"\x1f\x8b": "compressed (gzip): unpack it first",
    **dict.fromkeys((BOM_UTF16_LE, BOM_UTF16_BE), "UTF-16: save it as UTF-8"),
}
"""How files begin that hold no rows as they are."""
TOO_LONG = f"the line is longer than {LONGEST_LINE >> 20} MiB"

_COUNT = re.compile(r"([0-9]{1,9})(?:\.0)?")
"""pandas writes 8.0 where another row of the column is empty."""


class File(Struct, frozen=True):
    """A file of rows, Jobs all of them."""

    path: Path
    launches: ClassVar[int] = 0
    left_out: ClassVar[int] = 0

    def state(self) -> object:
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns


class Lines(File, frozen=True):
    """A Job, as JSON, in each line."""

    def size(self) -> int:
        return self.path.stat().st_size

    def columns(self) -> Sequence[str] | None:
        with self.path.open("rb") as file:
            _checked(self.path, file)
        return None

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        with self.path.open("rb") as file:
            file.seek(start)
            rows: list[object] = []
            for line in _lines(file):
                if line is None or line.strip():
                    rows.append(Answer(of_error(TOO_LONG)) if line is None else _parsed(line))
                if len(rows) == AT_ONCE:
                    yield rows, file.tell()
                    rows = []
            if rows:
                yield rows, file.tell()


class Delimiters(File, frozen=True):
    """A row in each line, its columns separated: .csv, .tsv, and what `sacct --parsable2` prints. The first line has
    the names of the columns. An empty column states nothing."""

    def size(self) -> int:
        return self.path.stat().st_size

    def columns(self) -> Sequence[str]:
        with self.path.open("rb") as file:
            return [name for name in self._header(file)[0] if name]

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        with self.path.open("rb") as file:
            names, delimiter = self._header(file)
            if start:
                file.seek(start)
            rows: list[object] = []
            reader = partial(csv.reader, _Texts(file), delimiter=delimiter)
            slurm = delimiter == "|"  # which quotes nothing
            for row in _records(reader(quoting=csv.QUOTE_NONE) if slurm else reader()):
                if row != []:
                    rows.append(_named(names, row))
                if len(rows) == AT_ONCE:
                    yield rows, file.tell()
                    rows = []
            if rows:
                yield rows, file.tell()

    def _header(self, file: BinaryIO) -> tuple[list[str], str]:
        """The names of the columns, and what separates them; the file is behind them."""
        _checked(self.path, file)
        text = file.readline(LONGEST_LINE).decode("utf-8-sig", "replace").rstrip("\r\n")
        delimiter = max(DELIMITERS, key=text.count)
        try:
            names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
        except csv.Error as error:
            raise UsageError(f"{self.path}: the first line names no columns: {error}") from error
        if text and not any(names):
            raise UsageError(f"{self.path}: the first line names no columns")
        return names, delimiter


def _checked(path: Path, file: BinaryIO) -> None:
    """Refuses a file no line of which is text that can be read. Raises UsageError."""
    head = file.read(2)
    file.seek(0)
    if head in NO_TEXT:
        raise UsageError(f"{path} is {NO_TEXT[head]}")


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a file; None: a line that is too long, which is skipped."""
    while line := file.readline(LONGEST_LINE):
        long = not line.endswith(b"\n") and len(line) == LONGEST_LINE
        while long and (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        yield None if long else line


class _Texts:
    """Lines for a reader of columns, which goes on behind one that is too long."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = _lines(file)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if line is None:
            raise csv.Error(TOO_LONG)
        return line.decode("utf-8", "replace")


def _records(reader: Iterator[list[str]]) -> Iterator[list[str] | str]:
    """The columns of each row, or what is wrong with it."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def _named(names: Sequence[str], row: list[str] | str) -> object:
    if isinstance(row, str):
        return Answer(of_error(row))
    if len(row) != len(names):
        return Answer(of_error(f"the row has {len(row)} columns, and the first line names {len(names)}"))
    stated = {name.replace("__", "."): text for name, text in zip(names, row, strict=True) if name and text}
    return numbered(stated)


def numbered(row: object) -> object:
    """The row with numbers for the text of what jobs are grouped by."""
    if not isinstance(row, Mapping):
        return row
    texts = {name: _COUNT.fullmatch(text) for name in COUNTED if isinstance(text := row.get(name), str)}
    counts = {name: int(found[1]) for name, found in texts.items() if found is not None}
    return {**row, **counts} if counts else row


def _parsed(line: bytes) -> object:
    try:
        return parsed(line.removeprefix(BOM_UTF8))
    except ValueError as error:
        return Answer(of_error(f"the line is no JSON: {error}"))
