"""Edits of YAML and JSON by splice. Each edit is read back: it must make the requested change and no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from preflight.documents import layout
from preflight.documents.document import TreeDocument
from preflight.documents.render import render
from preflight.documents.tree import FoundNode, TreeNode
from preflight.vocabulary.text import CannotEdit, DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Route, Span, Unknown, Value


def replace(doc: TreeDocument, route: Route, value: Value) -> Edit:
    """The edit that replaces a value, in the style of the old text. Raises CannotEdit."""
    found = doc.find(route)
    _refuse_shared(doc, route, found)
    if isinstance(value, (tuple, list)) and found.node.kind == "list" and found.item.alias is None:
        edit = _list(doc, route, found.node, tuple(value))
        if edit is not None:
            return edit
    if found.node.kind != "scalar" and found.node.style != "flow" and found.item.alias is None:
        raise CannotEdit("a block of several lines is not replaced as a whole")
    edit = _scalar(doc, found, value)
    _prove(doc, [edit], _with(doc.value(), route, value))
    return edit


def _refuse_shared(doc: TreeDocument, route: Route, found: FoundNode) -> None:
    """Raises CannotEdit for a value that is reached or repeated through an alias. The alias itself may be replaced."""
    inherited = bool(route) and (doc.find(route[:-1]).shared or len(found.aliases) > (found.item.alias is not None))
    if inherited or (found.shared and found.item.alias is None):
        raise CannotEdit("the value is shared through an anchor: editing it would change other settings")


def _scalar(doc: TreeDocument, found: FoundNode, value: Value) -> Edit:
    text, node, path = doc.source.text, found.node, doc.source.path
    flow = found.parent is not None and found.parent.style != "block"
    if found.item.alias is not None:
        return Edit(path, found.item.alias, render("", value, doc.language, doc.version, flow))
    end = node.start + len(text[node.start : node.end].rstrip()) if node.style in ("|", ">") else node.end
    old = text[node.start : end] if node.style not in ("|", ">") else ""
    new = render(old, value, doc.language, doc.version, flow)
    if node.start == end:  # an empty value: `key:`, `-`, or a key without a colon in a flow mapping
        key = found.item.key
        colon = key is None or ":" in text[key.end : node.start]
        new = f"{'' if colon else ':'}{'' if text[node.start - 1 : node.start].isspace() else ' '}{new}"
    return Edit(path, Span(node.start, end), new)


def _list(doc: TreeDocument, route: Route, node: TreeNode, values: tuple[Value, ...]) -> Edit | None:
    """One edit that keeps the text of the kept items; None if the list must be written anew."""
    old = doc.value(route)
    assert isinstance(old, tuple)
    kept: list[int] = []
    for index, item in enumerate(old):
        if len(kept) < len(values) and same(item, values[len(kept)]):
            kept.append(index)
    if len(kept) == len(values) and kept:
        return merge(doc.source, keep(doc, route, kept)) if len(kept) < len(old) else None
    if len(values) == len(old):
        changed = [i for i in range(len(old)) if not same(old[i], values[i])]
        return merge(doc.source, [replace(doc, (*route, i), values[i]) for i in changed])
    return None


def insert(doc: TreeDocument, beside: Route, key: str, value: Value) -> Edit:
    """The edit that adds a key behind an existing key of a mapping. Raises CannotEdit."""
    found = doc.find(beside)
    parent, item = found.parent, found.item
    if parent is None or item.key is None or parent.kind != "map":
        raise CannotEdit("a new key must be next to a key of a mapping")
    holder = doc.find(beside[:-1])
    if holder.shared or item not in parent.items or len(found.aliases) > (item.alias is not None):
        raise CannotEdit("the mapping is shared through an anchor: a new key would show up elsewhere")
    inside = holder.node.value if isinstance(holder.node.value, Unknown) else doc.value(beside[:-1])
    if not isinstance(inside, Mapping) or key in inside:
        raise CannotEdit(f"there is a key {key!r} already")
    entry = _entry(doc, item.key, key, value, parent.style != "block", item.alias or item.value.span)
    place = layout.flow_entry if parent.style != "block" else layout.block_entry
    edit = place(doc.source, item, entry)
    _prove(doc, [edit], _with(doc.value(), (*beside[:-1], key), value))
    return edit


def _entry(doc: TreeDocument, like: TreeNode, key: str, value: Value, flow: bool, old: Span) -> str:
    text = doc.source.text
    name = render(text[like.start : like.end], key, doc.language, doc.version, flow)
    between = text[like.end : old.start]
    colon = between if doc.language == "json" and not between.strip(": ") and between else ": "
    return f"{name}{colon}{render('', value, doc.language, doc.version, flow)}"


def keep(doc: TreeDocument, route: Route, indices: Iterable[int]) -> tuple[Edit, ...]:
    """The edits that keep only some items of a list, and remove the lines or commas of the others.

    Raises CannotEdit if no item is kept: an empty list means something else.
    """
    found = doc.find(route)
    node, kept = found.node, sorted(set(indices))
    if node.kind != "list" or (kept and (kept[0] < 0 or kept[-1] >= len(node.items))):
        raise KeyError(route)
    if found.shared:
        raise CannotEdit("the list is shared through an anchor: editing it would change other settings")
    if not kept:
        raise CannotEdit("an empty list would be left")
    if len(kept) == len(node.items):
        return ()
    without = layout.block_items if node.style == "block" else layout.flow_items
    spans = without(doc.source.text, node, kept)
    edits = tuple(Edit(doc.source.path, span, "") for span in spans)
    old = doc.value(route)
    assert isinstance(old, tuple)
    _prove(doc, edits, _with(doc.value(), route, tuple(old[i] for i in kept)))
    return edits


def merge(source: Source, edits: Iterable[Edit]) -> Edit:
    """One edit that has the effect of several edits of a file."""
    edits = tuple(edits)
    if not edits:
        raise CannotEdit("nothing would change")
    start, end = min(e.span.start for e in edits), max(e.span.end for e in edits)
    moved = [Edit(e.path, Span(e.span.start - start, e.span.end - start), e.text) for e in edits]
    return Edit(source.path, Span(start, end), splice(source.text[start:end], moved))


# --- proof ----------------------------------------------------------------------------------------------------------


def same(one: Value, other: Value) -> bool:
    """Equality of values. NaN equals NaN, and True does not equal 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(same(x, y) for x, y in zip(one, other, strict=True))
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return one == other or (one != one and other != other)


def _with(tree: Value, route: Route, value: Value) -> Value:
    if not route:
        return value
    if isinstance(tree, Mapping) and isinstance(route[0], str):
        return {**tree, route[0]: _with(tree.get(route[0]), route[1:], value)}
    assert isinstance(tree, tuple)
    assert isinstance(route[0], int)
    return (*tree[: route[0]], _with(tree[route[0]], route[1:], value), *tree[route[0] + 1 :])


def _prove(doc: TreeDocument, edits: Iterable[Edit], expected: Value) -> None:
    """Reads the edited text. Raises CannotEdit if its value is not the expected one."""
    source = Source(doc.source.path, splice(doc.source.text, edits))
    try:
        after = doc.reparse(source)
    except DocumentError as error:
        raise CannotEdit(f"the edited file would not be read: {error.message}") from None
    if not _says(after.value(), expected):
        raise CannotEdit("the edited file would say something else")


def _says(found: Value, expected: Value) -> bool:
    """As `same`, but a value in quotes may be read back as text."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(_says(found[key], expected[key]) for key in found)
    if isinstance(found, tuple) and isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(_says(x, y) for x, y in zip(found, expected, strict=True))
    if isinstance(found, str) and not isinstance(expected, (str, Unknown, type(None), Mapping, tuple)):
        return found.lower() == str(expected).lower() or _number_equals(found, expected)
    return same(found, expected)


def _number_equals(text: str, number: Value) -> bool:
    try:
        return float(text) == number
    except ValueError:
        words = {True: ("true", "yes", "on"), False: ("false", "no", "off")}
        return isinstance(number, bool) and text.lower() in words[number]
