"""Which values of a YAML or JSON file an edit changed: only values on the edited lines may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from preflight.documents.document import TreeDocument
from preflight.documents.layout import line_end, line_start
from preflight.documents.render import language_of
from preflight.documents.tree_edits import same
from preflight.vocabulary.text import DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Route, Value


def only_meant(source: Source, edits: Iterable[Edit]) -> bool:
    """Whether only values on the edited lines change. True for other languages: their edits are proved by comparing
    syntax trees, or by reading the study again."""
    if language_of(source.path) not in ("yaml", "json"):
        return True
    edits = list(edits)
    try:
        before = _parse(source)
        after = _parse(Source(source.path, splice(source.text, edits)))
    except DocumentError:
        return False
    lines = [(line_start(source.text, e.span.start), line_end(source.text, e.span.end)) for e in edits]
    return all(_touched(before, route, lines) for route in changed_routes(before.value(), after.value()))


def _parse(source: Source) -> TreeDocument:
    if language_of(source.path) == "json":
        from preflight.documents.json import parse_json

        return parse_json(source)
    from preflight.documents.yaml import parse_yaml

    return parse_yaml(source)


def changed_routes(before: Value, after: Value, route: Route = ()) -> Iterator[Route]:
    """Routes of the deepest values that differ. A list of another length differs as a whole, and so does a mapping with
    other keys."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before:
            if key in after:
                yield from changed_routes(before[key], after[key], (*route, key))
        if before.keys() != after.keys():
            yield route
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from changed_routes(old, new, (*route, index))
    elif not same(before, after):
        yield route


def _touched(before: TreeDocument, route: Route, lines: list[tuple[int, int]]) -> bool:
    found = before.find(route)
    if found.aliases and found.item.alias is None:
        return False
    span = found.item.alias or found.node.span
    text = before.source.text
    start, end = line_start(text, span.start), line_end(text, span.end)
    return any(first <= end and start <= last for first, last in lines)
