"""HDF5 files beside a program: the shapes and types of their data sets, by the headers of the file's objects.

Nothing of the data is read. The layout is that of the HDF5 File Format Specification (version 3.0): a superblock leads
to the root group, a group to its members (a B-tree of symbol table nodes, or link messages), and a data set's object
header has a message with its sizes and one with its type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from preflight.python.arrays import H5, Array, make
from preflight.python.evaluator import Evaluator
from preflight.python.files import find_file, path_text
from preflight.python.objects import Abstract, CallRecord, Instance
from preflight.vocabulary.values import Const

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST = 512
"""Objects of a file that are looked at."""
_BLOCK = 2**16
"""Bytes of an object's header that are read at most."""
_DATASPACE, _DATATYPE, _LINK, _CONTINUATION, _SYMBOLS = 0x01, 0x03, 0x06, 0x10, 0x11

Found = tuple[tuple[int, ...], str]


def read_h5(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """What `h5py.File(path)` gives: its data sets by name, each an array that stays in the file until it is indexed."""
    text = path_text(ev, record.object("name", 0))
    path = find_file(ev, text, record) if text is not None else None
    if path is None:
        return None
    try:
        members = dict(_File(ev, path).members())
    except (struct.error, IndexError, ValueError):
        return None
    return _group(record, members, "") if members else None


def _group(record: CallRecord, members: dict[str, Found], prefix: str) -> Instance:
    made = Instance(record.qualified, record=record, origin=record.origin, state={H5: True})
    for name, (sizes, dtype) in members.items():
        if not name.startswith(prefix):
            continue
        short, _, rest = name[len(prefix) :].partition("/")
        if rest:
            made.attributes.setdefault(short, _group(record, members, f"{prefix}{short}/"))
        array = make(record, Array(tuple(Const(one, record.origin) for one in sizes), dtype, H5, mapped=True))
        assert array is not None
        made.attributes[name[len(prefix) :]] = array
    return made


class _File:
    """A file whose parts are read by their addresses. What it does not have ends in struct.error or IndexError."""

    def __init__(self, ev: Evaluator, path: str) -> None:
        self._ev, self._path, self._left = ev, path, _MOST
        start = self._at(0, 96)
        if not start.startswith(_SIGNATURE):
            raise ValueError("no HDF5 file")
        version = start[8]
        sizes = start[13:15] if version < 2 else start[9:11]
        if sizes != b"\x08\x08":
            raise ValueError("addresses of another width")
        at = {0: 64, 1: 68}.get(version, 36)  # the root group's header, behind flags and addresses
        self._root = struct.unpack_from("<Q", start, at)[0]

    def members(self) -> Iterator[tuple[str, Found]]:
        """The names of all data sets from the root on, with shapes and types."""
        yield from self._within(self._root, "", 0)

    def _at(self, address: int, size: int) -> bytes:
        self._ev.step()
        found = self._ev.project.head(self._path, size, address) if 0 <= address < 2**62 else None
        if found is None or not found[0]:
            raise ValueError("no such place")
        return found[0]

    def _within(self, address: int, prefix: str, depth: int) -> Iterator[tuple[str, Found]]:
        self._left -= 1
        if self._left < 0 or depth > 8:
            raise ValueError("too many objects")
        shape: tuple[int, ...] | None = None
        dtype: str | None = None
        members = list[tuple[str, int]]()
        for kind, data in self._messages(address):
            if kind == _DATASPACE:
                shape = _shape(data)
            elif kind == _DATATYPE:
                dtype = _dtype(data)
            elif kind == _LINK:
                members += _link(data)
            elif kind == _SYMBOLS:
                tree, heap = struct.unpack_from("<QQ", data)
                names = self._at(*struct.unpack_from("<8xQ8xQ", self._at(heap, 32))[::-1]) if tree != 2**64 - 1 else b""
                members += self._symbols(tree, names, 0) if names else ()
        if shape is not None and dtype is not None and prefix:
            yield prefix, (shape, dtype)
        for name, where in members:
            yield from self._within(where, f"{prefix}/{name}" if prefix else name, depth + 1)

    def _symbols(self, address: int, names: bytes, depth: int) -> Iterator[tuple[str, int]]:
        """The members of a group by its B-tree (version 1)."""
        node = self._at(address, 24)
        if node[:4] == b"SNOD":
            (count,) = struct.unpack_from("<H", node, 6)
            entries = self._at(address + 8, 40 * count)
            for number in range(count):
                name, header = struct.unpack_from("<QQ", entries, 40 * number)
                yield names[name : names.index(b"\0", name)].decode("utf-8", "replace"), header
        elif node[:4] == b"TREE" and depth < 8:
            (count,) = struct.unpack_from("<H", node, 6)
            children = self._at(address + 24, 16 * count + 8)
            for number in range(min(count, _MOST)):
                yield from self._symbols(struct.unpack_from("<Q", children, 16 * number + 8)[0], names, depth + 1)

    def _messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        """The messages of an object's header, those of its continuations included."""
        first = self._at(address, 64)
        new = first[:4] == b"OHDR"
        if new:
            flags, at = first[5], 6
            at += 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
            width = 1 << (flags & 3)
            size = int.from_bytes(first[at : at + width], "little")
            blocks = [(address + at + width, size)]
            head = 6 if flags & 0x04 else 4
        else:
            blocks = [(address + 16, struct.unpack_from("<I", first, 8)[0])]
            head = 8
        for _ in range(_MOST):
            if not blocks:
                return
            start, size = blocks.pop(0)
            data, at = self._at(start, min(size, _BLOCK)), 0
            while at + head <= len(data):
                if new:
                    kind, length = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
                else:
                    kind, length = struct.unpack_from("<HH", data, at)
                body = data[at + head : at + head + length]
                at += head + length
                if kind == _CONTINUATION:
                    where, size = struct.unpack_from("<QQ", body)
                    blocks.append((where + 4, size - 8) if new else (where, size))  # "OCHK" before, a sum behind
                else:
                    yield kind, body


def _shape(data: bytes) -> tuple[int, ...] | None:
    version, rank = data[0], data[1]
    if version not in (1, 2):
        return None
    return struct.unpack_from(f"<{rank}Q", data, 8 if version == 1 else 4)


def _dtype(data: bytes) -> str | None:
    """Whole numbers, fractions, and h5py's bool (an enumeration of one byte)."""
    (size,) = struct.unpack_from("<I", data, 4)
    kind = data[0] & 15
    if kind == 0:
        return f"{'' if data[1] & 8 else 'u'}int{8 * size}"
    return f"float{8 * size}" if kind == 1 else "bool" if kind == 8 and size == 1 else None


def _link(data: bytes) -> Iterator[tuple[str, int]]:
    """The name and the address that a hard link has."""
    flags, at = data[1], 2
    if flags & 8:
        if data[at]:
            return  # a soft or an external link
        at += 1
    at += 8 * bool(flags & 4) + bool(flags & 16)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[at : at + width], "little")
    at += width
    yield data[at : at + length].decode("utf-8", "replace"), struct.unpack_from("<Q", data, at + length)[0]
