"""The directory of kept results: only its user may read or write it, and it is never in a checked tree.

A file that cannot be used is ignored, and a result that cannot be written is not kept: an error of the disk never ends
a check. `NotKept` has the reason why a directory is not used (shown by `-v` and `preflight cache show`).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from preflight.system import import_path
from preflight.system.files import user_directory

DIRECTORY = "PREFLIGHT_CACHE_DIR"
LIMIT = "PREFLIGHT_CACHE_LIMIT"
OFF = "PREFLIGHT_NO_CACHE"
DEFAULT_LIMIT_MIB = 256
LARGEST = 64 * 2**20
"""Bytes of one kept result; that of 20,000 files takes a tenth."""
_LEFT = 0.8
"""Share of the limit that remains after the oldest results are deleted, so that not every run has to delete."""
_USED_AGAIN_S = 3600
"""A result's time of use is written this seldom."""


class NotKept(Exception):
    """No result is read or kept; the message says why."""


def results(words: Sequence[str] = ()) -> str:
    """The directory, made where there is none. Raises Refused, also where a tree of the command line holds it."""
    if os.environ.get(OFF, "") not in ("", "0"):
        raise NotKept(f"{OFF} is set")
    path = place()
    if path is None:
        raise NotKept(f"the user's cache directory is not named by an absolute path: set {DIRECTORY}")
    real = os.path.realpath(path)
    home = os.path.realpath(os.path.expanduser("~"))
    for tree in import_path.checked_trees(list(words)):
        if tree != home and import_path.inside(real, tree):
            raise NotKept(f"{path} lies in the checked tree {tree}")
    return _own(path)


def _own(path: str) -> str:
    """A directory that is this user's alone, made where there is none. Raises NotKept."""
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        status = os.lstat(path)
    except OSError as error:
        raise NotKept(f"{path} cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise NotKept(f"{path} is not a directory")
    if hasattr(os, "getuid"):  # Windows: rights are no part of a mode there
        if status.st_uid != os.getuid():
            raise NotKept(f"{path} belongs to another user")
        if status.st_mode & 0o077:
            raise NotKept(f"{path} is open to others: chmod 700 {path}")
    return path


def place() -> str | None:
    """Where the directory is or would be; None where only a relative path names it."""
    stated = os.environ.get(DIRECTORY)
    if stated:
        return os.path.join(stated, "results") if os.path.isabs(stated) else None
    home = user_directory("cache")
    return str(home / "results") if home is not None else None


def dry_runs() -> str | None:
    """Where saved dry runs are, beside the results; the directory may not be there. None where no path is known."""
    home = place()
    return os.path.join(os.path.dirname(home), "dry-runs") if home is not None else None


def made_dry_runs() -> str:
    """The same directory, made where there is none. Raises NotKept."""
    path = dry_runs()
    if path is None:
        raise NotKept(f"the user's cache directory is not named by an absolute path: set {DIRECTORY}")
    return _own(path)


def submitted() -> str:
    """Where scripts lie that were submitted with fixes, made where there is none. Raises NotKept."""
    home = user_directory("data")
    if home is None:
        raise NotKept("the user's data directory is not named by an absolute path")
    return _own(str(home / "submitted"))


def limit() -> int:
    """The most bytes that are kept: PREFLIGHT_CACHE_LIMIT in MiB, else the default."""
    stated = os.environ.get(LIMIT, "").strip()
    return (int(stated) if stated.isdecimal() and len(stated) < 12 else DEFAULT_LIMIT_MIB) * 2**20


def load(path: str) -> bytes | None:
    """A file that this user wrote: no link, no other owner, not writable for others. None for any other file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError):
        return None
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):  # no file object can be made of it
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST:
                return None
            if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
                return None
            data = file.read(LARGEST + 1)
        except OSError:
            return None
    with suppress(OSError):
        if status.st_mtime < time.time() - _USED_AGAIN_S:
            os.utime(path)
    return data


def save(path: str, data: bytes) -> bool:
    """Writes a file whole or not at all, whoever else writes it at the same time; whether it was written."""
    import tempfile

    if len(data) > LARGEST:
        return False
    unfinished = None
    try:
        handle, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=os.path.dirname(path))
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, path)
    except OSError:
        if unfinished is not None:
            with suppress(OSError):
                os.unlink(unfinished)
        return False
    make_room(os.path.dirname(path))
    return True


class Kept(NamedTuple):
    """One file of the directory."""

    path: str
    bytes: int
    used: float


def kept(folder: str) -> Iterator[Kept]:
    """The files of the directory; files that a run did not finish as well."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield Kept(entry.path, status.st_size, status.st_mtime)


def make_room(folder: str) -> None:
    """Takes the results out that were not used for longest, where all together are above the limit."""
    files, most = sorted(kept(folder), key=lambda one: one.used), limit()
    total = sum(one.bytes for one in files)
    if total <= most:
        return
    for one in files:
        if total <= most * _LEFT:
            return
        remove(one)
        total -= one.bytes


def remove(one: Kept) -> bool:
    """Whether the file could be taken away."""
    try:
        os.unlink(one.path)
    except OSError:
        return False
    return True


def laws() -> str | None:
    """Where traced laws are kept (`memory.device.fit.cache`)."""
    home = user_directory("cache")
    return str(home / "laws") if home is not None else None
