"""Which files a program saves, and which of them it finished: for whoever starts it again from a checkpoint.

A file that was begun and not ended is torn. Nothing is read here, and no name leaves the folder of the records.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

SAVERS = {
    "safetensors.torch": "save_file",
    "lightning.fabric.utilities.cloud_io": "_atomic_save",
    "lightning_fabric.utilities.cloud_io": "_atomic_save",
}
"""Module -> its function that saves what it is given first under the name that it is given second, as torch.save."""
FILES = 256
"""Of the newest files that are remembered."""


class Saves:
    """The newest saved files. `write` keeps them as text."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._lock = write, threading.Lock()
        self._files: dict[str, dict[str, Any]] = {}

    def begins(self, path: str, saver: str) -> None:
        """`saver`: the name of the function that saves it, which tells the form of a checkpoint."""
        with self._lock:
            self._files.pop(path, None)
            self._files[path] = {"path": path, "saver": saver, "at": time.time(), "ended": False}
            for name in list(self._files)[:-FILES]:
                del self._files[name]
            self._tell()

    def ended(self, path: str) -> None:
        with self._lock:
            if path in self._files:
                self._files[path]["ended"] = True
                self._tell()

    def _tell(self) -> None:
        self._write(json.dumps(list(self._files.values())))


def path_of(args: Any, kwargs: Any) -> str:
    """Where a file is saved: the second argument, whatever its name is; "": in no file of this machine."""
    named = [kwargs[one] for one in ("f", "filename", "filepath") if one in kwargs]
    given = args[1] if len(args) > 1 else named[0] if named else ""
    given = getattr(given, "name", given) if hasattr(given, "write") else given
    try:
        path = os.fspath(given)
    except TypeError:
        return ""
    return os.path.abspath(path) if isinstance(path, str) and path and "://" not in path else ""
