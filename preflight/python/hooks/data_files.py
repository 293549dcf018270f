"""Files of data: arrays of numpy, torch and h5py, buffers of bytes, and lines of text."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.archives import read_npz, read_saved
from preflight.python.arrays import Array, make, shape_of
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.hdf5 import read_h5
from preflight.python.headers import read_npy
from preflight.python.hooks.arrays import given_dtype, library_of
from preflight.python.objects import Abstract, CallRecord
from preflight.python.texts import list_of_lines, text_of
from preflight.vocabulary.values import Cause, unknown

# Each reads headers alone: what the elements are is no concern.


def _load(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`np.load(path, mmap_mode)`, by the file's header."""
    return read_npy(ev, record) or read_npz(ev, record)


def _saved(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torch.load(path)` of data; weights of a model are tensors, too, and what loads them reads its call."""
    return None if record.argument("mmap") is not None else read_saved(ev, record)


def _memmap(record: CallRecord, ev: Evaluator) -> Abstract | None:
    dtype, shape = given_dtype(record, "uint8", 1), record.object("shape", 4)
    sizes = shape_of(ev, [shape]) if shape is not None else None
    if sizes is None and shape is None and dtype is not None:
        return read_npy(ev, record, dtype)
    return make(record, Array(sizes, dtype, "numpy", mapped=True)) if sizes is not None and dtype else None


def _from_buffer(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`np.frombuffer(data, dtype)`: as long as the data, which is not known."""
    dtype, count = given_dtype(record, "float64", 1), record.argument("count", 2)
    size = count if count is not None else unknown("how much it holds is not known", record.origin, Cause.run_time)
    return make(record, Array((size,), dtype, library_of(record))) if dtype is not None else None


def _lines(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`file.readlines()`, `file.read().splitlines()`"""
    return list_of_lines(ev, record.receiver_object, record)


def _text(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A method of a line that gives a text like it."""
    return record.receiver_object if text_of(record.receiver_object) is not None else None


HOOKS: Mapping[str, Hook] = {
    "numpy.load": _load, "numpy.memmap": _memmap, "torch.load": _saved, "h5py.File": read_h5,
    **dict.fromkeys(("numpy.frombuffer", "numpy.fromfile", "torch.frombuffer"), _from_buffer),
    "*.readlines": _lines, "*.splitlines": _lines,
    **{f"*.{name}": _text for name in ("strip", "rstrip", "lstrip", "lower", "upper", "title", "replace")},
}  # fmt: skip
