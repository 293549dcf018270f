"""Headers of files of arrays beside a program: a .npy file says its shape and type, a plain one its size."""

from __future__ import annotations

import ast
import struct

from preflight.python.arrays import WIDTHS, Array, dtype_of, make
from preflight.python.evaluator import Evaluator
from preflight.python.files import find_file, path_text
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
    text = path_text(ev, record.object("file", 0) or record.object("filename", 0))
    path = find_file(ev, text, record) if text is not None else None
    if path is None:
        return None
    head = ev.project.head(path, HEADER)
    if head is None:
        return None
    data, size = head
    if plain is not None:
        count = Const(size // WIDTHS[plain], record.origin)
        return make(record, Array((count,), plain, "numpy", mapped=True))
    found, mode = npy_header(data), record.argument("mmap_mode", 1)
    if found is None:
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
