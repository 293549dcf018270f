"""Which files a command is about: named ones, and those found by walking directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from preflight.dialects import may_recognise
from preflight.engine.settings import above, load
from preflight.system import observed
from preflight.system.files import real
from preflight.vocabulary.budgets import WALKED_FILES
from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.settings import Settings, matches

SKIPPED = regex(
    r"\..*|venv|node_modules|site-packages|__pycache__|build|dist|outputs|multirun|lightning_logs|mlruns"
    r"|(?:offline-)?run-\d{8}_\d{6}-\w+"
)
"""Directories that hold no files of the project's own: hidden ones (version control, caches), environments, and what
runs leave (Hydra's outputs, the folders of W&B runs)."""


class Batch(Struct, frozen=True):
    """Files that one set of settings governs, relative to `root`: `named` were given by name, `walked` were found.
    `unlisted`: folders that may not be listed, so that nobody knows what is in them."""

    root: Path
    settings: Settings
    settings_file: Path | None
    named: tuple[str, ...]
    walked: tuple[str, ...]
    unlisted: tuple[str, ...] = ()


def batches(paths: Iterable[str], cwd: Path, from_hook: bool) -> list[Batch]:
    """The files of a command, one batch per project, in the order of the arguments.

    Raises UsageError for a path that does not exist, SettingsError for broken settings.
    """
    cwd = real(cwd)
    folders: dict[tuple[Path, Path], _Governed] = {}
    governing: dict[Path, tuple[Settings, Path | None]] = {}
    given: dict[tuple[Path, bool], dict[str, None]] = {}
    unlisted: dict[Path, dict[str, None]] = {}
    for text in paths:
        start = Path(os.path.abspath(cwd / text))
        # A link on the way there is not part of the project's names; one to a file is.
        start = real(start) if observed.is_dir(start) else real(start.parent) / start.name
        if not observed.lexists(start):
            raise UsageError(f"{text}: there is no such file or directory")
        closed: list[Path] = []
        for path, named in _expand(start, closed):
            folder = path.parent
            governed = folders.get((folder, start))
            if governed is None:  # all files of a folder have the same settings
                governed = folders[folder, start] = _governed(folder, start, cwd)
            governing.setdefault(governed.root, (governed.settings, governed.file))
            name = governed.prefix + path.name
            if not matches(name, governed.settings.exclude):
                given.setdefault((governed.root, named and not from_hook), {})[name] = None
        for path in closed:
            governed = _governed(path.parent, start, cwd)
            governing.setdefault(governed.root, (governed.settings, governed.file))
            name = governed.prefix + path.name
            if not matches(name, governed.settings.exclude):
                unlisted.setdefault(governed.root, {})[name] = None
    found = []
    for root, (settings, file) in governing.items():
        named_here, walked = given.get((root, True), {}), given.get((root, False), {})
        others = tuple(name for name in walked if name not in named_here)
        found.append(Batch(root, settings, file, tuple(named_here), others, tuple(unlisted.get(root, ()))))
    return found


def batch_of(path: Path, cwd: Path) -> Batch:
    """One file that is known by its text (there may be none of that name), with its project's settings. Raises
    SettingsError."""
    folder = real(path.parent)
    governed = _governed(folder, folder, real(cwd))
    name = governed.prefix + path.name
    named = () if matches(name, governed.settings.exclude) else (name,)
    return Batch(governed.root, governed.settings, governed.file, named, ())


class _Governed(Struct, frozen=True):
    """What holds for all files of a folder: the root of their project, its settings with their file, and what stands
    before a file's name in its path from that root (the whole path where the root is elsewhere)."""

    root: Path
    settings: Settings
    file: Path | None
    prefix: str


def _governed(folder: Path, start: Path, cwd: Path) -> _Governed:
    settings, file = load(folder)
    root = _root(folder, start, file, cwd)
    if not folder.is_relative_to(root):
        return _Governed(root, settings, file, os.path.join(folder, ""))
    return _Governed(root, settings, file, "" if folder == root else f"{folder.relative_to(root).as_posix()}/")


def _expand(start: Path, closed: list[Path]) -> Iterator[tuple[Path, bool]]:
    if not observed.is_dir(start):
        yield start, True
        return
    for count, path in enumerate(walk(start, closed)):
        if count >= WALKED_FILES:
            raise UsageError(f"{start}: more than {WALKED_FILES:,} files; name a directory further down")
        yield path, False


def walk(start: Path, closed: list[Path]) -> Iterator[Path]:
    """Files under a directory whose name a dialect may know, sorted; links to directories are not followed. `closed`
    takes the directories that may not be listed."""
    try:
        entries = observed.entries(start)
    except OSError:
        closed.append(start)
        return
    for name, kind in entries:
        path = start / name
        if kind == "dir":
            if SKIPPED.fullmatch(name) is None and not observed.exists(path / "pyvenv.cfg"):
                yield from walk(path, closed)
        elif may_recognise(name) and (kind == "file" or (kind == "link" and observed.is_file(path))):
            yield path


@lru_cache(maxsize=4096)
def _repository(folder: Path, cwd: Path) -> Path | None:
    """The closest folder upwards that looks like a project's root: the top of a checkout, or one with a pyproject.toml
    in a checkout or below the current directory. Elsewhere above, that file has nothing to do with the folder."""
    for candidate in above(folder):
        if any(observed.exists(candidate / mark) for mark in (".git", ".hg")):
            return candidate
        mine = candidate == folder or candidate.is_relative_to(cwd) or checkout(candidate) is not None
        if mine and observed.exists(candidate / "pyproject.toml"):
            return candidate
    return None


def checkout(root: Path) -> Path | None:
    """The version-controlled tree that a folder is in, None where it is in none."""
    return next((folder for folder in above(root) if observed.exists(folder / ".git")), None)


def _root(folder: Path, start: Path, settings_file: Path | None, cwd: Path) -> Path:
    """The root of a folder's project: of its settings, else its repository, else the cwd above it, else `start`."""
    if settings_file is not None:
        return real(settings_file.parent)
    repository = _repository(folder, cwd)
    if repository is not None:
        return real(repository)
    if folder.is_relative_to(cwd) and cwd not in (Path(cwd.anchor), Path.home()):
        return real(cwd)
    return real(start if observed.is_dir(start) else folder)
