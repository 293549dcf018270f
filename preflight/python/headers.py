"""Headers of files beside a program: of arrays (.npy: shape and type; plain: the size) and pictures (their sides)."""

from __future__ import annotations

import ast
import struct

from preflight.python.arrays import WIDTHS, Array, dtype_of, make
from preflight.python.evaluator import Evaluator
from preflight.python.files import find_file, path_text, some_files
from preflight.python.objects import Abstract, CallRecord
from preflight.vocabulary.values import Const

# numpy/lib/format.py: a magic text, the version in two bytes, the length of the header in two bytes (four from version
# 2 on), and the header, which is the text of a dict. A file that `tofile` or `open(..., "wb")` wrote has its elements,
# so its size is all that says how many they are.

HEADER = 4096
"""Bytes of a file that are read: numpy's headers have 128, more only for records."""
_MAGIC = b"\x93NUMPY"


def read_npy(ev: Evaluator, record: CallRecord, plain: str | None = None) -> Abstract | None:
    """The array of `np.load(path)`; `plain`: the file has elements of this type alone (`np.memmap`)."""
    given = record.object("file", 0) or record.object("filename", 0)
    text = path_text(ev, given)
    path = find_file(ev, text, record) if text is not None else None
    heads = [ev.project.head(one, HEADER) for one in ([path] if path is not None else some_files(ev, given))]
    if not heads or heads[0] is None:
        return None
    data, size = heads[0]
    if plain is not None:
        if any(one is None or one[1] != size for one in heads):
            return None
        count = Const(size // WIDTHS[plain], record.origin)
        return make(record, Array((count,), plain, "numpy", mapped=True))
    found, mode = npy_header(data), record.argument("mmap_mode", 1)
    if found is None or any(one is None or npy_header(one[0]) != found for one in heads):
        return None
    shape, dtype = found
    sizes = tuple(Const(one, record.origin) for one in shape)
    return make(record, Array(sizes, dtype, "numpy", mapped=mode is not None and ev.value_of(mode) is not None))


def npy_header(data: bytes) -> tuple[tuple[int, ...], str] | None:
    """Shape and type by the header of a .npy file (numpy/lib/format.py); None where it is none, or has records."""
    if not data.startswith(_MAGIC) or len(data) < 12:
        return None
    wide = data[6] >= 2
    start = 12 if wide else 10
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    try:
        fields = ast.literal_eval(data[start : start + length].decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    shape, kind = fields.get("shape"), fields.get("descr")
    dtype = dtype_of(Const(kind), "numpy") if isinstance(kind, str) else None
    if dtype is None or not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
        return None
    return shape, dtype


# --- pictures ---------------------------------------------------------------------------------------------------------

_PICTURE = 2**16
"""Bytes of a file that are read: a JPEG file may have a small picture and notes before its own sizes."""
_PNG = b"\x89PNG\r\n\x1a\n"
_OF_PNG = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Colour type (PNG specification, 11.2.2) -> channels; a palette has one."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a frame, which has the sizes (ITU T.81, table B.1)."""

Sizes = tuple[int | None, int | None, int]


def sizes_of_files(ev: Evaluator, value: Abstract | None, record: CallRecord) -> Sizes | None:
    """Height, width and channels of the pictures that a path may be of; sides that differ are None."""
    text = path_text(ev, value)
    path = find_file(ev, text, record) if text is not None else None
    found = [_sizes(ev, one) for one in ([path] if path is not None else some_files(ev, value))]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found) or len({one[2] for one in known}) > 1:
        return None
    high, wide, channels = zip(*known, strict=True)
    return (high[0] if len({*high}) == 1 else None, wide[0] if len({*wide}) == 1 else None, channels[0])


def _sizes(ev: Evaluator, path: str) -> tuple[int, int, int] | None:
    head = ev.project.head(path, _PICTURE)
    data = head[0] if head is not None else b""
    ev.step()
    try:
        if data.startswith(_PNG):
            wide, high, _, colour = struct.unpack_from(">IIBB", data, 16)
            return high, wide, _OF_PNG[colour]
        return _of_jpeg(data) if data.startswith(b"\xff\xd8") else None
    except (struct.error, IndexError, KeyError):
        return None


def _of_jpeg(data: bytes) -> tuple[int, int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            high, wide, channels = struct.unpack_from(">HHB", data, at + 5)
            return high, wide, channels
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None
