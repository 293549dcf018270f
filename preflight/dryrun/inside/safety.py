"""What the program may not do: start other programs, reach the network, write outside scratch.

Where the kernel isolates the process (`jail.py`), it sees a copy of the files and no network, and the audit hook here
only gives refusals their words. Elsewhere the hook is all there is: it stops what Python does, and not what a library
in C does by itself. The report says which of the two it was.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

from . import places

_WRITES = {"os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "shutil.rmtree",
           "shutil.move", "os.chown", "os.mkdir", "os.utime", "os.mkfifo", "os.mknod"}  # fmt: skip
_STARTS = {"subprocess.Popen": 0, "os.system": 0, "os.exec": 0, "os.posix_spawn": 0, "os.spawn": 1}
"""Events that start another program, and which of their arguments names it."""
_SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".gin")
_MOST = 1 << 20
"""Bytes of a file of settings; larger ones hold data."""
_FOR_THEMSELVES = tuple(
    f"{os.sep}{name}"
    for name in ("matplotlib/", "accelerate/", "transformers/", "wandb/", "sklearn/", "joblib/", "platform.py")
)
"""Libraries that ask programs about the computer, and go on without an answer."""
_FREE = ("/dev/null", "/dev/tty", "/dev/shm/", "/proc/self/", "/proc/thread-self/")


def _name_of(program: Any) -> str:
    text = os.fsdecode(program) if isinstance(program, (bytes, str, os.PathLike)) else str(program)
    return os.path.basename(text.split()[0]) if text.split() else ""


class Guard:
    """The audit hook. `scratch` is the directory that may be written to."""

    def __init__(self, scratch: str, isolated: bool, programs: list[str]) -> None:
        self._scratch = os.path.realpath(scratch)
        self._isolated, self._programs = isolated, frozenset(programs)
        self.refused: list[str] = []
        self.wanted = ""
        """The last address that the program asked for."""
        self.configurations: dict[str, str] = {}
        """Files of settings that the program read, with a hash of what they held."""

    def _refuse(self, what: str, error: type[OSError] = PermissionError, number: int = 13) -> None:
        if what not in self.refused and len(self.refused) < 50:
            self.refused.append(what)
        raise error(number, f"a dry run does not allow this: {what}")

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _STARTS:
            name = _name_of(args[_STARTS[event]])
            if name not in self._programs:
                if _asked_by_library():
                    raise FileNotFoundError(2, f"a dry run does not allow this: starting the program {name}")
                self._refuse(f"starting the program {name}", FileNotFoundError, 2)
        elif event == "urllib.Request" or (event == "socket.getaddrinfo" and str(args[0]) not in self.wanted):
            self.wanted = str(args[0])
        elif event == "socket.connect" and not _local(args[1]):
            self._refuse(f"connecting to {args[1]!r}", ConnectionRefusedError, 111)
        elif event == "open" and isinstance(args[0], str) and args[0].endswith(_SETTINGS) and not _writes(args):
            self._note(args[0])
        if self._isolated or event in _STARTS:
            return
        if event == "open" and isinstance(args[0], (str, bytes)) and _writes(args):
            if not self._inside(args[0]):
                self._refuse(f"writing {os.fsdecode(args[0])}")
        elif event in _WRITES:
            for one in args[:2] if event in ("os.rename", "os.link", "shutil.move") else args[:1]:
                if isinstance(one, (str, bytes)) and not self._inside(one):
                    self._refuse(f"{event} of {os.fsdecode(one)}")

    def _note(self, path: str) -> None:
        """A file of settings of the program's own, as it was when it was first opened."""
        full = os.path.abspath(path)
        if full in self.configurations or len(self.configurations) >= 200 or not places.is_users(full):
            return
        self.configurations[full] = ""
        try:
            with open(full, "rb") as file:
                data = file.read(_MOST + 1)
        except OSError:
            data = b""
        if not data or len(data) > _MOST or self._inside(full):
            del self.configurations[full]
        else:
            self.configurations[full] = hashlib.sha256(data).hexdigest()

    def _inside(self, path: str | bytes) -> bool:
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(_FREE):
            return True
        parent = os.path.realpath(os.path.dirname(name))
        return (parent + os.sep).startswith(self._scratch + os.sep)


def _asked_by_library() -> bool:
    """Whether a library starts a program for itself, as matplotlib does to find fonts: it does without."""
    frame: Any = sys._getframe(2)
    while frame is not None and not places.is_users(frame.f_code.co_filename):
        if any(name in frame.f_code.co_filename for name in _FOR_THEMSELVES):
            return True
        frame = frame.f_back
    return False


def _writes(args: tuple[Any, ...]) -> bool:
    """Whether an `open` event may write: by its mode, else by its flags."""
    mode, flags = args[1], args[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def _local(address: Any) -> bool:
    """Whether a socket's address is this computer. A socket in the file system may be a service's of another user."""
    if isinstance(address, tuple) and address:
        return str(address[0]) in ("127.0.0.1", "::1", "localhost", "")
    return False


def install(guard: Guard) -> None:
    """Audit hooks cannot be taken away again."""
    sys.addaudithook(guard)
