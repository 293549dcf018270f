"""Project: the files under a root, read once, with an overlay for texts that are not written yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from preflight.system import observed
from preflight.system.regular import MAX_BYTES as MAX_BYTES
from preflight.system.regular import UnreadableFile as UnreadableFile
from preflight.system.regular import read_bytes, real
from preflight.vocabulary.remembered import Remembered
from preflight.vocabulary.text import Source

if TYPE_CHECKING:
    from preflight.vocabulary.settings import Settings
    from preflight.vocabulary.submission import Submission

BOM = "\ufeff"
"""The byte-order mark, as UTF-8 text has it."""
MARKED = (".yaml", ".yml", ".json", ".toml", ".py", ".ipynb", ".md")
"""Files whose readers skip a byte-order mark."""
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".sl", ".job")


class Project:
    """Read access to the files of one repository; paths are relative to `root`, with `/`, and never leave it."""

    def __init__(self, root: Path, settings: Settings, overlay: Mapping[str, str] | None = None) -> None:
        self.root, self.settings = real(root), settings
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
            return real(path).relative_to(self.root).as_posix()
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a file of that name is under the root."""
        return self._inside(path) is not None and (path in self.overlay or observed.is_file(self.root / path))

    def is_dir(self, path: str) -> bool:
        return self._inside(path) is not None and observed.is_dir(self.root / path)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory under the root, sorted; none where it is not one."""
        return observed.names(self.root / path) if self.is_dir(path) else []

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
        resolved = real(self.root / path)
        return resolved if resolved.is_relative_to(self.root) else None

    def _read(self, path: str) -> Source:
        if path in self.overlay:
            return Source(path, self.overlay[path])
        full = self._inside(path)
        if full is None:
            raise UnreadableFile("it lies outside the project")
        data = read_bytes(full)
        if b"\0" in data:
            raise UnreadableFile("it is a binary file")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"it is not UTF-8 text (byte {error.start})") from error
        if text.startswith(BOM) and not _is_script(path, text):
            return Source(path, text.removeprefix(BOM), True)
        return Source(path, text)


def _is_script(path: str, text: str) -> bool:
    """Whether a file is for a shell, to which a byte-order mark is a part of its first line: the mark stays in the
    text, where an edit can take it out. YAML, JSON, TOML and Python files may have one."""
    return not path.endswith(MARKED) and (path.endswith(SCRIPTS) or "#SBATCH" in text or text[1:3] == "#!")
