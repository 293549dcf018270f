"""Writes files that the user names: a regular file as a whole or not at all, a pipe or a device directly.

A device is never replaced by a file: `--output json=/dev/null` would remove it for all users.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from preflight.reports import streams
from preflight.vocabulary.errors import UsageError


def write_output(path: Path, content: str | bytes, kind: streams.Kind = "text") -> None:
    """Write `path`. A reader of a regular file sees the old text or the new text. Raises UsageError.

    `kind` matters if the file is a stream (/dev/stdout).
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        status = _status(path)
        if status is None or (stat.S_ISREG(status.st_mode) and not _of_system(path)):
            _replace(path, data, status)
        elif stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path}: cannot be written: it is a directory")
        elif isinstance(content, str) and (err := _standard(status)) is not None:
            streams.show(content, kind, err)
        else:
            _pass_on(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _of_system(path: Path) -> bool:
    """Whether the name is a link of the system: /dev/stdout, /dev/fd/3, /proc/self/fd/1."""
    return path.is_symlink() and Path(os.path.abspath(path)).parts[1:2] in (("dev",), ("proc",))


def _standard(status: os.stat_result) -> bool | None:
    """True if it is standard error, False if it is standard output, under another name; None for neither."""
    for stream, err in ((sys.stdout, False), (sys.stderr, True)):
        try:
            if stream is not None and os.path.samestat(os.fstat(stream.fileno()), status):
                return err
        except (OSError, ValueError):
            continue
    return None


def _pass_on(path: Path, data: bytes) -> None:
    """Write to a pipe or a device. A pipe without a reader is an error at once, because the write would never end."""
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)


def _replace(path: Path, data: bytes, old: os.stat_result | None) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, old.st_mode & 0o7777 if old is not None else 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask
