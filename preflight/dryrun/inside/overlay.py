"""Writes of the program go to scratch, where the kernel does not see to it: the layer in Python.

The program finds there again what it wrote. What cannot be sent there is refused by the audit hook (`safety`).
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from typing import Any

from .patches import wrap

_ASKS = ("stat", "lstat", "listdir", "scandir", "access")


class Overlay:
    """Names outside of scratch, and where their copies are."""

    def __init__(self, scratch: str) -> None:
        self._scratch = os.path.realpath(scratch)
        self._files = os.path.join(self._scratch, "files")
        self._open, self._exists, self._makedirs = builtins.open, os.path.exists, os.makedirs

    def inside(self, path: Any) -> bool:
        name = os.path.abspath(os.fsdecode(path))
        return name.startswith((self._scratch + os.sep, "/dev/", "/proc/self")) or name == self._scratch

    def copy(self, path: Any) -> str:
        """Where the copy of a name is, or would be."""
        return os.path.join(self._files, os.path.abspath(os.fsdecode(path)).lstrip(os.sep))

    def found(self, path: Any) -> Any:
        """The copy of a name if the program has made one, else the name."""
        if not isinstance(path, (str, bytes, os.PathLike)) or self.inside(path):
            return path
        copy = self.copy(path)
        return copy if self._exists(copy) else path

    def parent(self, path: Any) -> str:
        copy = self.copy(path)
        self._makedirs(os.path.dirname(copy), exist_ok=True)
        return copy

    def opened(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(file, (str, bytes, os.PathLike)) or self.inside(file):
            return self._open(file, mode, *args, **kwargs)
        if not any(letter in mode for letter in "wax+"):
            return self._open(self.found(file), mode, *args, **kwargs)
        copy = self.parent(file)
        if "w" not in mode and "x" not in mode and not self._exists(copy) and self._exists(file):
            shutil.copyfile(file, copy)
        return self._open(copy, mode, *args, **kwargs)

    def made(self, real: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        if self.inside(path):
            real(path, *args, **kwargs)
        elif self._exists(self.found(path)):
            raise FileExistsError(17, "File exists", path)
        else:
            real(self.parent(path), *args, **kwargs)

    def moved(self, real: Any, source: Any, into: Any, **kwargs: Any) -> Any:
        return real(self.found(source), into if self.inside(into) else self.parent(into), **kwargs)

    def gone(self, real: Any, path: Any, **kwargs: Any) -> None:
        real(self.found(path), **kwargs)

    def asked(self, real: Any, path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        return real(self.found(path), *args, **kwargs)

    def entered(self, real: Any, path: Any) -> None:
        real(self.found(path))


def install(scratch: str) -> None:
    """Put the layer under `open` and the functions of `os`."""
    overlay = Overlay(scratch)
    builtins.open = io.open = overlay.opened
    wrap(os, "mkdir", overlay.made)
    for name in ("rename", "replace"):
        wrap(os, name, overlay.moved)
    for name in ("remove", "unlink", "rmdir"):
        wrap(os, name, overlay.gone)
    for name in _ASKS:
        wrap(os, name, overlay.asked)
    for name in ("exists", "isdir", "isfile", "getsize", "getmtime"):
        wrap(os.path, name, overlay.asked)
    wrap(os, "chdir", overlay.entered)
    for name in ("utime", "chmod", "chown"):
        wrap(os, name, lambda *_, **__: None)
