"""The configuration that `@hydra.main` names: its folder and its name, as the text of the program states them.

    root = pyrootutils.setup_root(__file__, indicator=".git")
    @hydra.main(config_path=root / "configs", config_name="train.yaml")

A folder below a root that is computed is found among the folders above the program. If none of them, or more than one,
has the configuration, the folder is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile, without_dots
from preflight.vocabulary.python_grammar import parse_module

_MAINS: CacheKind[tuple[HydraMain, ...]] = CacheKind("configurations that a file's decorators name")

_ROOTS = ("setup_root", "find_root", "getcwd", "cwd", "get_original_cwd")
"""Calls that return a folder above the program: pyrootutils, rootutils, os, pathlib, hydra.utils."""

_JOINS = ("join", "joinpath")
_WRAPPERS = ("str", "as_posix", "Path", "PurePath", "abspath", "realpath", "resolve", "absolute", "fspath", "normpath")
"""Calls that change how a path is written, and not where it leads."""


class HydraMain(Struct, frozen=True):
    """One decorator. `folder` is a folder of the project, `name` has no suffix; None where the text does not say it."""

    line: int
    folder: str | None
    name: str | None


def hydra_mains(path: str, project: Project) -> tuple[HydraMain, ...]:
    """The `@hydra.main` decorators of a Python file."""
    return project.remembered.get(_MAINS, lambda: tuple(_mains(path, project)), path)


def resolved(program: str, config_path: str) -> str | None:
    """A `config_path` (relative to the program's folder) as a folder of the project; None if it is outside."""
    if config_path.startswith("/"):
        return config_path
    return without_dots(f"{PurePosixPath(program).parent}/{config_path}")


def _mains(path: str, project: Project) -> Iterator[HydraMain]:
    try:
        text = project.source(path).text
    except UnreadableFile:
        return
    if "hydra" not in text or "main" not in text:
        return
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("hydra.main", "main"):
                    yield _main(decorator, path, names, project)


def _main(call: ast.Call, path: str, names: Mapping[str, ast.expr], project: Project) -> HydraMain:
    given: dict[str, ast.expr] = dict(zip(("config_path", "config_name"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    stem = _parts(given.get("config_name"), names, 0)
    name = stem[0].removesuffix(".yaml") if stem is not None and len(stem) == 1 and stem[0] else None
    if "config_path" not in given:  # the program's folder (before Hydra 1.2)
        return HydraMain(call.lineno, resolved(path, "."), name)
    found = _parts(given["config_path"], names, 0)
    folder = None
    if found is not None and found[0] is not None:
        folder = resolved(path, "/".join(str(part) for part in found))
    elif found is not None and name is not None:
        folder = _below_a_root("/".join(str(part) for part in found[1:]), name, path, project)
    return HydraMain(call.lineno, folder, name)


def _below_a_root(tail: str, name: str, path: str, project: Project) -> str | None:
    """The folder `tail` below the one folder above the program that has the configuration there."""
    found = []
    for above in PurePosixPath(path).parents:
        folder = without_dots(f"{above}/{tail}")
        if folder is not None and project.exists(f"{folder}/{name}.yaml".lstrip("/")):
            found.append(folder)
    return found[0] if len(found) == 1 else None


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that a module assigns once, at its top level."""
    found: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            twice |= {name} & found.keys()
            found[name] = node.value
    return {name: value for name, value in found.items() if name not in twice}


def _parts(node: ast.expr | None, names: Mapping[str, ast.expr], depth: int) -> tuple[str | None, ...] | None:
    """The parts of a path; a first part None is a folder above the program. None if the text does not state it."""
    if node is None or depth > 20:
        return None
    if isinstance(node, ast.Constant):
        return (node.value,) if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return (None,) if node.id == "__file__" else _parts(names.get(node.id), names, depth + 1)
    if isinstance(node, ast.JoinedStr):
        texts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        return _strip_slashes([_parts(part, names, depth + 1) for part in texts])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
        sides = [_parts(side, names, depth + 1) for side in (node.left, node.right)]
        return _strip_slashes(sides) if isinstance(node.op, ast.Add) else _joined(sides)
    if isinstance(node, ast.Attribute) and node.attr in ("parent", "parents"):
        return _above(_parts(node.value, names, depth + 1))
    if isinstance(node, ast.Subscript):  # Path(__file__).parents[1]
        return _above(_parts(node.value, names, depth + 1))
    return _called(node, names, depth) if isinstance(node, ast.Call) else None


def _called(node: ast.Call, names: Mapping[str, ast.expr], depth: int) -> tuple[str | None, ...] | None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if called in _ROOTS:
        return (None,)
    arguments = [_parts(argument, names, depth + 1) for argument in node.args]
    if called == "dirname":
        return _above(arguments[0]) if arguments else None
    if called in _JOINS:
        whole = called == "joinpath" and isinstance(node.func, ast.Attribute)
        base = [_parts(node.func.value, names, depth + 1)] if whole and isinstance(node.func, ast.Attribute) else []
        return _joined([*base, *arguments])
    if called in _WRAPPERS:
        if arguments:
            return _joined(arguments)
        return _parts(node.func.value, names, depth + 1) if isinstance(node.func, ast.Attribute) else None
    return None


def _above(parts: tuple[str | None, ...] | None) -> tuple[str | None, ...] | None:
    """A folder above; how many levels does not matter, because all folders above the program are looked at."""
    return parts if parts == (None,) else None


def _joined(groups: list[tuple[str | None, ...] | None]) -> tuple[str | None, ...] | None:
    """Parts in their order; None if one is not stated, or if a computed root stands behind the first."""
    found: list[str | None] = []
    for group in groups:
        if group is None or (found and None in group):
            return None
        found += group
    return tuple(found) or None


def _strip_slashes(groups: list[tuple[str | None, ...] | None]) -> tuple[str | None, ...] | None:
    """Texts put together (`f"{root}/configs"`): those behind a computed root are its parts, all others one text."""
    found = _joined(groups)
    if found is None:
        return None
    text = "".join(part for part in found if part is not None)
    if found[0] is not None:
        return (text,)
    return (None, text.strip("/")) if text.startswith("/") else None
