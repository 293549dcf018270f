"""From containers to links: the command of each container, with its memory and its /dev/shm.

The readers of Compose files and of Kubernetes objects share it. Commands are read like commands of a job script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.shell.docker_run import size_in_bytes
from preflight.dialects.shell.interpreter import Shell, StartedCommand
from preflight.dialects.shell.links import links_of
from preflight.dialects.shell.values import literal_word
from preflight.documents.yaml import YamlDocument, text_at
from preflight.vocabulary.budgets import Budget
from preflight.vocabulary.notation import scaled
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import GPUS, MEMORY, SHM, Binding, Link, Rank, Reading, Unread, Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Route, Span, Unknown, Value, evaluate, unknown

_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


class ContainerSpec(Struct, frozen=True):
    """One container of a file: the routes of the parts of its command, and its resources."""

    commands: tuple[Route, ...]
    origin: Origin
    directory: str | None = None
    environment: Mapping[str, Expr] = field(default_factory=dict)
    shm: Expr | None = None
    """Bytes of /dev/shm; None if it is the /dev/shm of the host, or unknown."""
    memory: Expr | None = None
    gpus: Expr | None = None
    nodes: Expr | None = None
    """The number of copies that run together, each on a separate node."""
    gpu: Expr | None = None
    """The name of the GPU."""
    values: Mapping[str, Expr] = field(default_factory=dict)
    """What stands for the variables of a template, by their names: `{{inputs.parameters.batch}}`."""


def reading(
    source: Source, dialect: str, document: YamlDocument, found: list[ContainerSpec], project: Project
) -> Reading:
    """A reading with the programs of the project that the containers start. Equal launches are listed once."""
    links: list[Link] = []
    cuts: list[tuple[Budget, Origin]] = []
    seen: set[str] = set()
    for group, one in enumerate(found):
        for link in _links(source, document, one, group, project, cuts):
            key = f"{link.kind} {link.target} {_plain(link.words)} {_plain(link.launch.environment)}"
            if key not in seen:
                seen.add(key)
                links.append(link)
    unread = Unread.beyond(cuts[0][0], cuts[0][1]) if cuts else None
    named = [one.gpu for one in found if one.gpu is not None]
    same = named[:1] if len(named) == len(found) and all(evaluate(one) == evaluate(named[0]) for one in named) else []
    gpu = tuple(Binding("machine.gpu", one, Rank.read, one.origin) for one in same)
    return Reading(source.path, dialect, bindings=gpu, links=tuple(links), trains=False, unread=unread)


def _plain(part: object) -> str:
    """A text without the places in it, to compare launches."""
    return re.sub(r"Origin\(.*?Span\(.*?\).*?\)", "", repr(part))


def _links(
    source: Source,
    document: YamlDocument,
    one: ContainerSpec,
    group: int,
    project: Project,
    cuts: list[tuple[Budget, Origin]],
) -> Iterator[Link]:
    """The programs that a container starts. `cuts` gets the budget at which its script was followed no further."""
    variables: dict[str, Expr] = {**one.environment}
    given_by = (value.origin for name, value in one.values.items() if name.startswith("inputs."))
    turns = tuple(place for place in given_by if place is not None)
    shell = Shell(source, dict(variables), directory=one.directory, exported=set(variables), turns=turns)
    words: list[Word] = []
    for route in one.commands:
        value = document.value(route)
        if isinstance(value, str) and len(one.commands) == 1:
            shell.follow_text(filled(document, route, value, one.values) or text_at(document, route))
        elif isinstance(value, str):
            words += _split(value, document.origin(route))
        elif isinstance(value, tuple):
            words += [_filled(document, (*route, index), item, one.values) for index, item in enumerate(value)]
    if words:
        shell.runs.append(StartedCommand(tuple(words), variables, replace(one.origin, via=turns), 0, one.directory))
    given = {name: expr for name, expr in ((SHM, one.shm), (MEMORY, one.memory), (GPUS, one.gpus)) if expr is not None}
    for link in links_of(shell, project, None).links:
        launch = replace(link.launch, environment={**variables, **link.launch.environment, **given})
        if launch.nodes is None and one.nodes is not None:
            launch = replace(launch, nodes=one.nodes)
        yield replace(link, launch=launch, group=group)
    if shell.cut is not None:
        cuts.append((shell.cut, one.origin))


_HOLE = re.compile(r"\{\{=?\s*(?P<name>[\w.-]+)\s*\}\}")


def _parts(document: YamlDocument, route: Route, value: str, values: Mapping[str, Expr]) -> list[Expr]:
    """A text in its parts, with the values of the template's variables; empty if it has none."""
    place = replace(document.origin(route), editable=False)
    parts: list[Expr] = []
    at = 0
    for hole in _HOLE.finditer(value):
        parts += [Const(value[at : hole.start()], place)] if hole.start() > at else []
        parts.append(values.get(hole["name"]) or unknown(f"{hole[0]} has no value in the object", place, Cause.not_set))
        at = hole.end()
    return [*parts, *([Const(value[at:], place)] if at < len(value) else [])] if at else []


def filled(document: YamlDocument, route: Route, value: str, values: Mapping[str, Expr]) -> Expr | None:
    """A text with the values of the template's variables; None if it has none."""
    parts = _parts(document, route, value, values)
    return _joined(parts, document.origin(route)) if parts else None


def _filled(document: YamlDocument, route: Route, value: Value, values: Mapping[str, Expr]) -> Word:
    """A word with the values of the template's variables in it."""
    parts = _parts(document, route, value, values) if isinstance(value, str) else []
    if not parts:
        return _word(document, route, value)
    origin = document.origin(route)
    head = parts[0].value if isinstance(parts[0], Const) else None
    if isinstance(head, str) and head.startswith("-") and head.endswith("=") and len(parts) == 2:
        return Word(head, parts[1], origin)
    return Word("", _joined(parts, origin), origin)


def _joined(parts: list[Expr], origin: Origin) -> Expr:
    return parts[0] if len(parts) == 1 else Op("concat", tuple(parts), replace(origin, editable=False))


def _word(document: YamlDocument, route: Route, value: Value) -> Word:
    return literal_word("" if value is None else str(value), document.origin(route))


def _split(text: str, origin: Origin) -> list[Word]:
    """The words of a string, split like a shell does."""
    quote = origin.span.end - origin.span.start - len(text)
    if quote in (0, 2) and not re.search(r"""["'\\]""", text):
        start = origin.span.start + quote // 2
        places = [Span(start + match.start(), start + match.end()) for match in re.finditer(r"\S+", text)]
        return [literal_word(text[at.start - start : at.end - start], Origin(origin.path, at)) for at in places]
    try:
        parts = shlex.split(text)
    except ValueError:  # a quote is not closed
        return []
    return [literal_word(part, replace(origin, editable=False)) for part in parts]


def environment(document: YamlDocument, route: Route) -> dict[str, Expr]:
    """The variables of a container: a mapping, a list of "NAME=value", or a list of {name, value}."""
    if not document.has(route):
        return {}
    found: dict[str, Expr] = {}
    value = document.value(route)
    if isinstance(value, Mapping):
        found = {str(name): Const(_text(item), document.origin((*route, str(name)))) for name, item in value.items()}
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            origin = document.origin((*route, index))
            if isinstance(item, str) and "=" in item:
                name, _, text = item.partition("=")
                found[name] = Const(text, replace(origin, editable=False))
            elif isinstance(item, Mapping) and "name" in item:
                said = item.get("value")
                where = document.origin((*route, index, "value")) if said is not None else origin
                unsaid = Unknown("it is set when the container starts", Cause.run_time)
                found[str(item["name"])] = Const(unsaid if said is None else _text(said), where)
    return found


def _text(value: Value) -> Value:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def quantity(value: Value, origin: Origin) -> Expr:
    """Bytes of a Kubernetes quantity: "64Gi", "16G", "1e9", 1073741824.

    Source: apimachinery/pkg/api/resource/quantity.go: no suffix, decimal SI and binary SI suffixes, exponents.
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)([A-Za-z]*)", str(value).strip())
    unit = None if found is None else {"": 1, "m": 1e-3, **_DECIMAL, **_BINARY}.get(found[2])
    return _bytes(None if found is None or unit is None else scaled(float(found[1]), unit), origin)


def compose_size(value: Value, origin: Origin) -> Expr:
    """Bytes of a size in a Compose file (the Compose Specification, "Specifying byte values")."""
    return _bytes(size_in_bytes(value), origin)


def _bytes(size: int | None, origin: Origin) -> Expr:
    return Const(Unknown("it is not a size", Cause.invalid) if size is None else size, origin)
