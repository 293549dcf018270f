"""Settings that are not written anywhere yet: added only where the consumer is known to accept them.

A keyword of a call whose signature is known (TrainingArguments, DataLoader, a Trainer), or a flag that the program's
own parser defines. An unknown flag kills an argparse program, so a name is never guessed. A trainer's file of
arguments, or its command, takes what the trainer's table in frameworks/ says: a key goes behind the one that has the
batch size, else behind the file's last one; a flag behind the line's last word.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from preflight.documents import cut
from preflight.documents.render import render
from preflight.frameworks.arguments import document_of
from preflight.frameworks.table import heads, keywords
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Reading
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Ref, Route, Span, Unknown, Value

if TYPE_CHECKING:
    from preflight.documents.python import PythonDocument
    from preflight.vocabulary.reading import Parameter


def insertion(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits that state a setting for the first time; None where nobody is known to accept it.

    Raises CannotEdit where the call has it already in a way that cannot be told.
    """
    if isinstance(change.value, (Unknown, Mapping, tuple)):
        return None
    found = _flag(change, study, project)
    if found is None:
        found = _keyword(change, study, project)
    return found if found is not None else _argument(change, study, project)


# --- keywords -------------------------------------------------------------------------------------------------------


def _keyword(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    from preflight.documents.python import parse_python

    fact = study.facts.get("framework")
    known = keywords(str(fact.value) if fact is not None else "")
    for path in study.paths:
        if not path.endswith(".py"):
            continue
        document = parse_python(project.source(path))
        for called, names in known:
            if change.field not in names:
                continue
            calls = [node for node in ast.walk(document.tree) if isinstance(node, ast.Call) and _name(node) in called]
            call = _meant(calls, document, study)
            if call is not None:
                text = render("", change.value, "python")
                return (document.insert_keyword(call, names[change.field], text),)
    return None


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _meant(calls: list[ast.Call], document: PythonDocument, study: Study) -> ast.Call | None:
    """The only call, else the one that the training batch or the workers are read from."""
    if len(calls) == 1:
        return calls[0]
    for name in ("train.batch_size", "data.workers"):
        for box in study.boxes:
            bound = box.fields.get(name)
            origin = bound.origin if bound is not None else None
            if origin is not None and origin.path == document.source.path:
                holding = [call for call in calls if _holds(document.span(call), origin.span)]
                if len(holding) == 1:
                    return holding[0]
    return None


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


# --- flags ----------------------------------------------------------------------------------------------------------


def _flag(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """A flag of the program's own parser, behind the last word of the line that launches it."""
    place, written = line_end(study), flag(change.field, change.value, study)
    if place is None or written is None:
        return None
    return (Edit(place.path, Span(place.span.end, place.span.end), f" {written}"),)


def flag(field: str, value: Value, study: Study) -> str | None:
    """The words by which the program's own parser takes a value; None where it has no flag for the field."""
    parameter = next(_parameters(field, study), None)
    return _written(parameter, value) if parameter is not None and parameter.flags else None


def _parameters(field: str, study: Study) -> Iterator[Parameter]:
    """Parameters that are all of a Job field, the innermost program's first."""
    for reading in reversed(study.readings):
        named = {parameter.name: parameter for parameter in reading.parameters if parameter.kind != "wandb"}
        for binding in reading.bindings:
            if binding.field == field and isinstance(binding.expr, Ref) and binding.expr.name in named:
                yield named[binding.expr.name]


def _written(parameter: Parameter, value: Value) -> str | None:
    longest = max(parameter.flags, key=len)
    negated = [flag for flag in parameter.flags if flag.startswith("--no-")]
    if parameter.type in ("flag", "no-flag"):
        return longest if value is (parameter.type == "flag") else None
    if negated and isinstance(value, bool):
        return next((flag for flag in parameter.flags if (flag in negated) is not value), None)
    return f"{longest} {render('', value, 'bash')}"


def line_end(study: Study) -> Origin | None:
    """The last word of the innermost launch line in a script."""
    if not study.links:
        return None
    link = study.links[-1]
    places = [word.origin for word in link.words if word.origin is not None]
    if not places or any(place.path.endswith((".yaml", ".yml", ".json", ".py")) for place in places):
        return None
    last = max(places, key=lambda place: place.span.end)
    return last if last.editable and len({place.path for place in places}) == 1 else None


# --- arguments of a trainer's file or command ----------------------------------------------------------------------


def _argument(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edit that states the field in the study's arguments; None where they are no trainer's that is known."""
    for reading in reversed(study.readings):
        known = heads().get(reading.dialect)
        key = known.inserts.get(change.field) if known is not None else None
        if key is None or change.value is None:
            continue
        if reading.path.endswith((".yaml", ".yml", ".json")):
            return _in_file(reading, key, change.value, project)
        return _on_line(reading, key, change.value, study)
    return None


def _in_file(reading: Reading, key: str, value: Value, project: Project) -> tuple[Edit, ...] | None:
    document = document_of(project.source(reading.path), project)
    if document.has((key,)):
        return None  # it is there, and means something that the reader did not take
    tops: list[Route] = [route[:1] for route in document.routes()]
    batch = next((b.origin for b in reading.bindings if b.field == "train.batch_size" and b.origin is not None), None)
    beside: Route | None = tops[-1] if tops else None
    if batch is not None and batch.path == reading.path and batch.route and len(batch.route) == 1:
        beside = batch.route
    return None if beside is None else (cut.insert(document, beside, key, value),)


def _on_line(reading: Reading, key: str, value: Value, study: Study) -> tuple[Edit, ...] | None:
    places: list[Origin] = []
    for word in study.links[-1].words if study.links else ():
        places += [one for one in (word.origin, word.value.origin if word.value is not None else None) if one]
    if not places or any(place.path != reading.path or not place.editable for place in places):
        return None
    end = max(place.span.end for place in places)
    text = render("", value, "bash")
    written = f"{key}={text}" if reading.dialect == "torchtune" else f"--{key} {text}"
    return (Edit(reading.path, Span(end, end), f" {written}"),)
