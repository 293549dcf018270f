"""Python programs near a configuration folder, and those of them that use the folder in `@hydra.main`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from preflight.program.hydra_main import hydra_mains
from preflight.vocabulary.budgets import SEARCHED_PROGRAMS
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project

MAX_LEVELS = 8
"""Folders above a file that are searched for its primary configuration."""

_PROGRAMS: CacheKind[tuple[str, ...]] = CacheKind("programs of a folder's configuration")
_AROUND: CacheKind[tuple[str, ...]] = CacheKind("Python files around a folder")


def programs(folder: str, name: str, project: Project) -> tuple[str, ...]:
    """Python files whose `@hydra.main` names this folder and this configuration."""
    return project.remembered.get(_PROGRAMS, lambda: tuple(_programs(folder, name, project)), folder, name)


def _programs(folder: str, name: str, project: Project) -> Iterator[str]:
    for path in python_files(project, folder):
        if any(one.name == name and one.folder == folder for one in hydra_mains(path, project)):
            yield path


def unresolved(folder: str, project: Project) -> bool:
    """Whether a program around the folder may compose a configuration of it that its text does not name."""
    mains = (one for path in python_files(project, folder) for one in hydra_mains(path, project))
    return any(one.folder is None or (one.name is None and one.folder == folder) for one in mains)


def python_files(project: Project, folder: str) -> tuple[str, ...]:
    """Python files in the folder and in the folders above it, and up to two levels below each of them."""
    return project.remembered.get(_AROUND, lambda: tuple(_around(project, folder)), folder)


def _around(project: Project, folder: str) -> Iterator[str]:
    seen: set[str] = set()
    count = 0
    pure = PurePosixPath(folder)
    for base in [pure, *list(pure.parents)[:MAX_LEVELS]]:
        for path in _below(project, "" if base.as_posix() == "." else base.as_posix(), 2):
            if path not in seen:
                seen.add(path)
                count += 1
                if count > SEARCHED_PROGRAMS:
                    return
                yield path


def _below(project: Project, folder: str, levels: int) -> Iterator[str]:
    inner = []
    for name in project.listdir(folder or "."):
        path = f"{folder}/{name}" if folder else name
        if name.endswith(".py"):
            yield path
        elif levels and not name.startswith((".", "__")) and project.is_dir(path):
            inner.append(path)
    for path in inner:
        yield from _below(project, path, levels - 1)
