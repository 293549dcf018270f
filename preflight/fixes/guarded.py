"""The guard around an Optuna objective: `study.optimize(guard.optuna(objective), ...)`, and the import of it."""

from __future__ import annotations

import ast

from preflight.documents.layout import line_end, newline_of
from preflight.documents.python import PythonDocument, parse_python
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import CannotEdit, Edit
from preflight.vocabulary.values import Span

GUARDED = "program.guarded"
"""What a Change names to have the objective wrapped: a fact of the program, and no field of its Job."""
_MODULE, _NAME = "preflight", "guard"


def guarded(study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits that wrap the objective of the only call of `optimize`; None if there is not exactly one.

    Raises CannotEdit, DocumentError.
    """
    calls = [
        (document, node)
        for document in (parse_python(project.source(path)) for path in study.paths if path.endswith(".py"))
        for node in ast.walk(document.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STARTS
    ]
    fact = study.facts.get("search")
    if len(calls) != 1 or fact is None or fact.origin is None:
        return None
    ((document, call),) = calls
    if document.origin(call).span != fact.origin.span or not isinstance(call.func, ast.Attribute):
        return None
    objective = next((key.value for key in call.keywords if key.arg == "func"), call.args[0] if call.args else None)
    if call.func.attr != "optimize" or objective is None or isinstance(objective, ast.Starred):
        return None
    text, span = document.text(objective), document.span(objective)
    wrapped = Edit(document.source.path, span, f"{_NAME}.optuna({text})")
    return (*_import(document), wrapped)


_STARTS = ("optimize", "hyperparameter_search", "ask")
"""Calls that start a search, or a trial of one: `optimizer.optimize` of another library counts too."""


def _import(document: PythonDocument) -> tuple[Edit, ...]:
    """The import behind the last one of the file's head; none if the file has it. Raises CannotEdit if the name is
    used for something else."""
    head: ast.stmt | None = None
    for statement in document.tree.body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            head = statement
        elif not docstring:
            break
    if any(_imports(statement) for statement in document.tree.body):
        return ()
    if head is None or any(_uses(node) for node in ast.walk(document.tree)):
        raise CannotEdit(f"the name {_NAME} is used for something else")
    text, end = document.source.text, document.span(head).end
    rest = text[end : line_end(text, end)].strip()
    if rest and not rest.startswith("#"):
        raise CannotEdit("another statement stands behind the import")
    at = line_end(text, end)
    return (Edit(document.source.path, Span(at, at), f"{newline_of(text, end)}from {_MODULE} import {_NAME}"),)


def _imports(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.ImportFrom) or statement.module != _MODULE or statement.level:
        return False
    return any(alias.name == _NAME and alias.asname in (None, _NAME) for alias in statement.names)


def _uses(node: ast.AST) -> bool:
    names = (getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "asname", None))
    return _NAME in (*names, getattr(node, "name", None))
