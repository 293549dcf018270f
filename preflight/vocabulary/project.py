"""Project: the files under a root, read once, with an overlay for texts that are not written yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from preflight.vocabulary.remembered import Remembered
from preflight.vocabulary.text import Source

if TYPE_CHECKING:
    from preflight.vocabulary.settings import Settings
    from preflight.vocabulary.submission import Submission

MAX_BYTES = 8 * 2**20
"""A configuration larger than this is not one: sbatch itself refuses scripts of more than 4 MiB (max_script_size)."""


class UnreadableFile(Exception):
    """A file cannot be read as text; the message says why, in words for the user."""


class Project:
    """Read access to the files of one repository; paths are relative to `root`, with `/`, and never leave it."""

    def __init__(self, root: Path, settings: Settings, overlay: Mapping[str, str] | None = None) -> None:
        self.root, self.settings = root.resolve(), settings
        self.overlay = dict(overlay or {})
        self._cache: dict[str, Source | UnreadableFile] = {}
        self.remembered = Remembered()
        """What readers made of files, by path."""
        self.submissions: Mapping[str, Submission] = {}
        """How a job script (by its path) is submitted, where that is known: `preflight sbatch`."""

    def submit(self, path: str, submission: Submission) -> None:
        """Reads the script at `path` as `sbatch` would with these arguments and this environment."""
        self.submissions = {**self.submissions, path: submission}
        self.overlay |= submission.texts()

    def with_overlay(self, texts: Mapping[str, str]) -> Project:
        """The same project with some texts replaced, nothing written. Unchanged files keep their cache."""
        other = Project(self.root, self.settings, {**self.overlay, **texts})
        other.submissions = self.submissions
        other._cache = {path: source for path, source in self._cache.items() if path not in texts}
        other.remembered = self.remembered.without(texts)
        return other

    def relative(self, path: Path) -> str | None:
        """A path as this project names it, None where it lies outside the root."""
        try:
            return path.resolve().relative_to(self.root).as_posix()
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a file of that name is under the root."""
        return self._inside(path) is not None and (path in self.overlay or (self.root / path).is_file())

    def is_dir(self, path: str) -> bool:
        return self._inside(path) is not None and (self.root / path).is_dir()

    def listdir(self, path: str) -> list[str]:
        """Names in a directory under the root, sorted; none where it is not one."""
        if self._inside(path) is None or not (self.root / path).is_dir():
            return []
        return sorted(entry.name for entry in (self.root / path).iterdir())

    def source(self, path: str) -> Source:
        """The text of a file. Raises UnreadableFile (missing, outside the root, too large, not UTF-8 text)."""
        path = PurePosixPath(path).as_posix()
        if path not in self._cache:
            try:
                self._cache[path] = self._read(path)
            except UnreadableFile as error:
                self._cache[path] = error
        found = self._cache[path]
        if isinstance(found, UnreadableFile):
            raise found
        return found

    def _inside(self, path: str) -> Path | None:
        resolved = (self.root / path).resolve()
        return resolved if resolved.is_relative_to(self.root) else None

    def _read(self, path: str) -> Source:
        if path in self.overlay:
            return Source(path, self.overlay[path])
        full = self._inside(path)
        if full is None:
            raise UnreadableFile("it lies outside the project")
        try:
            if full.is_dir():
                raise UnreadableFile("it is a directory")
            if not full.is_file():
                raise UnreadableFile("it is not a regular file" if full.exists() else "there is no such file")
            if full.stat().st_size > MAX_BYTES:
                raise UnreadableFile(f"it is larger than {MAX_BYTES >> 20} MiB")
            data = full.read_bytes()
        except OSError as error:
            raise UnreadableFile(error.strerror or str(error)) from error
        if b"\0" in data:
            raise UnreadableFile("it is a binary file")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"it is not UTF-8 text (byte {error.start})") from error
        return Source(path, text.removeprefix("\ufeff"), text.startswith("\ufeff"))
