"""Reader of SkyPilot tasks: the programs that `run:` starts, on the nodes and GPUs that the file asks for.

Source: the SkyPilot documentation 0.8, "Task YAML" and "SkyPilot environment variables". `setup:` prepares a node, and
trains nothing. Of several choices of resources (`any_of`, a list or mapping of accelerators) the GPU is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from preflight.dialects.recipes.reader import Recipe, reading, starts
from preflight.documents.yaml import YamlDocument, parse_yaml, text_at
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import GPUS, Binding, Call, Link, Rank, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Route, Unknown, unknown

NAME = "skypilot"
_READ: CacheKind[Reading] = CacheKind("a SkyPilot task, read")
_RUN, _ASKS = re.compile(r"^run\s*:", re.M), re.compile(r"^(?:resources|num_nodes)\s*:", re.M)
_ACCELERATOR = re.compile(r"(?P<name>[A-Za-z][\w-]*)(?::(?P<count>\d+))?$")
_NOT_GPUS = ("tpu", "inferentia", "trainium", "gaudi")


def recognises(source: Source, project: Project) -> bool:
    """Whether a task runs a program of the project."""
    if not (_RUN.search(source.text) and _ASKS.search(source.text)):
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the task runs. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    document = parse_yaml(source, "1.2")
    top = document.value(())
    if not isinstance(top, Mapping) or not isinstance(top.get("run"), str):
        raise DocumentError("it is no task: `run` is no text", document.key_origin(()).span)
    name, count = _accelerators(document)
    environment = dict(_variables(document, count))
    given = {**environment, **({GPUS: count} if count is not None else {})}
    found = reading(source, NAME, [Recipe((text_at(document, ("run",)),), environment=environment)], project)
    links = tuple(_placed(link, document, given) for link in found.links)
    gpu = (Binding("machine.gpu", name, Rank.read, name.origin),) if name is not None else ()
    return replace(found, links=links, bindings=gpu)


def _placed(link: Link, document: YamlDocument, given: Mapping[str, Expr]) -> Link:
    """A link whose program runs on each node of the task."""
    launch = replace(link.launch, environment={**given, **link.launch.environment})
    nodes = _nodes(document)
    if launch.nodes is None and nodes is not None:
        launch = replace(launch, nodes=nodes)
    return replace(link, launch=launch)


def _nodes(document: YamlDocument) -> Expr | None:
    value = document.value(("num_nodes",)) if document.has(("num_nodes",)) else None
    return Const(value, document.origin(("num_nodes",))) if isinstance(value, int) else None


def _accelerators(document: YamlDocument) -> tuple[Expr | None, Expr | None]:
    """The GPU's name and how many of them a node has: `A100:8`, `{A100: 8}`; None where the file does not ask, unknown
    where it leaves a choice."""
    route: Route = ("resources", "accelerators")
    if document.has(("resources", "any_of")) or document.has(("resources", "ordered")):
        why = unknown("the task leaves the choice between several resources", None, Cause.run_time)
        return why, why
    if not document.has(route):
        return None, None
    value, origin = document.value(route), document.origin(route)
    place, number = replace(origin, editable=False), None
    if isinstance(value, Mapping) and len(value) == 1:
        ((value, number),) = value.items()
        place = document.key_origin((*route, str(value)))
    said = _ACCELERATOR.match(value) if isinstance(value, str) else None
    if said is None or said["name"].lower().startswith(_NOT_GPUS):
        why = Const(Unknown("the task leaves the choice between several accelerators", Cause.run_time), origin)
        return why, why
    if number is None:
        return Const(said["name"], place), Const(int(said["count"] or 1), place)
    count = Const(number, origin) if isinstance(number, int) else unknown("it is no number", origin, Cause.invalid)
    return Const(said["name"], place), count


def _variables(document: YamlDocument, count: Expr | None) -> Iterator[tuple[str, Expr]]:
    """The variables of the task, and those that SkyPilot sets on each node."""
    nodes = _nodes(document) or Const(1)
    yield "SKYPILOT_NUM_NODES", Op("str", (nodes,), nodes.origin)
    yield "SKYPILOT_NODE_RANK", Const("0")
    if count is not None:
        yield "SKYPILOT_NUM_GPUS_PER_NODE", Op("str", (count,), count.origin)
    for key in ("envs", "secrets"):
        values = document.value((key,)) if document.has((key,)) else None
        for name, value in (values if isinstance(values, Mapping) else {}).items():
            at = (key, str(name))
            if value is None or value == "":
                yield str(name), unknown("`sky launch --env` gives it", document.key_origin(at), Cause.not_set)
            else:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                yield str(name), Const(text, document.origin(at))
