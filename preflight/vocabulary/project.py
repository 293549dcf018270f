"""Project: the files under a root, read once, with an overlay for texts that are not written yet. Submission: how a
script is given to sbatch."""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct, field

from preflight.system import observed
from preflight.system.files import MAX_BYTES as MAX_BYTES
from preflight.system.files import UnreadableFile as UnreadableFile
from preflight.system.files import first_bytes, read_bytes, real
from preflight.vocabulary.caches import Remembered
from preflight.vocabulary.text import Source
from preflight.vocabulary.written import Written

if TYPE_CHECKING:
    from preflight.vocabulary.settings import Settings

BOM = "\ufeff"
"""The byte-order mark, as UTF-8 text has it."""
MARKED = (".yaml", ".yml", ".json", ".toml", ".py", ".ipynb", ".md")
"""Files whose readers skip a byte-order mark."""
SCRIPTS = (".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".sl", ".job")


# sbatch reads the script's directives first, then the environment, then its command line; what comes later wins
# (sbatch(1), INPUT ENVIRONMENT VARIABLES; src/sbatch/opt.c, process_options_second_pass).
COMMAND_LINE = "sbatch command line"
ENVIRONMENT = "sbatch environment"
"""Names of two texts, in the place of a path: findings can point into them, and no fix edits them."""

VARIABLES = {
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CORE_SPEC": "core-spec", "SBATCH_CPUS_PER_GPU": "cpus-per-gpu", "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_GRES": "gres", "SBATCH_GRES_FLAGS": "gres-flags", "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node", "SBATCH_GPUS_PER_SOCKET": "gpus-per-socket",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SLURM_HINT": "hint", "SBATCH_HINT": "hint",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem", "SBATCH_OVERCOMMIT": "overcommit", "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos", "SBATCH_REQUEUE": "requeue", "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_RESERVATION": "reservation", "SBATCH_SIGNAL": "signal", "SBATCH_SPREAD_JOB": "spread-job",
    "SBATCH_THREAD_SPEC": "thread-spec", "SBATCH_THREADS_PER_CORE": "threads-per-core", "SBATCH_TIMELIMIT": "time",
    "SBATCH_USE_MIN_NODES": "use-min-nodes", "SBATCH_OUTPUT": "output", "SBATCH_ERROR": "error",
}  # fmt: skip
"""Variable -> long option, in the order sbatch reads them (22.05; those that say nothing about resources left out)."""


class Submission(Struct, frozen=True):
    """`sbatch ARGUMENTS script` in an environment. `arguments` are sbatch's own words, up to the script's name."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """The script's name and the words that are passed to it."""
    directory: str = "."
    """Where the job starts, where a leading `/` is the project's root; ".": not known."""

    def texts(self) -> dict[str, str]:
        """The command line and the environment as texts that origins point into, by the names above."""
        given = "".join(f"{name}={value}\n" for name, value in self.variables())
        return {COMMAND_LINE: shlex.join((*self.arguments, *self.words)), ENVIRONMENT: given}

    def variables(self) -> list[tuple[str, str]]:
        """The environment variables that sbatch reads and that are set, in the order in which sbatch reads them."""
        return [(name, self.environment[name]) for name in VARIABLES if name in self.environment]

    @property
    def components(self) -> int:
        """How many parts of a heterogeneous job the command line speaks of."""
        return 1 + sum(word == ":" for word in self.arguments)


class Project:
    """Read access to the files of one repository; paths are relative to `root`, with `/`, and never leave it."""

    def __init__(self, root: Path, settings: Settings, overlay: Mapping[str, str] | None = None) -> None:
        self.root, self.settings = real(root), settings
        self._top = str(self.root)
        self._homes: dict[str, str] = {}
        """Directory -> the same without links."""
        self.overlay = dict(overlay or {})
        self._cache: dict[str, Source | UnreadableFile] = {}
        self._files: dict[str, bool] = {}
        self._listed: dict[str, list[str]] = {}
        """What is a file on the disk, and what is in a directory."""
        self._under: Project | None = None
        """The project that this one has other texts of."""
        self.remembered = Remembered()
        """Readings of files, by path."""
        self.replaced: frozenset[str] = frozenset()
        """Files that a script writes before its program starts, with a text that is not known."""
        self.spent: dict[str, int] = {}
        """What was used of budgets for all files together, by what is counted."""
        self.submissions: Mapping[str, Submission] = {}
        """How a job script (by its path) is submitted, where that is known: `preflight sbatch`."""

    def submit(self, path: str, submission: Submission) -> None:
        """Reads the script at `path` as `sbatch` would with these arguments and this environment."""
        self.submissions = {**self.submissions, path: submission}
        self.overlay |= submission.texts()

    def with_overlay(self, texts: Mapping[str, str]) -> Project:
        """The same project with some texts replaced, nothing written. Unchanged files are read in this one."""
        other = Project(self.root, self.settings, {**self.overlay, **texts})
        other.submissions, other.replaced = self.submissions, self.replaced
        other._under, other._homes, other._files, other._listed = self, self._homes, self._files, self._listed
        other.remembered = self.remembered.without(texts)
        return other

    def with_written(self, written: Mapping[str, Written]) -> Project:
        """The project as a program sees it after its script wrote files: a file of unknown text is not there."""
        if not written:
            return self
        other = self.with_overlay({path: one.text for path, one in written.items() if one is not None})
        other.replaced = self.replaced | {path for path, one in written.items() if one is None}
        other.remembered = self.remembered.without(written)
        return other

    def changed_from(self, project: Project) -> frozenset[str] | None:
        """The files with another text than in another state of this project; None if some are there in one only."""
        if self.overlay is project.overlay and self.replaced is project.replaced:
            return frozenset()
        paths = self.overlay.keys() | project.overlay.keys()
        changed = frozenset(path for path in paths if self.overlay.get(path) != project.overlay.get(path))
        there = self.replaced == project.replaced and all(self.exists(one) and project.exists(one) for one in changed)
        return changed if there else None

    def relative(self, path: Path) -> str | None:
        """A path relative to the project's root; None if it is outside the root."""
        try:
            return real(path).relative_to(self.root).as_posix()
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a file of that name is under the root."""
        if path in self.replaced:
            return False
        if path in self.overlay:
            return self._inside(path) is not None
        if path not in self._files:
            there = observed.is_file(os.path.join(self._top, path))
            self._files[path] = there and self._inside(path) is not None
        return self._files[path]

    def head(self, path: str, most: int, start: int = 0) -> tuple[bytes, int] | None:
        """The first bytes of a file, from `start` on, and its size; None where it is no regular file."""
        place = Path(self._top, path)
        return None if path in self.replaced or not self.exists(path) else first_bytes(place, most, start)

    def is_dir(self, path: str) -> bool:
        return self._inside(path) is not None and observed.is_dir(os.path.join(self._top, path))

    def listdir(self, path: str) -> list[str]:
        """Names in a directory under the root, sorted; none where it is not one."""
        if path not in self._listed:
            self._listed[path] = observed.names(os.path.join(self._top, path)) if self.is_dir(path) else []
        return self._listed[path]

    def source(self, path: str) -> Source:
        """The text of a file. Raises UnreadableFile (missing, outside the root, too large, no text in its coding)."""
        self.remembered.ask(path)
        if path not in self._cache:
            path = PurePosixPath(path).as_posix()
        if path not in self._cache:
            if path in self.replaced:
                raise UnreadableFile("the script writes it before, with a text that is not known")
            if self._under is not None and self.overlay.get(path) is self._under.overlay.get(path):
                return self._under.source(path)
            try:
                self._cache[path] = self._read(path)
            except UnreadableFile as error:
                self._cache[path] = error
        found = self._cache[path]
        if isinstance(found, UnreadableFile):
            raise found
        return found

    def _inside(self, path: str) -> str | None:
        """The file or directory without links; None where it lies outside the root."""
        full = os.path.join(self._top, path)
        folder, name = os.path.split(full)
        if name in ("", ".", "..") or observed.is_link(full):
            resolved = observed.real(full)
        else:
            if folder not in self._homes:
                self._homes[folder] = observed.real(folder)
            resolved = os.path.join(self._homes[folder], name)
        return resolved if resolved == self._top or resolved.startswith(os.path.join(self._top, "")) else None

    def _read(self, path: str) -> Source:
        if path in self.overlay:
            return Source(path, self.overlay[path])
        full = self._inside(path)
        if full is None:
            raise UnreadableFile("it is outside the project")
        data = read_bytes(Path(full))
        if b"\0" in data:
            raise UnreadableFile("it is a binary file")
        coding = _stated_coding(data) if path.endswith(".py") else None
        if coding is not None:
            return _decoded(path, data, coding)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"it is not UTF-8 text (byte {error.start})") from error
        if text.startswith(BOM) and not _is_script(path, text):
            return Source(path, text.removeprefix(BOM), True)
        return Source(path, text)


def without_dots(path: str) -> str | None:
    """A path as the project names its files, without `.`, `..` and empty parts; None if it leads out of the project."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


_CODING = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#.*)?\r?")


_NO_TEXTS = frozenset({"idna", "punycode", "utf-7", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Codecs of the standard library that are for other things than the texts of files; some take long."""


def _stated_coding(data: bytes) -> str | None:
    """The coding that a Python file states, where it is not UTF-8: in a comment of the first line, or of the second if
    the first has no code (PEP 263)."""
    if data.startswith(BOM.encode()):
        return None
    for line in data.split(b"\n", 2)[:2]:
        found = _CODING.match(line)
        if found is not None:
            name = found[1].decode("ascii", "replace").lower().replace("_", "-")
            return None if name in ("utf-8", "utf8") or name.startswith("utf-8-") else name
        if _BLANK.fullmatch(line) is None:
            return None
    return None


def _decoded(path: str, data: bytes, coding: str) -> Source:
    """A Python file in the coding that it states. One that Python has not, or that does not give the same bytes back
    (an edit would change more than its place), is not read."""
    try:
        if codecs.lookup(coding).name.replace("_", "-") in _NO_TEXTS:
            raise LookupError(coding)
        found = Source(path, data.decode(coding), coding=coding)
        exact = found.bytes_of(found.text) == data
    except (LookupError, UnicodeError, ValueError) as error:
        raise UnreadableFile(f"it states the coding {coding}, and cannot be read by it") from error
    if not exact:
        raise UnreadableFile(f"it states the coding {coding}, in which several texts are the same")
    return found


def _is_script(path: str, text: str) -> bool:
    """Whether a file is for a shell, to which a byte-order mark is a part of its first line: the mark stays in the
    text, where an edit can take it out. YAML, JSON, TOML and Python files may have one."""
    return not path.endswith(MARKED) and (path.endswith(SCRIPTS) or "#SBATCH" in text or text[1:3] == "#!")
