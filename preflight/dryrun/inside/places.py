"""Where the program is: the line of the user's file, and the line of the library that it called."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
_OURS, _LIBRARY, _USER = 0, 1, 2
_LIBRARIES = tuple(
    {
        os.path.dirname(os.__file__) + os.sep,
        *(path + os.sep for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")),
    }
)
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_KINDS: dict[str, int] = {}


def _kind_of_file(name: str) -> int:
    """Files of this tool and of torch are never named: a line of theirs says nothing about the program."""
    if name.startswith((HERE, "<")):
        return _OURS
    packaged = any(folder in name for folder in _PACKAGES)
    if packaged and f"{os.sep}torch{os.sep}" in name:
        return _OURS
    return _LIBRARY if packaged or name.startswith(_LIBRARIES) else _USER


def is_users(name: str) -> bool:
    """Whether a file is the user's own."""
    kind = _KINDS.get(name)
    if kind is None:
        kind = _KINDS[name] = _kind_of_file(name)
    return kind == _USER


def here(depth: int = 2) -> tuple[str, str]:
    """(line of a library, line of the user's file) that are at work; each is "file:line" or empty."""
    frame: Any = sys._getframe(depth)
    library = ""
    while frame is not None:
        name = frame.f_code.co_filename
        kind = _KINDS.get(name)
        if kind is None:
            kind = _KINDS[name] = _kind_of_file(name)
        if kind == _USER:
            return library, f"{name}:{frame.f_lineno}"
        if kind == _LIBRARY and not library:
            library = f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return library, ""


def of_error(trace: Any) -> str:
    """The innermost line of the user's files in a traceback; "" if it has none."""
    found = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if is_users(name):
            found = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
