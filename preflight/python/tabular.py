"""Files of tables beside a program: rows and columns of a .csv file by its text."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

from msgspec import Struct

from preflight.python.evaluator import Evaluator

TEXT = "text"
"""The type of a column of texts."""
_HEAD = 2**16
_PART = 2**22
_LARGEST = 2**29
"""A larger .csv file is not read to its end: half a second a GiB."""


class Columns(Struct, frozen=True):
    """The rows of a table, and its columns with their types; `width`: mean bytes of a text."""

    rows: int
    types: Mapping[str, str]
    width: int = 0


def read_csv(ev: Evaluator, path: str, separator: str = ",") -> Columns | None:
    """A table with a header, as pandas reads it: numbers where all values of its beginning are numbers."""
    head = ev.project.head(path, _HEAD)
    if head is None or head[1] > _LARGEST:
        return None
    data, size = head
    whole = data if len(data) == size else data[: data.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    try:
        rows = list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return None
    if len(rows) < 2 or len(rows) != len(lines) or any(len(row) != len(rows[0]) for row in rows):
        return None  # texts with line breaks, or no plain table
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    types = {name: _type(values) for name, values in columns.items()}
    texts = [len(text) for name, values in columns.items() if types[name] == TEXT for text in values]
    return Columns(_lines(ev, path, size) - 1, types, sum(texts) // max(1, len(texts)))


def _type(values: Sequence[str]) -> str:
    for name, kind in (("int64", int), ("float64", float)):
        try:
            for value in values:
                kind(value or "nan")
        except ValueError:
            continue
        return name
    return TEXT


def _lines(ev: Evaluator, path: str, size: int) -> int:
    count, last = 0, b"\n"
    for start in range(0, size, _PART):
        ev.step(64)
        part = ev.project.head(path, _PART, start)
        data = part[0] if part is not None else b""
        count, last = count + data.count(b"\n"), data[-1:]
    return count + (last != b"\n")
