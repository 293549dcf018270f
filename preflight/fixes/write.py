"""Atomic writes: a file is written as a temporary file in the same folder, synced, and renamed over the old one."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

from preflight.system.files import real
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.project import Project, UnreadableFile

_PREFIX, _SUFFIX = ".preflight-", ".tmp"
_UNFINISHED = re.compile(r"\.preflight-\w{8}\.tmp")
"""Names of the files that are written before they replace others (`tempfile` adds eight characters)."""
WAIT_SECONDS = 60.0
"""How long a run waits for another one that writes fixes in the same folder."""


class NotWritten(PreflightError):
    """A file was left as it was; the message says which and why."""


@contextlib.contextmanager
def alone(root: Path) -> Iterator[bool]:
    """Keeps other runs from writing fixes under the same root meanwhile; whether the file system can do that.

    A run reads and writes in here: two runs at the same time would fix the same line twice. The lock is on the
    directory itself, so that it leaves nothing behind, and it ends with the process. Raises NotWritten if another run
    does not end.
    """
    if fcntl is None:
        yield False
        return
    try:
        handle = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _locked(root, lambda: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB))
    finally:
        os.close(handle)


def _locked(root: Path, lock: Callable[[], None]) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            lock()
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                raise NotWritten(f"nothing was written: another preflight is writing fixes in {root}") from None
            time.sleep(0.02)
        except OSError:  # a network file system without locks
            return False


def remove_unfinished(folders: Iterable[Path]) -> None:
    """Removes what runs left that were killed while they wrote. Only for a run that is `alone`."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in [one for one in entries if _UNFINISHED.fullmatch(one.name)]:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == os.getuid()):
                    os.unlink(entry.path)


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
        _replace(full, source.bytes_of(source.text), source.bytes_of(text))
    except UnicodeEncodeError as error:
        raise NotWritten(
            f"{path} was not written: its coding, {error.encoding}, lacks a character of the fix"
        ) from error
    except UnreadableFile as error:
        raise NotWritten(f"{path} was not written: {error}") from error
    except OSError as error:
        raise NotWritten(f"{path} was not written: {error.strerror or error}") from error
    except _Changed:
        raise NotWritten(f"{path} was not written: it changed while it was being checked") from None


def write_whole(path: Path, old: bytes | None, new: bytes) -> None:
    """Writes a file that had the content `old`, or that there was none of (None): then its folders are made, too.

    At every moment there is no file, or the whole old or new one. Raises NotWritten if it changed or appeared since.
    """
    try:
        if old is not None:
            _replace(path, old, new)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, new)
    except OSError as error:
        raise NotWritten(f"{path} was not written: {error.strerror or error}") from error
    except _Changed:
        raise NotWritten(f"{path} was not written: it changed meanwhile") from None


def _create(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0o22)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        try:
            os.link(temporary, path)  # unlike a rename, this replaces no file that has appeared meanwhile
        except FileExistsError:
            raise _Changed from None
        except OSError:  # a file system without links
            os.replace(temporary, path)
            return
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


class _Changed(Exception):
    """The file on disk has changed since it was read."""


def _replace(full: Path, old: bytes, new: bytes) -> None:
    status = full.stat()
    if not os.access(full, os.W_OK):
        raise PermissionError(13, "the file is read-only")
    handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=full.parent)
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
