"""Parquet files beside a program: their rows, and their columns with the types of these, by the file's footer.

The footer is a FileMetaData of parquet.thrift in Thrift's compact protocol: the schema as a list of its elements, each
with a type and a name, and the number of rows. Its length stands before the last four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from preflight.python.evaluator import Evaluator
from preflight.python.tabular import TEXT, Columns

_MAGIC = b"PAR1"
_LARGEST = 2**22
"""Bytes of a footer that are read: one of thousands of row groups."""
_TYPES = {0: "bool", 1: "int32", 2: "int64", 4: "float32", 5: "float64", 6: TEXT}
"""parquet.thrift, Type; INT96 and arrays of a fixed length are left out."""
_NARROW = {11: "uint8", 12: "uint16", 13: "uint32", 14: "uint64", 15: "int8", 16: "int16"}
"""ConvertedType of whole numbers whose width is not that of their type."""
_OTHER = frozenset({5, 6, 7, 8, 9, 10})
"""ConvertedType: decimals, dates and times."""
_DEPTH = 16


def read_parquet(ev: Evaluator, path: str) -> Columns | None:
    """The table of a file; None where a column is nested, or of a type that no array has."""
    whole = ev.project.head(path, 0)
    tail = ev.project.head(path, 8, whole[1] - 8) if whole is not None and whole[1] > 12 else None
    if whole is None or tail is None or tail[0][4:] != _MAGIC:
        return None
    (length,) = struct.unpack_from("<I", tail[0])
    found = ev.project.head(path, length, whole[1] - 8 - length) if 0 < length <= min(_LARGEST, whole[1] - 12) else None
    try:
        footer = _Compact(found[0], ev).struct() if found is not None else {}
        return _columns(footer)
    except (IndexError, ValueError, struct.error, UnicodeDecodeError):
        return None


def _columns(footer: Mapping[int, object]) -> Columns | None:
    elements, rows = footer.get(2), footer.get(3)
    if not isinstance(elements, list) or not isinstance(rows, int) or len(elements) < 2:
        return None
    types: dict[str, str] = {}
    for element in elements[1:]:
        name, kind, converted = (element.get(key) for key in (4, 1, 6))
        dtype = _NARROW.get(converted, _TYPES.get(kind)) if converted not in _OTHER else None
        if element.get(5) or element.get(3) == 2 or dtype is None or not isinstance(name, bytes):
            return None  # nested, repeated, or another type
        if dtype == TEXT:
            return None  # how long its texts are is in the data
        types[name.decode()] = dtype
    return Columns(rows, types)


class _Compact:
    """Thrift's compact protocol: structs as their fields by number. What it does not know ends in ValueError."""

    def __init__(self, data: bytes, ev: Evaluator) -> None:
        self._data, self._at, self._ev = data, 0, ev

    def struct(self, depth: int = 0) -> dict[int, object]:
        found, number = dict[int, object](), 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = self._value(head & 15, depth + 1, field=True)
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & 128:
            found, shift = found | (byte & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("too long a number")
        return found | byte << shift

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _value(self, kind: int, depth: int, field: bool = False) -> object:
        self._ev.step()
        if depth > _DEPTH:
            raise ValueError("too deep")
        if kind in (1, 2):
            return kind == 1 if field else self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            self._at += 8
            return None
        if kind == 8:
            size = self._varint()
            self._at += size
            return self._data[self._at - size : self._at]
        if kind in (9, 10):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15, depth + 1) for _ in range(min(size, len(self._data)))]
        if kind == 12:
            return self.struct(depth)
        raise ValueError("an unknown type")
