"""Python programs near a configuration folder, and those of them that use the folder in `@hydra.main`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from preflight.vocabulary.budgets import SEARCHED_PROGRAMS
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile, without_dots

MAX_LEVELS = 8
"""Folders above a file that are searched for its primary configuration."""

_PROGRAMS: CacheKind[tuple[str, ...]] = CacheKind("programs of a folder's configuration")
_AROUND: CacheKind[tuple[str, ...]] = CacheKind("Python files around a folder")
_MAINS: CacheKind[tuple[tuple[str | None, str | None], ...]] = CacheKind(
    "config_path and config_name of a file's decorators"
)


def programs(folder: str, name: str, project: Project) -> tuple[str, ...]:
    """Python files whose `@hydra.main` names this folder and this configuration."""
    return project.remembered.get(_PROGRAMS, lambda: tuple(_programs(folder, name, project)), folder, name)


def _programs(folder: str, name: str, project: Project) -> Iterator[str]:
    for path, config_path, config_name in _mains(project, folder):
        if config_path is None or config_name is None or config_name.removesuffix(".yaml") != name:
            continue
        if resolved(path, config_path) == folder:
            yield path


def resolved(program: str, config_path: str) -> str | None:
    """A `config_path` (relative to the program's folder) as a folder of the project; None if it is outside."""
    if config_path.startswith("/"):
        return config_path
    return without_dots(f"{PurePosixPath(program).parent}/{config_path}")


def _mains(project: Project, folder: str) -> Iterator[tuple[str, str | None, str | None]]:
    """(file, config_path, config_name) of the `@hydra.main` decorators around a folder."""
    for path in python_files(project, folder):
        for config_path, config_name in _decorators_of(path, project):
            yield path, config_path, config_name


def _decorators_of(path: str, project: Project) -> tuple[tuple[str | None, str | None], ...]:
    return project.remembered.get(_MAINS, lambda: tuple(_decorators(path, project)), path)


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


def _decorators(path: str, project: Project) -> Iterator[tuple[str | None, str | None]]:
    try:
        text = project.source(path).text
    except UnreadableFile:
        return
    if "hydra" not in text or "main" not in text:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("hydra.main", "main"):
                    yield _arguments(decorator)


def _arguments(call: ast.Call) -> tuple[str | None, str | None]:
    """config_path and config_name of a decorator (positional in this order), where they are literals."""
    given: dict[str, ast.expr] = dict(zip(("config_path", "config_name"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    found = []
    for name in ("config_path", "config_name"):
        value = given.get(name)
        found.append(value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None)
    return found[0], found[1]
