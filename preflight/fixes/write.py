"""Atomic writes: a file is written as a temporary file in the same folder, synced, and renamed over the old one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from preflight.system.files import real
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.project import Project, UnreadableFile

_BOM = b"\xef\xbb\xbf"


class NotWritten(PreflightError):
    """A file was left as it was; the message says which and why."""


def write_text(project: Project, path: str, text: str) -> None:
    """Replaces the text of a file that `project` has read. The mode, the byte-order mark and a link to the file stay.
    At every moment the file has its old or its new content.

    Raises NotWritten if the file changed since it was read, or cannot be written.
    """
    full = real(project.root / path)
    if not full.is_relative_to(project.root):
        raise NotWritten(f"{path} was not written: it is outside the project")
    try:
        source = project.source(path)
        old = (_BOM if source.bom else b"") + source.text.encode("utf-8")
        _replace(full, old, (_BOM if source.bom else b"") + text.encode("utf-8"))
    except UnreadableFile as error:
        raise NotWritten(f"{path} was not written: {error}") from error
    except OSError as error:
        raise NotWritten(f"{path} was not written: {error.strerror or error}") from error
    except _Changed:
        raise NotWritten(f"{path} was not written: it changed while it was being checked") from None


class _Changed(Exception):
    """The file on disk has changed since it was read."""


def _replace(full: Path, old: bytes, new: bytes) -> None:
    status = full.stat()
    if not os.access(full, os.W_OK):
        raise PermissionError(13, "the file is read-only")
    handle, name = tempfile.mkstemp(prefix=f".{full.name}.", suffix=".tmp", dir=full.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        _adopt(temporary, status)
        if full.read_bytes() != old:
            raise _Changed
        os.replace(temporary, full)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(full.parent)


def _adopt(path: Path, status: os.stat_result) -> None:
    """Gives a new file the owner and the mode of the old one."""
    own = path.stat()
    if hasattr(os, "chown") and (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        with contextlib.suppress(PermissionError):  # another user's file in a shared folder becomes our file
            os.chown(path, status.st_uid, status.st_gid)
    os.chmod(path, status.st_mode & 0o7777)


def _sync(directory: Path) -> None:
    """Makes the rename durable; some file systems cannot do that, and do not need it."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
