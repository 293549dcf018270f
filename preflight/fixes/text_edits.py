"""Edits of the text at an origin, made by the document of its language."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

from preflight.documents import tree_edits
from preflight.documents.document import TreeDocument
from preflight.documents.render import Language, language_of, render
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import CannotEdit, Edit, Source
from preflight.vocabulary.values import Origin, Span, Value


def replace_text(origin: Origin, value: Value, project: Project, language: Language | None = None) -> Edit | None:
    """The edit that writes `value` in place of the text at `origin`. Raises CannotEdit, DocumentError, KeyError."""
    if not origin.editable:
        return None
    source = project.source(origin.path)
    own = language_of(origin.path)
    if own in ("yaml", "json"):
        document = tree(source, project)
        if origin.route is not None and document.span(origin.route) == origin.span:
            return tree_edits.replace(document, origin.route, value)
        return _part(source, origin.span, value, "hydra" if own == "yaml" else own)
    if own == "python" and language is None:
        return _python(source, origin.span, value, project)
    return _part(source, origin.span, value, language or own)


def _part(source: Source, span: Span, value: Value, language: Language) -> Edit:
    return Edit(source.path, span, render(source.text[span.start : span.end], value, language))


def tree(source: Source, project: Project) -> TreeDocument:
    """The parsed YAML or JSON file. A file that a reader parsed is not parsed again."""
    if source.path.endswith(".json"):
        from preflight.documents.json import parse_json

        return parse_json(source)
    from preflight.documents.yaml import YAML, yaml_of

    parsed = project.remembered.all(YAML, source.path)
    return next((one for one in parsed if one.source is source), None) or yaml_of(source, project, "1.1")


def _python(source: Source, span: Span, value: Value, project: Project) -> Edit | None:
    """Replaces a literal (or arithmetic of literals, `64 * 1024`) with a literal; None for any other expression."""
    old = source.text[span.start : span.end]
    try:
        literal = ast.literal_eval(old)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _part(source, span, value, "python") if _arithmetic(old) else None
    if isinstance(literal, str) and not isinstance(value, str):  # argv kept in a string: "16" -> "8"
        value = str(value)
    return Edit(source.path, span, render(old, value, "python"))


def _arithmetic(text: str) -> bool:
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
    try:
        return all(isinstance(node, allowed) for node in ast.walk(ast.parse(text, mode="eval")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


# --- lists ----------------------------------------------------------------------------------------------------------


def keep_items(origins: Sequence[Origin], indices: Sequence[int], project: Project) -> tuple[Edit, ...] | None:
    """The edits that leave only some items of a list; `origins` are the places of all items, in order."""
    first = origins[0]
    if any(origin.path != first.path or not origin.editable for origin in origins):
        return None
    source = project.source(first.path)
    route = first.route
    if route is not None and language_of(first.path) in ("yaml", "json"):
        document = tree(source, project)
        parent = route[:-1]
        listed = all(origin.route == (*parent, i) for i, origin in enumerate(origins))
        if listed and document.span(route) == first.span:
            return tree_edits.keep(document, parent, indices)
    return _joined(source, origins, indices)


def _joined(source: Source, origins: Sequence[Origin], indices: Sequence[int]) -> tuple[Edit, ...] | None:
    """One edit of a comma-separated list: the kept items, each with the separator before it."""
    spans = [origin.span for origin in origins]
    between = [source.text[one.end : other.start] for one, other in pairwise(spans)]
    if any(gap.strip() != "," for gap in between):  # a comment, or not a list
        return None
    separators = ["", *between]
    text = "".join(
        ("" if n == 0 else separators[i]) + source.text[spans[i].start : spans[i].end] for n, i in enumerate(indices)
    )
    edit = Edit(source.path, Span(spans[0].start, spans[-1].end), text)
    if language_of(source.path) == "python":
        edit = _python_list(source, edit, spans, len(indices))
    return (edit,)


def _python_list(source: Source, edit: Edit, spans: Sequence[Span], left: int) -> Edit:
    """The edit with the comma that a tuple of one item needs. Raises CannotEdit if the items are no list or tuple."""
    from preflight.documents.python import parse_python

    document = parse_python(source)
    for node in ast.walk(document.tree):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and [document.span(item) for item in node.elts] == [*spans]:
            end = document.span(node).end
            closed = source.text[edit.span.end : end].strip().startswith(",")
            alone = isinstance(node, ast.Tuple) and left == 1 and not closed
            return Edit(edit.path, edit.span, f"{edit.text},") if alone else edit
    raise CannotEdit("the values are not written as one list")
