"""The only access of a check to the file system. Every answer can be recorded, and compared with the disk later.

A later run compares the notes of a `Record` with the disk (`unchanged`) and knows whether it would read the same. Files
that were looked for and are missing, directories that were listed and links that were followed count as much as
contents.

A content is compared by what `stat` says first, and by its hash only where that differs, as git does it. Times of a
file system have a resolution: what changed less than `RESOLUTION_NS` before it was noted could change again unseen. It
is noted without a signature, and compared by its content (git calls such entries racy).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from hashlib import sha256

RESOLUTION_NS = 2_100_000_000
"""FAT keeps times in steps of two seconds; no other file system that is in use is coarser."""

Path = str | os.PathLike[str]
Notes = dict[str, dict[str, list[str]]]
"""Directory -> name -> [kind, real path, content, signature], as JSON holds it. "" means that it was not asked.

The kind: file, dir, other or missing, "link " before it where the path itself is a link. The real path: "." where it is
the path. The content: how it was asked (as a directory, or at most so many bytes), ":", then a hash, or "!" and
the reason why there is none; "=" where the signature alone decides.
"""


class Record:
    """The answers that one run got. `flaws`: why its result holds for this run alone."""

    def __init__(self) -> None:
        self.notes: Notes = {}
        self.flaws: dict[str, None] = {}
        self.until = ""
        """The last day on which the answers hold, as YYYY-MM-DD; "": no day changes them."""

    def note(self, path: str, kind: str, real: str = "", content: str = "", signature: str = "") -> None:
        """Keeps an answer. Two answers that contradict each other are a flaw: the file changed during the run."""
        folder, name = os.path.split(path)
        names = self.notes.setdefault(folder, {})
        old = names.get(name)
        if old is None:
            names[name] = [kind, real, content, signature]
            return
        for index, new in enumerate((kind, real, content)):
            if new and old[index] and new != old[index]:
                self.flaws[f"{path} changed while it was read"] = None
        old[1] = old[1] or real
        if content and not old[2]:
            old[2:] = [content, signature]


_record: Record | None = None


def start() -> Record:
    """A record of all that this process asks from now on."""
    global _record
    _record = Record()
    return _record


def stop() -> None:
    """Nothing is noted from now on."""
    global _record
    _record = None


def recording() -> bool:
    """Whether answers are noted."""
    return _record is not None


def join(other: Record) -> None:
    """Notes what another process was answered that did a part of this one's work."""
    if _record is None:
        return
    for folder, names in other.notes.items():
        for name, (kind, real, content, signature) in names.items():
            _record.note(os.path.join(folder, name), kind, real, content, signature)
    _record.flaws.update(other.flaws)
    if other.until:
        _record.until = min(other.until, _record.until or other.until)


def not_final(why: str) -> None:
    """The result of this run holds for this run alone: a program was started, a time limit was hit, a file written."""
    if _record is not None:
        _record.flaws[why] = None


def today() -> str:
    """The day in UTC, as YYYY-MM-DD: the same for everybody who runs the check."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def passed(day: str) -> bool:
    """Whether a day (YYYY-MM-DD) is over. If not, what is found now holds until its end."""
    if day < today():
        return True
    if _record is not None:
        _record.until = min(day, _record.until or day)
    return False


# --- questions --------------------------------------------------------------------------------------------------------


def real(path: Path) -> str:
    """The path without links; unchanged if they form a circle, or if no file can have such a name."""
    found = _real(os.fspath(path))
    if _record is not None:
        full = _absolute(path)
        _record.note(full, _kind(full)[0], "." if found == full else found)
    return found


def is_file(path: Path) -> bool:
    """Whether a regular file is there; a link to one counts."""
    return _asked(path).endswith("file")


def is_dir(path: Path) -> bool:
    """Whether a directory is there; a link to one counts."""
    return _asked(path).endswith("dir")


def is_link(path: Path) -> bool:
    """Whether the path itself is a link."""
    return _asked(path).startswith("link")


def exists(path: Path) -> bool:
    """Whether anything is there; a link that leads nowhere does not count."""
    return not _asked(path).endswith("missing")


def lexists(path: Path) -> bool:
    """Whether anything is there; a link that leads nowhere counts."""
    return _asked(path) != "missing"


def entries(folder: Path) -> list[tuple[str, str]]:
    """(name, kind) of the entries of a directory, sorted by name; the kind of a link is "link". Raises OSError."""
    try:
        signed, found = _signed(folder), _entries(folder)
    except OSError as error:
        _noted(folder, f"dir:!{error.strerror}", "")
        raise
    _noted(folder, _hash_of_entries(found), signed)
    return found


def names(folder: Path) -> list[str]:
    """Names in a directory, sorted. Raises OSError."""
    return [name for name, _ in entries(folder)]


def status(path: Path) -> os.stat_result:
    """The status of a path, with owner and rights. Raises OSError."""
    depends_on(path)
    return os.stat(path)


def program(path: Path) -> bool:
    """Whether a file is there that may be started."""
    depends_on(path)
    return os.path.isfile(path) and os.access(path, os.X_OK)


def depends_on(path: Path, read_since: int | None = None) -> None:
    """Notes a file that this process has read in another way, by its signature alone: a module, a program.

    `read_since`: it was read some time after this one (time.time_ns). If it changed since, the content is not known.
    """
    if _record is not None:
        full = _absolute(path)
        kind, status = _kind(full)
        if read_since is not None and status is not None and changed_since(status, read_since):
            not_final(f"{full} changed during the run")
        _record.note(full, kind, "", "=", _signature(status) if status is not None else "")


def read(path: Path, most: int, data: bytes, status: os.stat_result) -> None:
    """Records the content of a file of at most `most` bytes; `status`: that of the file before it was read."""
    if _record is not None:
        _noted(path, f"{most}:{sha256(data).hexdigest()}", _settled(status))


def unreadable(path: Path, most: int, why: str) -> None:
    """Notes that a file could not be read, and the reason in words."""
    _noted(path, f"{most}:!{why}", "")


def _asked(path: Path) -> str:
    full = _absolute(path)
    kind, _ = _kind(full)
    if _record is not None:
        _record.note(full, kind)
    return kind


def _noted(path: Path, content: str, signature: str) -> None:
    if _record is not None:
        full = _absolute(path)
        _record.note(full, _kind(full)[0], "", content, signature)


def changed_since(status: os.stat_result, moment: int) -> bool:
    """Whether a file may have changed after a moment (time.time_ns), as far as times of files tell."""
    return max(status.st_mtime_ns, status.st_ctime_ns) > moment - RESOLUTION_NS


# --- answers ----------------------------------------------------------------------------------------------------------


def _absolute(path: Path) -> str:
    text = os.fspath(path)
    return text if os.path.isabs(text) else os.path.join(os.getcwd(), text)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _kind(path: str) -> tuple[str, os.stat_result | None]:
    """The kind of a path, and its status if its links lead to a file."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return "missing", None
    if not stat.S_ISLNK(status.st_mode):
        return _KINDS.get(stat.S_IFMT(status.st_mode), "other"), status
    try:
        status = os.stat(path)
    except OSError:
        return "link missing", None
    return "link " + _KINDS.get(stat.S_IFMT(status.st_mode), "other"), status


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir"}


def _entries(folder: Path) -> list[tuple[str, str]]:
    with os.scandir(folder) as found:
        return sorted((entry.name, _entry_kind(entry)) for entry in found)


def _entry_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _hash_of_entries(found: list[tuple[str, str]]) -> str:
    text = "\0".join(f"{name}/{kind}" for name, kind in found)
    return f"dir:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _signature(status: os.stat_result) -> str:
    """The status fields that change with the content, among them ctime, which cannot be set back."""
    return (
        f"{status.st_dev} {status.st_ino} {status.st_mode} {status.st_uid} {status.st_size} "
        f"{status.st_mtime_ns} {status.st_ctime_ns}"
    )


def _settled(status: os.stat_result) -> str:
    """The signature; none if the next change might not change it."""
    return "" if changed_since(status, time.time_ns()) else _signature(status)


def _signed(path: Path) -> str:
    return _settled(os.stat(path)) if _record is not None else ""


# --- whether the answers still hold -----------------------------------------------------------------------------------


def unchanged(notes: Notes, read_again: Callable[[str, int], bytes]) -> tuple[bool, bool]:
    """Whether every question would have the same answer now, and whether a signature in `notes` was renewed for it.

    `read_again`: the content of a file of at most so many bytes, an exception with the reason in words where there is
    none.
    """
    homes: dict[str, str] = {}
    renewed = False
    for folder, inside in notes.items():
        for name, note in inside.items():
            path = os.path.join(folder, name)
            kind, status = _kind(path)
            if kind != note[0] or (note[1] and not _leads(path, note[1], kind, homes)):
                return False, renewed
            if not note[2]:
                continue
            if status is not None and note[3] and note[3] == _signature(status):
                continue
            if note[2] == "=":
                if status is None and not note[3]:
                    continue
                return False, renewed
            before = _settled(status) if status is not None else ""
            if _content(path, note[2], read_again) != note[2]:
                return False, renewed
            renewed = renewed or (before != "" and before != note[3])
            note[3] = before
    return True, renewed


def _leads(path: str, stated: str, kind: str, homes: dict[str, str]) -> bool:
    """Whether a path leads where it did. A directory's links are followed once for all that is in it."""
    folder, name = os.path.split(path)
    if kind.startswith("link") or name in ("", ".", ".."):
        found = _real(path)
    else:
        if folder not in homes:
            homes[folder] = _real(folder)
        found = os.path.join(homes[folder], name)
    return found == (path if stated == "." else stated)


def _content(path: str, stated: str, read_again: Callable[[str, int], bytes]) -> str:
    """The content as recorded, read in the same way as before."""
    way = stated.partition(":")[0]
    try:
        if way == "dir":
            return _hash_of_entries(_entries(path))
        return f"{way}:{sha256(read_again(path, int(way))).hexdigest()}"
    except OSError as error:
        return f"{way}:!{error.strerror}"
    except Exception as error:
        return f"{way}:!{error}"
