"""Arrays on disk that are not there (npy, npz, HDF5): of the shapes that the command states, else one line says how.

Nothing in a program tells the shape of such an array, and it decides what a step takes: it is never made up. Texts in
tokens are: a program draws them by a length of its own.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..endings import NotThere
from ..patches import wrap
from ..tape import Tape
from .downloads import TOKENS
from .own_code import asked_by_program, may_be_missing, reads_tokens

_Named = tuple[list[str], Any]
_ANY_NAME = "NAME"
"""What stands for a name that the program has not said yet."""
_ROWS = 64
"""Members of a group whose names are a star."""


class _Group:
    """A file of several arrays, or a group in it. `names`: the stated names as their parts, and what each is."""

    def __init__(self, arrays: Arrays, path: str, names: Sequence[_Named], inside: str = "") -> None:
        self._arrays, self._path, self._names, self._inside = arrays, path, names, inside
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
            raise self._arrays.unknown(self._path, whole)
        return _Group(self._arrays, self._path, found, whole)

    def keys(self) -> list[str]:
        if not self._names:  # nothing was stated of this file
            raise self._arrays.unknown(self._path, _ANY_NAME)
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


class Arrays:
    """What stands for such files. `stated`: [path, name, shape, type] of each --array, whose names may have stars."""

    def __init__(self, stated: Sequence[Sequence[Any]], tape: Tape) -> None:
        self._stated, self._tape = stated, tape
        self._numpy: Any = None

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
        inside, what = (f":{name}" if name else ""), "its arrays" if name in ("", _ANY_NAME) else name
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
            if not os.fspath(file).endswith(".npz") and reads_tokens():
                self._tape.data_made_up = True
                self._tape.assume(
                    f"{os.fspath(file)} is not there: numpy.load has {TOKENS} zeros instead", "train.seq_len"
                )
                return module.zeros(TOKENS, "uint16")
            raise self.unknown(file)

        wrap(module, "load", load)

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
