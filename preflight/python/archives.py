"""Archives of arrays beside a program: what numpy's .npz and torch's .pt files hold, by the headers of their members.

Nothing is unpickled: of the program that a .pt file has, only the few steps that put tensors into dicts and lists are
followed, and any other step ends the reading.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import cast

from msgspec import Struct

from preflight.python.arrays import Array, make
from preflight.python.evaluator import Evaluator
from preflight.python.files import find_file, path_text
from preflight.python.headers import HEADER, npy_header
from preflight.python.objects import ARRAY, Abstract, CallRecord, Container, Instance, sequence
from preflight.vocabulary.project import Project
from preflight.vocabulary.values import Const

IN_FILE = "in its file"
"""The key of an object's state: what its items are made from stays in a file, until they are asked for."""
_PART = 2**20
"""Bytes of an archive that are read at once: its list of members, or one of its headers."""
_MEMBERS = 4096
"""Members of an archive that are looked at."""
_PARTS = 50_000
"""Steps of the program of a .pt file, and parts of its value, that are followed. A part that stands in several places
counts in each."""


class _File(io.RawIOBase):
    """A file of the project, of which only the parts that are asked for are read."""

    def __init__(self, project: Project, path: str) -> None:
        self._project, self._path, self._at = project, path, 0
        found = project.head(path, 0)
        self.size = found[1] if found is not None else 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        wanted = self.size - self._at if size is None or size < 0 else size
        found = self._project.head(self._path, wanted, self._at) if 0 < wanted <= _PART else None
        data = found[0] if found is not None else b""
        self._at += len(data)
        return data


def _members(ev: Evaluator, record: CallRecord, *names: str) -> Iterator[tuple[str, bytes]]:
    """The members of a zip archive that a call is given, each with its first bytes."""
    text = path_text(ev, next((one for name in names if (one := record.object(name, 0)) is not None), None))
    path = find_file(ev, text, record) if text is not None else None
    if path is None:
        return
    try:
        with zipfile.ZipFile(_File(ev.project, path)) as archive:
            for member in archive.infolist()[:_MEMBERS]:
                ev.step()
                with archive.open(member) as file:
                    yield member.filename, file.read(_PART if member.filename.endswith("data.pkl") else HEADER)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return


def read_npz(ev: Evaluator, record: CallRecord) -> Abstract | None:
    """The arrays of `np.load("file.npz")`, each read when it is asked for."""
    made = Instance(record.qualified, record=record, origin=record.origin, state={IN_FILE: True})
    for name, data in _members(ev, record, "file"):
        found = npy_header(data) if name.endswith(".npy") else None
        if found is not None:
            array = make(record, Array(tuple(Const(one, record.origin) for one in found[0]), found[1], "numpy"))
            assert array is not None
            made.attributes[name[:-4]] = array
    return made if made.attributes else None


def read_saved(ev: Evaluator, record: CallRecord) -> Abstract | None:
    """What `torch.load(path)` gives, where that is tensors, numbers and texts in dicts and lists."""
    for name, data in _members(ev, record, "f", "path"):
        if name.endswith("/data.pkl"):
            try:
                return _value(_saved(data), record)
            except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError, StopIteration):
                return None
    return None


# --- the program of a .pt file ----------------------------------------------------------------------------------------


class _Saved(Struct, frozen=True):
    """A tensor of a file: its sizes, its type, and which storage has its elements."""

    shape: tuple[int, ...]
    dtype: str
    storage: str


_TYPES = {"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "LongStorage": "int64",
          "BFloat16Storage": "bfloat16", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
          "ByteStorage": "uint8", "BoolStorage": "bool"}  # fmt: skip
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _saved(data: bytes) -> object:
    """The value that a pickle of tensors describes. Raises ValueError where it describes anything else."""
    stack, memo = list[object](), dict[object, object]()
    for opcode, argument, _ in islice(pickletools.genops(data), _PARTS):
        name = opcode.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name.startswith(("BINPUT", "LONG_BINPUT")):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name.startswith(("BINGET", "LONG_BINGET")):
            stack.append(memo[argument])
        elif name.startswith(("BININT", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE")):
            stack.append(argument)
        elif name == "GLOBAL":
            stack.append(str(argument))
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name == "TUPLE":
            stack.append(tuple(_to_mark(stack)))
        elif name in ("SETITEM", "SETITEMS"):
            items = _to_mark(stack) if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
            target = stack[-1]
            if type(target) is not dict:
                raise ValueError(name)
            target.update(zip(items[::2], items[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            items = _to_mark(stack) if name == "APPENDS" else [stack.pop()]
            target = stack[-1]
            if type(target) is not list:
                raise ValueError(name)
            target.extend(items)
        elif name == "BINPERSID":
            stack[-1] = ("storage", *_sequence(stack[-1])[1:3])
        elif name == "REDUCE":
            given, called = _sequence(stack.pop()), stack.pop()
            stack.append(_reduced(str(called), given))
        else:
            raise ValueError(name)
    raise ValueError("its end was not reached")


def _sequence(value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise ValueError("no tuple")
    return value


def _to_mark(stack: list[object]) -> list[object]:
    at = next(i for i in reversed(range(len(stack))) if stack[i] is _MARK)
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _reduced(called: str, given: tuple[object, ...]) -> object:
    if called == "collections OrderedDict" and not given:
        return {}
    if called != "torch._utils _rebuild_tensor_v2":
        raise ValueError(called)
    _, kind, key = _sequence(given[0])
    shape = _sequence(given[2])
    if not all(type(one) is int and one >= 0 for one in shape):
        raise ValueError("no shape")
    return _Saved(shape, _TYPES[str(kind).rpartition(" ")[2]], str(key))  # type: ignore[arg-type]


def _value(found: object, record: CallRecord) -> Abstract:
    """The abstract value; tensors of one storage have it together."""
    storages: dict[str, Array] = {}
    left = iter(range(_PARTS))

    def built(one: object) -> Abstract:
        if next(left, None) is None:
            raise ValueError("too many parts")
        if isinstance(one, _Saved):
            shape = tuple(Const(size, record.origin) for size in one.shape)
            before = storages.get(one.storage)
            made = make(record, Array(shape, one.dtype, storage=before.storage if before is not None else 0))
            assert made is not None
            storages.setdefault(one.storage, cast(Array, made.state[ARRAY]))
            return made
        if isinstance(one, dict):
            return Container("dict", {key: built(value) for key, value in one.items()}, record.origin)
        if isinstance(one, (list, tuple)):
            return sequence([built(value) for value in one], type(one).__name__, record.origin)
        if isinstance(one, (str, int, float, bool, type(None))):
            return Const(one, record.origin)
        raise ValueError(type(one).__name__)

    return built(found)
