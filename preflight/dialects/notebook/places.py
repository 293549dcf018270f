"""A notebook as a program, and the way from places in its Python to places in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.notebook.cells import Notebook, Placed, read_notebook
from preflight.dialects.notebook.commands import Started, started
from preflight.dialects.notebook.ipython import Command, translated
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Origin, Span

T = TypeVar("T")

PARAMETERS = "parameters"
"""The tag of a cell whose values papermill replaces; `Origin.unless` names it."""


class View(Struct, frozen=True):
    """A notebook as a program."""

    notebook: Notebook
    python: Placed
    project: Project
    """The project with the Python in the place of the notebook."""
    parameters: tuple[Span, ...]
    """Where in the Python the cells stand that are tagged as parameters."""
    started: Started
    gap: Command | None
    """A part of the notebook that is not read and may set anything."""

    def in_file(self, origin: Origin, path: str) -> Origin:
        if origin.path != path:
            return origin
        span = self.python.span(origin.span.start, origin.span.end)
        given = any(one.start <= origin.span.start < one.end for one in self.parameters)
        return replace(origin, span=span, editable=False, unless=PARAMETERS if given else origin.unless)


_VIEW: CacheKind[View] = CacheKind("a notebook as a program")


def view_of(source: Source, project: Project) -> View:
    """The notebook as a program. Raises DocumentError."""
    return project.remembered.get(_VIEW, lambda: _made(source, project), source.path)


def _made(source: Source, project: Project) -> View:
    notebook = read_notebook(source)
    parts: list[Placed] = []
    commands: list[Command] = []
    parameters: list[Span] = []
    length = 0
    for cell in notebook.cells if notebook.is_python else ():
        found = translated(cell)
        commands += found.commands
        python = found.python
        if python.text:
            python = Placed.of([python, python.part(len(python.text) - 1).replaced("\n")])
        if cell.is_parameters:
            parameters.append(Span(length, length + len(python.text)))
        length += len(python.text)
        parts.append(python)
    whole = Placed.of(parts)
    copy = project.with_overlay({source.path: whole.text})
    gap = next((one for one in commands if one.kind in ("run", "not-read")), None)
    return View(notebook, whole, copy, tuple(parameters), started(source, commands, project), gap)


def with_origins(value: T, change: Callable[[Origin], Origin]) -> T:
    """A value of the vocabulary (a Reading, links) with each of its origins changed; what has none stays the same."""
    return cast(T, _Changed(change).of(value))


class _Changed:
    """Each object is changed once: expressions share their parts."""

    def __init__(self, change: Callable[[Origin], Origin]) -> None:
        self.change = change
        self._known: dict[int, tuple[object, object]] = {}

    def of(self, value: object) -> object:
        if isinstance(value, (str, int, float, type(None))):
            return value
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._of(value))
        return known[1]

    def _of(self, value: object) -> object:
        if isinstance(value, Origin):
            via = tuple(cast(Origin, self.of(one)) for one in value.via)
            return self.change(value if via == value.via else replace(value, via=via))
        if isinstance(value, tuple):
            inner = tuple(self.of(one) for one in value)
            return value if all(new is old for new, old in zip(inner, value, strict=True)) else inner
        if isinstance(value, Mapping):
            return {key: self.of(one) for key, one in value.items()}
        if isinstance(value, Struct):
            old = {name: getattr(value, name) for name in value.__struct_fields__}
            new = {name: self.of(one) for name, one in old.items()}
            return value if all(new[name] is old[name] for name in old) else replace(value, **new)
        return value
