"""Reading a regular file: a directory, a pipe, a device, a link that leads nowhere or a file far too large is an error
in words, at once. A pipe that nobody writes to would be waited for without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from preflight.system import observed

MAX_BYTES = 8 * 2**20
"""A configuration larger than this is not one: sbatch itself refuses scripts of more than 4 MiB (max_script_size)."""


class UnreadableFile(Exception):
    """A file cannot be read as text; the message says why, in words for the user."""


def real(path: Path) -> Path:
    """The path without links; as it is where they lead in a circle (Path.resolve raises there), or where no file can
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
        raise UnreadableFile("it is a link that leads nowhere" if link else "there is no such file") from error
    except IsADirectoryError as error:
        raise UnreadableFile("it is a directory") from error
    except (OSError, ValueError) as error:
        raise UnreadableFile(getattr(error, "strerror", None) or str(error)) from error
    if len(data) > most:
        raise UnreadableFile(f"it is larger than {most >> 20} MiB")
    return data, status


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a regular file in UTF-8. Raises UnreadableFile."""
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"it is not UTF-8 text (byte {error.start})") from error
