"""Reader of W&B sweep files: parameters become a search space, `command` and `program` a link to the program.

The files are read as `wandb sweep` reads them: YAML 1.1 (`1e-5` is text), macros only as whole elements of `command`
(wandb/sdk/launch/sweeps/utils.py of wandb 0.31). The program gets every value through argv and `wandb.config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from preflight.dialects.wandb.command import commands
from preflight.documents.schema_errors import SchemaError
from preflight.documents.yaml import YamlDocument, yaml_of
from preflight.frameworks.wandb_space import METHODS, Complaint, OriginOf, SweepSpace, kind_of, read_space
from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project, without_dots
from preflight.vocabulary.reading import Call, Fact, Link, Problem, ProblemSeverity, Reading, Setting, cannot_be_parsed
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Origin, Route, Span, Value
from preflight.vocabulary.words import plural

NAME = "wandb"

_SUFFIXES = (".yaml", ".yml", ".json")
_METHOD = regex(rf"""^[ \t]*["']?method["']?[ \t]*:[ \t]*["']?({"|".join(METHODS)})\b""", re.M)
_PARAMETERS = regex(r"""^[ \t]*["']?parameters["']?[ \t]*:""", re.M)
MOST_FOLDERS = 400
"""Names in a folder that are looked at for the program of a sweep."""
_COMPANIONS = frozenset({"program", "command", "metric", "metrics", "early_terminate", "run_cap", "controller"})
_TEMPLATE = regex(r"\{%.*?%\}|\{\{.*?\}\}", re.S)
_YAML_11_TEXT = regex(r"[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+|[-+]?\.[0-9_]+[eE][-+]?[0-9]+")
_NUMERIC_KEYS = frozenset({"value", "values", "min", "max", "q", "mu", "sigma", "a", "b", "probabilities"})


def recognises(source: Source, project: Project) -> bool:
    """Whether a file has `parameters` as W&B has them, and a `method` or another key of a sweep.

    A file without a method and a program, and with a key that W&B does not know, is taken apart by a program: W&B never
    sees it as it is.
    """
    if not source.path.endswith(_SUFFIXES) or not _PARAMETERS.search(source.text):
        return False
    try:
        top = _document(source, project).value()
    except DocumentError:
        return _METHOD.search(source.text) is not None
    if not isinstance(top, Mapping) or top.get("kind", "sweep") != "sweep":
        return False
    parameters = top.get("parameters")
    if not isinstance(parameters, Mapping) or any(key in top for key in ("jobs", "steps", "spec", "openapi")):
        return False
    shaped = any(kind_of(body) for body in parameters.values())
    if top.get("method") in METHODS:
        return True
    if not {"method", "program", "command"} & top.keys() and _has_other_keys(top):
        return False
    return shaped and ("method" in top or not _COMPANIONS.isdisjoint(top))


def _has_other_keys(top: Mapping[str, Value]) -> bool:
    from preflight.dialects.wandb.schema import Sweep

    return not Sweep.model_fields.keys() >= top.keys()


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The search space of the sweep, links to its program, and problems that W&B would refuse."""
    try:
        document = _document(source, project)
    except DocumentError as error:
        return Reading(source.path, NAME, problems=(_unreadable(source, error),))
    top = document.value()
    if not isinstance(top, Mapping):
        return Reading(source.path, NAME)
    numbers = dict(_numbers(document))
    parameters = top.get("parameters")
    method = top.get("method")
    space = SweepSpace()
    if isinstance(parameters, Mapping):
        read_as = _with_numbers(parameters, numbers, ("parameters",))
        if isinstance(read_as, Mapping):
            space = read_space(read_as, _origin_of(document), ("parameters",), grid=method == "grid")
    links, command_problems = _links(top, document, space, project)
    return Reading(
        source.path,
        NAME,
        settings=tuple(Setting(name, constant) for name, constant in space.constants),
        axes=space.axes,
        links=links,
        facts=(Fact("search", "wandb", document.key_origin(("method",)) if method is not None else None),),
        problems=(*_problems(document, top, numbers, space), *command_problems),
    )


def _document(source: Source, project: Project) -> YamlDocument:
    """The parsed file. Raises DocumentError."""
    return yaml_of(source, project, "1.1")


def _origin_of(document: YamlDocument) -> OriginOf:
    def origin_of(route: Route) -> Origin | None:
        try:
            return document.origin(route)
        except KeyError:
            return None

    return origin_of


def _unreadable(source: Source, error: DocumentError) -> Problem:
    origin = Origin(source.path, error.span, None, (), False)
    if _TEMPLATE.search(source.text):
        return Problem("invalid-config", f"this is a template, not a sweep: {error.message}", origin, "info")
    if not error.mistake:
        return cannot_be_parsed(source.path, error)
    return Problem("invalid-config", f"not readable as YAML: {error.message}", origin)


# --- numbers that YAML 1.1 reads as text -----------------------------------------------------------------------------


def _numbers(document: YamlDocument) -> Iterator[tuple[Route, float]]:
    """Unquoted scalars of parameters that look like numbers but are text in YAML 1.1, with that number."""
    if not document.has(("parameters",)):
        return
    for route in document.routes(("parameters",)):
        if not _NUMERIC_KEYS.intersection(str(key) for key in route[2:]):
            continue
        node = document.find(route).node
        if node.kind == "scalar" and not node.style and isinstance(node.value, str):
            text = node.value
            if _YAML_11_TEXT.fullmatch(text):
                yield route, float(text.replace("_", ""))


def _read_as_text(
    document: YamlDocument, top: Mapping[str, Value], numbers: Mapping[Route, float]
) -> Iterator[Problem]:
    """One problem for each way in which it matters that numbers are text for `wandb sweep`.

    The client hands the text on as it stands, and W&B's server reads it again, as a number
    (wandb/apis/public/sweeps.py, `_upsert_sweep`). The client itself refuses bounds of no one number type
    (`_validate_config_and_fill_distribution`), and with `controller: {type: local}` it computes with the text. In a
    file of JSON they are numbers to every program that reads it as JSON, as the project's own may: nothing is said.
    """
    if document.source.path.endswith(".json"):
        return
    controller = top.get("controller")
    local = isinstance(controller, Mapping) and controller.get("type") == "local"
    refused = [route for route in numbers if _needs_number(document, route)]
    rest = [route for route in numbers if route not in refused]
    ways: tuple[tuple[list[Route], ProblemSeverity, str], ...] = (
        (refused, "error", "`wandb sweep` refuses bounds of which one is text and no `distribution` is given"),
        (rest, "warning", "the local controller computes with the text"),
        (rest, "info", "W&B's server reads it again, as a number"),
    )
    for routes, severity, what in ways:
        if routes and (severity == "error" or local == (severity == "warning")):
            texts = [str(document.value(route)) for route in routes]
            also = tuple(
                (document.origin(at), as_yaml_11(text)) for at, text in zip(routes[1:], texts[1:], strict=True)
            )
            more = f" (and {plural(len(also), 'number')} more)" if also else ""
            said = f"{routes[0][1]}: {texts[0]}{more} is text in YAML 1.1: {what}; {as_yaml_11(texts[0])} is a number"
            place, fix = document.origin(routes[0]), as_yaml_11(texts[0])
            yield Problem("number-read-as-string", said, place, severity, fix=fix, safe=True, also=also)


def _needs_number(document: YamlDocument, route: Route) -> bool:
    """Whether it is a bound whose distribution follows from the types of the bounds."""
    parameter = document.value(route[:-1])
    return route[-1] in ("min", "max") and isinstance(parameter, Mapping) and "distribution" not in parameter


def as_yaml_11(text: str) -> str:
    """The spelling of a number with an exponent in YAML 1.1: with a point, and with a sign in the exponent.

    >>> as_yaml_11("1e-5"), as_yaml_11("2E5"), as_yaml_11("1.5e3")
    ('1.0e-5', '2.0E+5', '1.5e+3')
    """
    letter = "e" if "e" in text else "E"
    mantissa, _, exponent = text.partition(letter)
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    if mantissa.lstrip("+-").startswith("."):  # YAML 1.1 wants a digit before the point once there is a sign
        mantissa = mantissa.replace(".", "0.", 1)
    return f"{mantissa}{letter}{exponent if exponent[0] in '+-' else '+' + exponent}"


def _with_numbers(value: Value, numbers: Mapping[Route, float], route: Route) -> object:
    if route in numbers:
        return numbers[route]
    if isinstance(value, Mapping):
        return {key: _with_numbers(item, numbers, (*route, key)) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_with_numbers(item, numbers, (*route, index)) for index, item in enumerate(value)]
    return value


# --- problems --------------------------------------------------------------------------------------------------------


def _problems(
    document: YamlDocument, top: Mapping[str, Value], numbers: Mapping[Route, float], space: SweepSpace
) -> Iterator[Problem]:
    yield from _read_as_text(document, top, numbers)
    for note in document.problems:
        related = ((Origin(document.source.path, note.related), "the first is here"),) if note.related else ()
        severity: ProblemSeverity = "error" if note.kind == "several-documents" else "warning"
        origin = Origin(document.source.path, note.span, None, (), False)
        yield Problem("invalid-config", note.message, origin, severity, related=related)
    yield from _schema_problems(document, top, numbers)
    for complaint in space.complaints:
        yield _complaint(document, complaint)


def _schema_problems(
    document: YamlDocument, top: Mapping[str, Value], numbers: Mapping[Route, float]
) -> Iterator[Problem]:
    from preflight.dialects.wandb.schema import check_sweep

    read_as = _with_numbers(top, numbers, ())
    if isinstance(read_as, Mapping):
        for error in check_sweep(read_as):
            origin = document.key_origin(error.route) if error.key else _place(document, error.route)
            yield Problem("invalid-config", error.message, origin, _severity(error))


def _severity(error: SchemaError) -> ProblemSeverity:
    """W&B takes a sweep with an unknown key at its top, warns, and does without the key."""
    return "warning" if error.key is not None and error.meant is None and len(error.route) == 1 else "error"


def _complaint(document: YamlDocument, complaint: Complaint) -> Problem:
    return Problem("invalid-config", complaint.message, _place(document, complaint.route), complaint.severity)


def _place(document: YamlDocument, route: Route) -> Origin:
    """The place of the value at a route; of its key if the value has several lines; of the first line for the top."""
    while route:
        try:
            node = document.find(route).node
        except KeyError:
            route = route[:-1]
            continue
        origin = document.origin(route) if node.kind == "scalar" or node.style == "flow" else document.key_origin(route)
        return Origin(origin.path, origin.span, route, origin.via, False)
    start = document.span().start
    end = document.source.text.find("\n", start)
    return Origin(document.source.path, Span(start, end if end >= 0 else len(document.source.text)), (), (), False)


# --- the program -----------------------------------------------------------------------------------------------------


def _links(
    top: Mapping[str, Value], document: YamlDocument, space: SweepSpace, project: Project
) -> tuple[tuple[Link, ...], tuple[Problem, ...]]:
    """Links to the program of the sweep. A sweep that Python creates and runs has no program."""
    links, problems = [], []
    for command in commands(top, document, space):
        name = command.name
        if name is None or command.kind == "none":
            continue
        origin = command.target.origin if command.target is not None else None
        at = name if command.kind == "module" else find_target(name, document.source.path, project)
        if at is None:
            problems.append(_missing(name, origin, document))
            continue
        links.append(Link(command.kind, at, command.words, space.settings, command.launch, origin))
    return tuple(links), tuple(problems)


def find_target(name: str, beside: str, project: Project) -> str | None:
    """The file of a sweep's program. W&B starts it in the agent's directory: the folder of the sweep, one above, or one
    beside these, if only one of them has such a file."""
    folder = PurePosixPath(beside).parent
    above = (folder, *folder.parents)
    for base in above:
        at = without_dots(str(base / name))
        if at is not None and project.exists(at):
            return at
    found = [one for base in above for one in _below(name, str(base), project)]
    return found[0] if len(found) == 1 else None


def _below(name: str, base: str, project: Project) -> Iterator[str]:
    """The files of that name in the folders that a folder has."""
    if name.startswith(("/", "~", "..")):
        return
    for inner in project.listdir(base if base != "." else "")[:MOST_FOLDERS]:
        path = inner if base == "." else f"{base}/{inner}"
        at = without_dots(f"{path}/{name}")
        if not inner.startswith(".") and project.is_dir(path) and at is not None and project.exists(at):
            yield at


def _missing(name: str, origin: Origin | None, document: YamlDocument) -> Problem:
    place = origin if origin is not None else _place(document, ("program",))
    said = f"the program {name} was not found where an agent may start it, so the use of these values is unknown"
    return Problem("invalid-config", said, place, "info")
