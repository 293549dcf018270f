"""Insertion of settings that no file has yet, where the program or library is known to accept them.

Three places accept a new setting: a keyword of a call whose signature is known (TrainingArguments, DataLoader, a
Trainer), a flag that the program's own parser defines, and an argument of a trainer's table in frameworks/. A name
is never guessed, because an unknown flag ends an argparse program. A new key goes behind the key of the batch size,
else behind the file's last key; a new flag goes behind the last word of the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from preflight.documents import tree_edits
from preflight.documents.render import render
from preflight.frameworks.arguments import document_of
from preflight.frameworks.table import heads, keywords
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Reading
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import CannotEdit, Edit
from preflight.vocabulary.values import Const, Expr, Op, Origin, Ref, Route, Span, Unknown, Value

if TYPE_CHECKING:
    from preflight.documents.python import PythonDocument
    from preflight.vocabulary.reading import Parameter


def insertion(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits that insert a setting; None if no place is known to accept it.

    Raises CannotEdit if the call may have the setting already.
    """
    if isinstance(change.value, (Unknown, Mapping, tuple)):
        return None
    found = _flag(change, study, project)
    if found is None:
        found = _keyword(change, study, project)
    return found if found is not None else _argument(change, study, project)


# --- keywords -------------------------------------------------------------------------------------------------------


def _keyword(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    fact = study.facts.get("framework")
    known = keywords(str(fact.value) if fact is not None else "")
    for path in study.paths:
        if not path.endswith(".py"):
            continue
        document = project.remembered.get(_PARSED, partial(_parsed, path, project), path)
        for called, names in known:
            if change.field not in names:
                continue
            calls = [node for node in ast.walk(document.tree) if isinstance(node, ast.Call) and _name(node) in called]
            call = _meant(calls, document, study)
            if call is not None:
                text = render("", change.value, "python")
                return (_inserted(document, call, names[change.field], text, project),)
    return None


_PARSED: CacheKind[PythonDocument] = CacheKind("a program, parsed for insertions")
_INSERTED: CacheKind[Edit | CannotEdit] = CacheKind("a keyword that a call gets, or why it gets none")


def _parsed(path: str, project: Project) -> PythonDocument:
    from preflight.documents.python import parse_python

    return parse_python(project.source(path))


def _inserted(document: PythonDocument, call: ast.Call, name: str, text: str, project: Project) -> Edit:
    """The edit, proved once for all launches of the program. Raises CannotEdit."""

    def inserted() -> Edit | CannotEdit:
        try:
            return document.insert_keyword(call, name, text)
        except CannotEdit as error:
            return error

    place = document.source.path, document.span(call), name, text
    found = project.remembered.get(_INSERTED, inserted, *place)
    if isinstance(found, CannotEdit):
        raise found.with_traceback(None)
    return found


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _meant(calls: list[ast.Call], document: PythonDocument, study: Study) -> ast.Call | None:
    """The only call, else the call from which the training batch or the number of workers is read."""
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
    """The words that give a value to the program's own parser; None if it has no flag for the field."""
    parameter = next(_parameters(field, study), None)
    return _written(parameter, value) if parameter is not None and parameter.flags else None


def _parameters(field: str, study: Study) -> Iterator[Parameter]:
    """Parameters that alone decide a Job field, those of the innermost program first."""
    for reading in reversed(study.readings):
        named = {parameter.name: parameter for parameter in reading.parameters if parameter.kind != "wandb"}
        for binding in reading.bindings:
            decides = _without_older_name(binding.expr)
            if binding.field == field and isinstance(decides, Ref) and decides.name in named:
                yield named[decides.name]


def _without_older_name(expr: Expr) -> Expr:
    """`new if old is None else old`: new."""
    if isinstance(expr, Op) and expr.operator == "if":
        asked, new, old = expr.operands
        if isinstance(asked, Op) and asked.operator == "is" and asked.operands == (old, Const(None)):
            return _without_older_name(new)
    return expr


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
    """The edit that adds the field to a trainer's arguments; None if the study uses no known trainer."""
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
        return None  # the key exists, and the reader did not take its value for the field
    tops: list[Route] = [route[:1] for route in document.routes()]
    batch = next((b.origin for b in reading.bindings if b.field == "train.batch_size" and b.origin is not None), None)
    beside: Route | None = tops[-1] if tops else None
    if batch is not None and batch.path == reading.path and batch.route and len(batch.route) == 1:
        beside = batch.route
    return None if beside is None else (tree_edits.insert(document, beside, key, value),)


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
