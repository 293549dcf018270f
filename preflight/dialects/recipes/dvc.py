"""Reader of DVC pipelines (`dvc.yaml`): the programs that the stages start, with the values of `params.yaml`.

Source: the DVC documentation 3.x, "dvc.yaml Files": stages, cmd, wdir, vars, templating, foreach and matrix stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import PurePosixPath

from msgspec import Struct

from preflight.dialects.recipes.reader import Recipe, joined, reading, starts
from preflight.documents.yaml import YamlDocument, parse_yaml, text_at, yaml_of
from preflight.vocabulary.budgets import RECIPES
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Origin, Route, Span, unknown

NAME = "dvc"
_READ: CacheKind[Reading] = CacheKind("a DVC pipeline, read")
_PARAMETERS = "params.yaml"
_HOLE = re.compile(r"(?<!\\)\$\{\s*(?P<name>[\w.\-\[\]]+)\s*\}")

Named = Mapping[str, "Found"]


class Found(Struct, frozen=True):
    """A value of a document: what a name of the pipeline stands for."""

    document: YamlDocument
    route: Route

    def at(self, steps: list[str]) -> Expr | None:
        """The scalar behind more steps; None if there is none."""
        route: Route = self.route
        for step in steps:
            here = self.document.value(route)
            route = (*route, int(step) if isinstance(here, tuple) and step.isdecimal() else step)
            if not self.document.has(route):
                return None
        value = self.document.value(route)
        if value is None or isinstance(value, (tuple, Mapping)):
            return None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return Const(text, self.document.origin(route))


def recognises(source: Source, project: Project) -> bool:
    """Whether a stage starts a program of the project."""
    if "stages:" not in source.text or ("cmd:" not in source.text and "do:" not in source.text):
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the stages start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    document = parse_yaml(source, "1.2")
    folder = PurePosixPath(source.path).parent
    documents = list(_documents(document, folder, project))
    names: dict[str, Found] = {}
    for each in documents:
        top = each.value(()) if each is not document else None
        names.update({str(name): Found(each, (str(name),)) for name in (top if isinstance(top, Mapping) else {})})
    names.update(_own_values(document))
    reads = tuple(each.source.path for each in documents if each is not document)
    recipes = (recipe for route in _stages(document) for recipe in _recipes(document, route, names, folder))
    return reading(source, NAME, recipes, project, reads)


def _documents(document: YamlDocument, folder: PurePosixPath, project: Project) -> Iterator[YamlDocument]:
    """The files whose values the pipeline names: `params.yaml`, and the files of `vars`."""
    listed = document.value(("vars",)) if document.has(("vars",)) else None
    files = (
        [_PARAMETERS, *(one.partition(":")[0] for one in listed if isinstance(one, str))]
        if isinstance(listed, tuple)
        else [_PARAMETERS]
    )
    for name in files:
        path = (folder / name).as_posix()
        if path.endswith((".yaml", ".yml", ".json")) and project.exists(path):
            try:
                yield yaml_of(project.source(path), project, "1.2")
            except (DocumentError, UnreadableFile):
                continue  # the names that it would give stay unknown


def _own_values(document: YamlDocument) -> dict[str, Found]:
    """The values that `vars` states in the pipeline itself."""
    listed = document.value(("vars",)) if document.has(("vars",)) else None
    found: dict[str, Found] = {}
    for index, one in enumerate(listed if isinstance(listed, tuple) else ()):
        if isinstance(one, Mapping):
            found.update({str(name): Found(document, ("vars", index, str(name))) for name in one})
    return found


def _stages(document: YamlDocument) -> Iterator[Route]:
    stages = document.value(("stages",)) if document.has(("stages",)) else None
    for name, stage in (stages if isinstance(stages, Mapping) else {}).items():
        if isinstance(stage, Mapping):
            yield ("stages", str(name))


def _recipes(document: YamlDocument, route: Route, names: Named, folder: PurePosixPath) -> Iterator[Recipe]:
    """The recipes of one stage: one for each item of `foreach`, or each combination of `matrix`."""
    body: Route = (*route, "do") if document.has((*route, "do")) else route
    if not document.has((*body, "cmd")):
        return
    directory = document.value((*body, "wdir")) if document.has((*body, "wdir")) else "."
    home = folder / directory if isinstance(directory, str) and "$" not in directory else None
    commands: list[Route] = [(*body, "cmd")]
    listed = document.value(commands[0])
    if isinstance(listed, tuple):
        commands = [(*commands[0], index) for index in range(len(listed))]
    for own in _items(document, route):
        known = {**names, **own}
        scripts = tuple(_filled(text_at(document, each), known) for each in commands)
        turns = tuple(one.document.origin(one.route) for one in own.values())
        yield Recipe(scripts, None if home is None else home.as_posix(), turns=turns)


def _items(document: YamlDocument, route: Route) -> Iterator[Named]:
    """What `item` and `key` stand for, in each of the stages that one entry makes."""
    each, matrix = (*route, "foreach"), (*route, "matrix")
    if document.has(each):
        values = document.value(each)
        keys = list(values) if isinstance(values, Mapping) else range(len(values)) if isinstance(values, tuple) else []
        for key in keys:
            yield {"item": Found(document, (*each, key))}
        if not keys:  # `${name}`: a list of another file
            yield {}
    elif document.has(matrix):
        axes = document.value(matrix)
        known = isinstance(axes, Mapping) and all(isinstance(axis, tuple) for axis in axes.values())
        if not known or not isinstance(axes, Mapping):
            yield {}
            return
        lengths = [range(len(axis)) if isinstance(axis, tuple) else range(0) for axis in axes.values()]
        for count, chosen in enumerate(product(*lengths)):
            if count > RECIPES:  # the reading says that there are too many
                return
            yield {
                f"item.{name}": Found(document, (*matrix, str(name), index))
                for name, index in zip(axes, chosen, strict=True)
            }
    else:
        yield {}


def _filled(text: Expr, names: Named) -> Expr:
    """A command with the values of its `${name}`."""
    parts = [part for piece in _flat(text) for part in _parts(piece, names)]
    return joined(parts or [Const("")], text.origin)


def _flat(text: Expr) -> tuple[Const, ...]:
    if isinstance(text, Const):
        return (text,)
    return tuple(part for part in getattr(text, "operands", ()) if isinstance(part, Const))


def _parts(piece: Const, names: Named) -> Iterator[Expr]:
    text, at = str(piece.value), 0
    for hole in _HOLE.finditer(text):
        if hole.start() > at:
            yield _slice(piece, text, at, hole.start())
        yield _value(hole["name"], names, _slice(piece, text, hole.start(), hole.end()).origin)
        at = hole.end()
    if at < len(text):
        yield _slice(piece, text, at, len(text))


def _slice(piece: Const, text: str, start: int, end: int) -> Const:
    """A part of a text at its place, where the text in the file is the value itself."""
    origin = piece.origin
    if origin is None or origin.span.end - origin.span.start not in (len(text), len(text) + 2):
        return Const(text[start:end], origin)
    first = origin.span.start + (origin.span.end - origin.span.start - len(text)) // 2
    return Const(text[start:end], Origin(origin.path, Span(first + start, first + end), editable=False))


def _value(name: str, names: Named, origin: Origin | None) -> Expr:
    steps = [step for step in re.split(r"[.\[\]]+", name) if step]
    for length in (2, 1):
        found = names.get(".".join(steps[:length]))
        value = found.at(steps[length:]) if found is not None else None
        if value is not None:
            return value
    return unknown(f"{name} has no value in the pipeline or its parameters", origin, Cause.not_set)
