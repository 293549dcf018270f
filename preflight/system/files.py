"""Files of the machine: regular files are read, anything else is an error in words; the user's own directories.

A directory, a pipe, a device, a broken link or a file that is far too large is an error at once. To read a pipe that
nothing writes to would take forever.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from preflight.system import observed

MAX_BYTES = 8 * 2**20
"""The largest file that is read as a configuration. sbatch refuses scripts of more than 4 MiB (max_script_size)."""


class UnreadableFile(Exception):
    """A file cannot be read as text; the message tells the user why."""


def real(path: Path) -> Path:
    """The path without links; the same path if its links form a circle (Path.resolve raises there), or if no file can
    have such a name."""
    return Path(observed.real(path))


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a regular file. Raises UnreadableFile."""
    try:
        data, status = _read(path, most)
    except UnreadableFile as error:
        observed.unreadable(path, most, str(error))
        raise
    observed.read(path, most, data, status)
    return data


def _read(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """The content, and the file's status before it was read. Raises UnreadableFile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                raise UnreadableFile("it is a directory")
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile("it is not a regular file")
            data = file.read(most + 1)
    except FileNotFoundError as error:
        link = os.path.islink(path)
        raise UnreadableFile(
            "it is a link to a file that does not exist" if link else "there is no such file"
        ) from error
    except IsADirectoryError as error:
        raise UnreadableFile("it is a directory") from error
    except (OSError, ValueError) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or str(error)) from error
    if len(data) > most:
        raise UnreadableFile(f"it is larger than {most >> 20} MiB")
    return data, status


def first_bytes(path: Path, most: int, start: int = 0) -> tuple[bytes, int] | None:
    """The first bytes of a regular file of any size, from `start` on, and its size; None if it cannot be read."""
    observed.depends_on(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return None
            file.seek(start)
            return file.read(most), status.st_size
    except (OSError, ValueError):
        return None


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a regular file in UTF-8. Raises UnreadableFile."""
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"it is not UTF-8 text (byte {error.start})") from error


def user_directory(kind: Literal["config", "cache", "data"]) -> Path | None:
    """The user's directory for settings and saved machines, for the cache of laws, or for recorded runs.

    None if the environment has a relative path for it, which would be in the checked tree.
    """
    import platformdirs

    find = {"config": platformdirs.user_config_path, "cache": platformdirs.user_cache_path}
    path = find.get(kind, platformdirs.user_data_path)("preflight")
    return path if path.is_absolute() else None
