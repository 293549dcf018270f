"""Folders that the program writes into and that are not there: made in the copy of the files, and said.

The computer on which a command was written has them. A run on this computer would end with an error.
"""

from __future__ import annotations

import os
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .own_code import called_by_program, may_be_missing


class Outputs:
    """The folders that were made."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _made(self, path: Any) -> bool:
        """Whether the folder of a file was missing, and is there now."""
        if not isinstance(path, (str, os.PathLike)):
            return False
        folder = os.path.dirname(os.fspath(path))
        if not folder or os.path.isdir(folder) or may_be_missing():
            return False
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return False
        self._tape.assume(f"the folder {folder} is not there, and the program writes into it: it was made")
        return True

    def files(self, module: Any) -> None:
        """`open` for writing."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                if not set(mode) & set("wax") or not self._made(file):
                    raise
            return real(file, mode, *args, **kwargs)

        wrap(module, "open", opened)

    def folders(self, module: Any) -> None:
        """`os.mkdir` and `Path.mkdir` in a folder that is not there."""

        def made(real: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            try:
                real(path, *args, **kwargs)
            except FileNotFoundError:
                if not called_by_program() or not self._made(path):  # libraries make the folders above
                    raise
                real(path, *args, **kwargs)

        wrap(module, "mkdir", made)
