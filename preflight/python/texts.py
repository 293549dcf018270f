"""Files of text beside a program: their lines, and the values that json makes of each. Of a line that a program reads,
its mean length is known, and how many there are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from msgspec import Struct

from preflight.python.arrays import number
from preflight.python.evaluator import Evaluator
from preflight.python.files import find_file
from preflight.python.known_kinds import DRAWN, DRAWN_WHOLE, SHARED, number_bytes
from preflight.python.objects import Abstract, CallRecord, Container, Instance, Key, is_expr, to_expr
from preflight.vocabulary.values import Cause, Const, Origin, Unknown, unknown

TEXT = "text"
"""The key of an object's state for its `Text`: it is a line of a file, or a part of a value read from one."""
_HEAD = 2**16
_PART = 2**22
_LARGEST = 2**29
"""A larger file is not read to its end: half a second a GiB."""
_STR = 49
"""Bytes of a str of ASCII beside its characters, and the end of these (CPython 3.11, 64 bits)."""
_DEPTH = 12


class Text(Struct, frozen=True):
    """`width`: mean bytes of a text; `file`: the path of the file that it is a line of."""

    width: int
    file: str = ""

    @property
    def size(self) -> int:
        """Bytes of the str, in a block of 16."""
        return -(-(_STR + self.width) // 16) * 16


class Lines(Struct, frozen=True):
    """The lines of a file: how many, and their mean length with the line break."""

    count: int
    width: int


def text_of(value: Abstract | None) -> Text | None:
    found = value.state.get(TEXT) if isinstance(value, Instance) else None
    return found if isinstance(found, Text) else None


def made_text(text: Text, origin: Origin | None = None) -> Instance:
    return Instance(TEXT, origin=origin, state={TEXT: text})


def path_of_lines(ev: Evaluator, value: Abstract | None) -> str | None:
    """The file that an object of `open(path)` reads its lines from; None where it is none, or is not there."""
    if not isinstance(value, Instance) or value.made_by != "open":
        return None
    path = value.state.get("path")
    return find_file(ev, path, value.record) if isinstance(path, str) else None


def lines_of(ev: Evaluator, path: str) -> Lines | None:
    """The lines of a file of text; None for a larger file than is read, and for one that has none."""
    head = ev.project.head(path, _HEAD)
    if head is None or head[1] > _LARGEST or not head[1] or b"\0" in head[0]:
        return None
    count, last, size = 0, b"\n", head[1]
    for start in range(0, size, _PART):
        ev.step(64)
        part = ev.project.head(path, _PART, start)
        data = part[0] if part is not None else b""
        count, last = count + data.count(b"\n"), data[-1:]
    count += last != b"\n"
    return Lines(count, size // count)


def line_of(ev: Evaluator, value: Abstract | None, origin: Origin | None = None) -> Instance | None:
    """A line that a loop over an open file gives."""
    path = path_of_lines(ev, value)
    found = lines_of(ev, path) if path is not None else None
    return made_text(Text(found.width, path or ""), origin) if found is not None else None


def list_of_lines(ev: Evaluator, value: Abstract | None, record: CallRecord) -> Container | None:
    """`file.readlines()`, `file.read().splitlines()`"""
    path = path_of_lines(ev, value)
    found = lines_of(ev, path) if path is not None else None
    if found is None or path is None:
        return None
    made = Container("list", {0: made_text(Text(found.width, path), record.origin)}, record.origin, {"open": True})
    made.count = Const(found.count, record.origin)
    return made


# --- values of JSON ---------------------------------------------------------------------------------------------------


def value_of_line(ev: Evaluator, text: Text, record: CallRecord) -> Abstract | None:
    """What `json.loads(line)` gives: an object like the first, with the mean size of those at the file's beginning."""
    head = ev.project.head(text.file, _HEAD) if text.file else None
    if head is None:
        return None
    data = head[0] if len(head[0]) == head[1] else head[0][: head[0].rfind(b"\n") + 1]
    try:
        found = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    if not found:
        return None
    ev.step(len(found))
    made = _alike(found[0], record, 0)
    if isinstance(made, Container):
        made.size = sum(_size(one, 0) for one in found) // len(found)
    return made


def _alike(value: object, record: CallRecord, depth: int) -> Abstract:
    """A value of which only the kind is known."""
    if isinstance(value, Mapping) and depth < _DEPTH:
        items: dict[Key, Abstract] = {str(key): _alike(one, record, depth + 1) for key, one in value.items()}
        return Container("dict", items, record.origin)
    if isinstance(value, list) and value and depth < _DEPTH:
        return Container("list", {0: _alike(value[0], record, depth + 1)}, record.origin, {"open": True})
    if isinstance(value, str):
        return made_text(Text(len(value)), record.origin)
    whole = isinstance(value, int)
    if whole or isinstance(value, float):
        return unknown(DRAWN_WHOLE if whole else DRAWN, record.origin, Cause.run_time)
    return unknown("a value of the file", record.origin, Cause.run_time)


def _size(value: object, depth: int) -> int:
    """Bytes of a value and of all in it, in blocks of 16; the numbers to 256 and single letters are Python's own."""
    if depth > _DEPTH or value is None or (isinstance(value, int) and value in SHARED):
        return 0
    own = -(-sys.getsizeof(value) // 16) * 16
    if isinstance(value, Mapping):  # each line has keys of its own (json.decoder forgets them)
        return own + sum(_size(key, depth + 1) + _size(one, depth + 1) for key, one in value.items())
    return own + sum(_size(one, depth + 1) for one in value) if isinstance(value, list) else own


# --- what objects of Python take --------------------------------------------------------------------------------------


def table_bytes(keys: int, texts: bool) -> int:
    """The table of a dict (Objects/dictobject.c, 3.11): a power of two of slots, of which two thirds are used, with an
    index each; entries of texts have no hash of their own."""
    slots = 8
    while slots * 2 // 3 < keys:
        slots *= 2
    index = 1 if slots <= 2**7 else 2 if slots <= 2**15 else 4
    return -(-(32 + slots * index + slots * 2 // 3 * (16 if texts else 24)) // 16) * 16


def object_bytes(value: Abstract, ev: Evaluator, _depth: int = 0) -> int | None:
    """What a Python object takes that each item of a list has one of (CPython 3.11, blocks of 16 bytes); None: not
    known. Constants of the program's text are shared by all items."""
    ev.step()
    if (text := text_of(value)) is not None:
        return text.size
    if isinstance(value, Container) and value.size is not None:
        return value.size
    if isinstance(value, Container) and not value.open and _depth < 6:
        inner = [object_bytes(item, ev, _depth + 1) for item in value.items.values()]
        texts = all(isinstance(key, str) for key in value.items)
        size = table_bytes(len(inner), texts) if value.kind == "dict" else 8 * len(inner)
        own = {"dict": 80, "tuple": 56}.get(value.kind, 72) + size
        return None if None in inner else -(-own // 16) * 16 + sum(one or 0 for one in inner)
    if isinstance(value, Container) and value.kind == "list" and value.count is not None and _depth < 6:
        count, each = number(value.count), object_bytes(value.items[0], ev, _depth + 1) if 0 in value.items else None
        return 56 + count * (8 + each) if count is not None and each is not None else None
    if not is_expr(value):
        return None
    expr = to_expr(value)
    if isinstance(expr, Const) and not isinstance(expr.value, Unknown):
        return 0
    if getattr(expr, "operator", "") == "concat":
        return 80
    return number_bytes(expr, ev)
