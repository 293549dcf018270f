"""A file as `preflight init` would write it, and what it says where there is nothing to write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from preflight.system.files import UnreadableFile, read_bytes, real
from preflight.vocabulary.errors import UsageError

_BOM = b"\xef\xbb\xbf"


class Planned(Struct, frozen=True):
    """New text of a file. `old` None: there is no such file. `what` it is, in words for the user."""

    name: str
    """The path, relative to the root of the checkout, as it is shown."""
    path: Path
    """Where it is written: links on the way are followed."""
    old: bytes | None
    text: str
    what: str
    companions: tuple[Planned, ...] = ()
    """Files that it names, written before it and with it only."""

    @property
    def before(self) -> str:
        """The text that the file has now."""
        return (self.old or b"").removeprefix(_BOM).decode("utf-8")

    @property
    def data(self) -> bytes:
        """The bytes of the new text: a byte-order mark stays."""
        mark = _BOM if self.old is not None and self.old.startswith(_BOM) else b""
        return mark + self.text.encode("utf-8")


class Plan(Struct, frozen=True):
    """What `preflight init` would write. `notes` say what is there already, and what was not found."""

    files: tuple[Planned, ...] = ()
    notes: tuple[str, ...] = ()

    def with_(self, other: Plan) -> Plan:
        """Both plans."""
        return Plan((*self.files, *other.files), (*self.notes, *other.notes))


class Tree(Struct, frozen=True):
    """The checkout that is written to. Nothing outside of it is."""

    root: Path
    version_controlled: bool = True

    def there(self, name: str) -> bool:
        """Whether anything has that name; a link that leads nowhere counts."""
        return os.path.lexists(self.root / name)

    def is_folder(self, name: str) -> bool:
        """Whether a directory of the checkout itself has that name."""
        return (self.root / name).is_dir()

    def read(self, name: str) -> tuple[Path, bytes | None, str]:
        """Where a file is, its bytes (None: there is no such file) and its text. Raises UsageError for one that must
        not or cannot be read or written."""
        path = self._place(name)
        if not self.there(name):
            return path, None, ""
        try:
            data = read_bytes(path)
            text = data.removeprefix(_BOM).decode("utf-8")
        except UnreadableFile as error:
            raise UsageError(f"{name}: cannot be read: {error}; nothing was written") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{name}: it is not UTF-8 text (byte {error.start}); nothing was written") from error
        return path, data, text

    def _place(self, name: str) -> Path:
        """The path without links. Raises UsageError where it leads out of the checkout."""
        path = self.root / name
        found = real(path)
        if not found.is_relative_to(real(self.root)):
            raise UsageError(f"{name}: it is a link that leads out of {self.root}; nothing was written")
        if path.is_symlink() and not found.exists():
            raise UsageError(f"{name}: it is a link to a file that does not exist; nothing was written")
        if found.exists() and not stat.S_ISREG(found.stat().st_mode):
            raise UsageError(f"{name}: it is not a regular file; nothing was written")
        return found


def ending(text: str) -> str:
    """The line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def appended(text: str, block: str) -> str:
    """The text with lines at its end, in its own line ending."""
    newline = ending(text)
    gap = "" if not text or text.endswith("\n") else newline
    return text + gap + block.replace("\n", newline)
