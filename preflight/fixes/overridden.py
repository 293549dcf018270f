"""Whether an unread file or command line may override the edited value, so that the fix would change nothing.

A class that builds its own command line (LightningCLI, jsonargparse) takes every argument from files and flags. A
launch may name a file of settings that was not read. In both cases the run may not use the defaults in the program.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight.python.module import Module, load_module
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Const, Origin, Span, origins

if TYPE_CHECKING:
    from preflight.vocabulary.study import Study

_COMMAND_LINES = ("LightningCLI", "CLI", "auto_cli", "auto_parser")
_SETTINGS = (".yaml", ".yml", ".json", ".toml")


def overridable(study: Study, edits: Sequence[Edit], project: Project) -> bool:
    """Whether one of the edits changes a default of a setting that an unread file may set."""
    mine = [edit for edit in edits if edit.path.endswith(".py")]
    if not mine:
        return False
    builds = any(_builds(path, project) for path in study.paths if path.endswith(".py"))
    if not builds and not any(_unread(study)):
        return False
    return any(_is_default(edit, study) or (builds and _in_signature(edit, project)) for edit in mine)


def _builds(path: str, project: Project) -> bool:
    """Whether a program builds its command line from the signatures of classes."""
    module = load_module(path, project)
    return module is not None and any(
        isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _COMMAND_LINES
        for node in module.nodes
    )


def _unread(study: Study) -> Iterator[str]:
    """Files of settings that the launch names and that no reader has read."""
    known = {posixpath.normpath(path) for path in study.paths}
    for link in study.links:
        for word in link.words:
            said = word.value.value if isinstance(word.value, Const) else None
            if isinstance(said, str) and said.endswith(_SETTINGS) and not _read(said, known):
                yield said


def _read(said: str, known: set[str]) -> bool:
    plain = posixpath.normpath(said)
    return plain in known or any(path.endswith(f"/{plain}") for path in known)


def _is_default(edit: Edit, study: Study) -> bool:
    """Whether an edit changes the default of a parameter."""
    return any(
        _touches(edit, place)
        for reading in study.readings
        for parameter in reading.parameters
        for place in (parameter.origin, *origins(parameter.default))
    )


def _touches(edit: Edit, place: Origin | None) -> bool:
    return place is not None and place.path == edit.path and _within(edit.span, place.span)


def _within(inner: Span, outer: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _in_signature(edit: Edit, project: Project) -> bool:
    """Whether an edit changes what files and flags can set: the default of an argument, a constant at the top of a
    file, or the call that builds the command line."""
    module = load_module(edit.path, project)
    return module is not None and any(_within(edit.span, module.span(node)) for node in _outside(module))


def _outside(module: Module) -> Iterator[ast.AST]:
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _COMMAND_LINES:
            yield node
    yield from (node for node in module.tree.body if isinstance(node, (ast.Assign, ast.AnnAssign)))
