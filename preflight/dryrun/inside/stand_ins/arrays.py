"""Arrays on disk that are not there (npy, npz, HDF5, MATLAB, texts of numbers, pickles): of the shapes that the command
states, else of those that are tried (`guesses`). Texts in tokens are flat: a program draws them by a length of its own.
"""

from __future__ import annotations

import fnmatch
import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..endings import NotThere
from ..patches import wrap
from ..tape import Tape
from .downloads import TOKENS
from .guesses import Guesses, in_sample
from .own_code import asked_by_program, assigned_names, called_by_program, may_be_missing, program_frame, reads_tokens

_Named = tuple[list[str], Any]
_PACKED = (".pkl", ".pickle", ".pk", ".p", ".dat")
"""Endings of what pickle writes."""
_ROWS = 64
"""Members of a group whose names are a star."""


class _Group:
    """A file of several arrays, or a group in it. `names`: the stated names as their parts, and what each is."""

    def __init__(self, arrays: Arrays, path: str, names: Sequence[_Named], inside: str = "") -> None:
        self._arrays, self._path, self._names, self._inside = arrays, path, names, inside
        self._whole = not in_sample()
        self.attrs: dict[str, Any] = {}

    def __getitem__(self, name: Any) -> Any:
        found: Any = self
        for part in filter(None, str(name).split("/")):
            found = found._member(part)
        return found

    def _member(self, part: str) -> Any:
        whole = f"{self._inside}/{part}".lstrip("/")
        found = [(parts[1:], what) for parts, what in self._names if parts and fnmatch.fnmatch(part, parts[0])]
        for parts, what in found:
            if not parts:
                return self._arrays.zeros(what)
        if not found:
            if self._names:
                raise self._arrays.unknown(self._path, whole)
            return self._arrays.node(self._path, whole, self._whole)
        return _Group(self._arrays, self._path, found, whole)

    def keys(self) -> list[str]:
        if not self._names:  # nothing was stated of this file
            return [str(number) for number in range(_ROWS)]
        names = dict.fromkeys(parts[0] for parts, _ in self._names if parts)
        return [str(number) for number in range(_ROWS)] if "*" in names else list(names)

    files = property(keys)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def values(self) -> list[Any]:
        return [self[one] for one in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        return [(one, self[one]) for one in self.keys()]

    def close(self) -> None: ...
    def __enter__(self) -> _Group:
        return self

    def __exit__(self, *_: Any) -> None: ...


@functools.cache
def _node_of(array: Any) -> Any:
    """The class of numpy's arrays that have parts."""

    class Node(array):
        _dry: Any = None

        def __array_finalize__(self, of: Any) -> None:
            self._dry = getattr(of, "_dry", None)

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, str) and self._dry is not None:
                arrays, path, name, whole = self._dry
                return arrays.part(path, name, key, whole)
            return super().__getitem__(key)

        def get(self, key: Any, _: Any = None) -> Any:
            return self[key]

        def keys(self) -> list[str]:
            return [str(number) for number in range(_ROWS)]

        def values(self) -> list[Any]:
            return [self[one] for one in self.keys()]

        def items(self, *args: Any) -> Any:
            return [(one, self[one]) for one in self.keys()]

        def item(self, *args: Any) -> Any:
            """An object that was saved as an array of one: a dictionary, most often."""
            return self if not args and self.size > 1 else super().item(*args)

        @property
        def value(self) -> Any:
            return self

    return Node


class _Tensors(dict):  # type: ignore[type-arg]
    """Tensors by their names."""

    def __init__(self, arrays: Arrays, path: str) -> None:
        super().__init__()
        self._arrays, self._path = arrays, path

    def __missing__(self, name: Any) -> Any:
        self[name] = self._arrays._tensor(self._path, str(name))
        return self[name]

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: Any, _: Any = None) -> Any:
        return self[name]


def _is_packed(name: str) -> bool:
    """Whether a file is one that pickle wrote: by its ending; without one, by what the program's own file imports."""
    if os.path.splitext(name)[1]:
        return name.endswith(_PACKED)
    frame = program_frame() if called_by_program() else None
    return frame is not None and any(one in frame.f_globals for one in ("pickle", "cPickle", "dill", "pkl"))


class _Packed(io.BytesIO):
    """A file that pickle has written and that is not there."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


class Arrays:
    """What stands for such files. `stated`: [path, name, shape, type] of each --array, whose names may have stars."""

    def __init__(self, stated: Sequence[Sequence[Any]], tape: Tape, guesses: Guesses) -> None:
        self._stated, self._tape, self._guesses = stated, tape, guesses
        self._numpy: Any = None

    @property
    def guesses(self) -> Guesses:
        """What was tried, and learnt."""
        return self._guesses

    def _of(self, path: Any) -> list[_Named]:
        """The arrays that were stated for a file, by the parts of their names."""
        name = os.fspath(path)
        same = (name, os.path.normpath(name), os.path.basename(name))
        found = [
            ([part for part in one[1].split("/") if part], one[2:])
            for one in self._stated
            if any(fnmatch.fnmatch(own, one[0]) for own in same)
        ]
        if found:
            self._tape.data_made_up = True
            self._tape.assume(f"{name} is not there: its arrays are those of --array, with zeros")
        return found

    def zeros(self, what: Any) -> Any:
        shape, kind = what
        return self._numpy.zeros(shape, kind)

    def unknown(self, path: Any, name: str = "") -> NotThere:
        """The error of an array whose shape nothing tells."""
        inside, what = (f":{name}" if name else ""), name or "its arrays"
        return NotThere(
            f"{os.fspath(path)} is not there, and nothing tells the shape of {what}: put it there, or "
            f"state the shape, as in --array '{os.fspath(path)}{inside}=1000x3x64x64'"
        )

    def numpy(self, module: Any) -> None:
        """numpy: `load` of a file that is not there."""
        self._numpy = module

        def load(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(file, (str, os.PathLike)) or os.path.exists(file) or not asked_by_program():
                return real(file, *args, **kwargs)
            found = self._of(file)
            if found:
                return self.zeros(found[0][1]) if not found[0][0] else _Group(self, os.fspath(file), found)
            if may_be_missing():
                return real(file, *args, **kwargs)
            name = os.fspath(file)
            if name.endswith(".npz"):
                return _Group(self, name, ())
            if reads_tokens():
                self._tape.data_made_up = True
                self._tape.assume(f"{name} is not there: numpy.load has {TOKENS} zeros instead", "train.seq_len")
                return module.zeros(TOKENS, "uint16")
            return self.node(name)

        def table(real: Any, file: Any, dtype: Any = float, *args: Any, **kwargs: Any) -> Any:
            """Numbers in a text: rows of columns."""
            if not isinstance(file, (str, os.PathLike)) or os.path.exists(file) or not self.missed():
                return real(file, dtype, *args, **kwargs)
            return self._guesses.array(module, file, "", 1, dtype)

        wrap(module, "load", load)
        for name in ("loadtxt", "genfromtxt"):
            wrap(module, name, table)

    def missed(self) -> bool:
        """Whether the program's own code asks for a file, and does not expect that it may be missing."""
        return asked_by_program() and not may_be_missing()

    def node(self, path: str, name: str = "", whole: bool = False) -> Any:
        """What stands for an array, or a part of a file with arrays in it: it has every name that is asked for. A file
        that the program takes apart at once has as many parts."""
        self._numpy = self._numpy or __import__("numpy")
        several = assigned_names() if not name else []
        if len(several) > 1:
            return tuple(self.node(path, one) for one in several)
        whole = whole or not in_sample()
        made = self._guesses.array(self._numpy, path, name, whole=whole)
        found = made.view(_node_of(self._numpy.ndarray))
        found._dry = (self, path, name, whole)
        return found

    def part(self, path: str, of: str, name: str, whole: bool) -> Any:
        """A part of a file that was taken for an array."""
        self._guesses.forget(path, of)
        return self.node(path, f"{of}/{name}".lstrip("/"), whole)

    def holds_data(self, path: Any) -> bool:
        """Whether a file for torch.load was found to be no checkpoint."""
        return isinstance(path, (str, os.PathLike)) and os.fspath(path) in self._guesses.data

    def tensors(self, path: str) -> Any:
        """What torch.load returns of a file that is no checkpoint: a tensor, or tensors by their names."""
        if self._guesses.data[path] == "named":
            return _Tensors(self, path)
        several = assigned_names()
        found = [self._tensor(path, one) for one in (several if len(several) > 1 else [""])]
        return found[0] if len(found) == 1 else tuple(found)

    def _tensor(self, path: str, name: str) -> Any:
        import torch

        self._numpy = self._numpy or __import__("numpy")
        return torch.from_numpy(self._guesses.array(self._numpy, path, name))

    def files(self, module: Any) -> None:
        """`open` of a file that pickle has written and that is not there."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                if mode != "rb" or not _is_packed(str(file)) or not self.missed():
                    raise
            return _Packed(str(file))

        wrap(module, "open", opened)

    def pickle(self, module: Any) -> None:
        """pickle, dill and joblib: `load`."""

        def load(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, _Packed):
                return self.node(file.path)
            named = isinstance(file, (str, os.PathLike))
            if named and not os.path.exists(file) and self.missed():
                return self.node(os.fspath(file))
            return real(file, *args, **kwargs)

        wrap(module, "load", load)

    def scipy(self, module: Any) -> None:
        """scipy.io: `loadmat`."""

        def load(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            named = isinstance(file, (str, os.PathLike))
            if not named or os.path.exists(file) or not self.missed():
                return real(file, *args, **kwargs)
            return _Group(self, os.fspath(file), self._of(file))

        wrap(module, "loadmat", load)

    def h5py(self, module: Any) -> None:
        """h5py: `File` of a file that is not there, for reading."""
        real = module.File

        class File(real):  # type: ignore[misc, valid-type]
            def __new__(cls, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
                missing = isinstance(name, (str, os.PathLike)) and mode == "r" and not os.path.exists(name)
                group = arrays.group(name) if missing else None
                return super().__new__(cls) if group is None else group

        arrays = self
        File.__name__ = File.__qualname__ = "File"
        File.__module__ = real.__module__
        module.File = File

    def group(self, path: Any) -> Any:
        """The arrays of a file of several; None where the program expects that it may be missing."""
        self._numpy = self._numpy or __import__("numpy")
        found = self._of(path)
        if found:
            return _Group(self, os.fspath(path), found)
        return None if may_be_missing() or not asked_by_program() else _Group(self, os.fspath(path), ())
