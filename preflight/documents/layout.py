"""Spans to delete and places to insert for items and entries of collections, by the layout of the text."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.documents.tree import TreeItem, TreeNode
from preflight.vocabulary.text import CannotEdit, Edit, Source
from preflight.vocabulary.values import Span


def item_end(item: TreeItem) -> int:
    """Where an item's text ends."""
    return item.alias.end if item.alias is not None else item.value.end


def item_start(item: TreeItem) -> int:
    """Where an item's text starts, anchor and tag included."""
    return item.alias.start if item.alias is not None else item.value.outer


def skip(text: str, at: int) -> int:
    """The next offset that is neither white space nor a comment."""
    while at < len(text):
        if text[at] == "#" and (at == 0 or text[at - 1].isspace()):
            newline = text.find("\n", at)
            at = len(text) if newline < 0 else newline
        elif text[at].isspace():
            at += 1
        else:
            break
    return at


def line_start(text: str, at: int) -> int:
    """The first offset of the line that holds `at`."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Offset of the line's ending (`\\r\\n` or `\\n`), or the end of the text."""
    newline = text.find("\n", at)
    if newline < 0:
        return len(text)
    return newline - 1 if newline > at and text[newline - 1] == "\r" else newline


def next_line(text: str, at: int) -> int:
    """The first offset of the line after the one that holds `at`, or the end of the text."""
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def newline_of(text: str, at: int) -> str:
    """The line ending in use around an offset."""
    found = text.find("\n", at)
    found = text.rfind("\n", 0, at) if found < 0 else found
    return "\r\n" if found > 0 and text[found - 1] == "\r" else "\n"


# --- cutting out ----------------------------------------------------------------------------------------------------


def block_items(text: str, node: TreeNode, kept: Sequence[int]) -> list[Span]:
    """Spans to delete so that only the `kept` items of a block list stay: whole lines with their comments."""
    dashes: list[int] = []
    for index in range(len(node.items)):
        at = node.start if index == 0 else skip(text, item_end(node.items[index - 1]))
        if text[at : at + 1] != "-":
            raise CannotEdit("the list is laid out in a way that is not edited")
        dashes.append(at)
    spans = []
    for index, item in enumerate(node.items):
        if index in kept:
            continue
        dash, end = dashes[index], max(item_end(item), dashes[index] + 1)
        if text[line_start(text, dash) : dash].strip():  # `- - a`: the first item shares its line
            spans.append(Span(dash, dashes[kept[0]]))
            continue
        after = end if text[end - 1] == "\n" else next_line(text, end)
        spans.append(Span(line_start(text, dash), after))
    spans = _united(spans)
    last = spans[-1]
    if last.end == len(text) and not text.endswith("\n"):  # keep a missing final newline missing
        start = last.start - 1 if text[last.start - 1] == "\n" else last.start
        start -= text[start - 1 : start] == "\r"
        spans[-1] = Span(start, last.end)
    return spans


def flow_items(text: str, node: TreeNode, kept: Sequence[int]) -> list[Span]:
    """Spans to delete so that only the `kept` items of a flow list stay, with their commas and comments."""
    last_kept, last = kept[-1], len(node.items) - 1
    commas = [_comma(text, item_end(item)) for item in node.items]
    spans: list[Span] = []
    tail = last
    if last_kept < last:
        start, end = item_end(node.items[last_kept]), item_end(node.items[last])
        if "#" not in text[start : item_start(node.items[last])]:
            if _alone(text, node.items[last], commas[last]):
                end = line_end(text, end) if commas[last] is None or commas[last] else end
                start, end = _keep_comma(commas, last_kept, last, start, end)
            spans.append(Span(start, end))
            tail = last_kept
        elif commas[last] is None:
            comma = commas[last_kept]
            assert comma is not None
            spans.append(Span(comma, comma + 1))
    for index in range(tail + 1):
        if index not in kept:
            spans.append(_flow_item(text, node.items[index], commas[index]))
    return _united(spans)


def _keep_comma(commas: list[int | None], last_kept: int, last: int, start: int, end: int) -> tuple[int, int]:
    """The span of a deleted tail. If the list had a trailing comma, the last kept item keeps its comma."""
    comma = commas[last_kept]
    return (comma + 1, end) if commas[last] is not None and comma is not None else (start, end)


def _comma(text: str, at: int) -> int | None:
    at = skip(text, at)
    return at if text[at : at + 1] == "," else None


def _alone(text: str, item: TreeItem, comma: int | None) -> bool:
    """Whether no other item is on the lines of this item."""
    start, end = item_start(item), item_end(item) if comma is None else comma + 1
    rest = text[end : line_end(text, end)].strip()
    return not text[line_start(text, start) : start].strip() and (not rest or rest.startswith("#"))


def _flow_item(text: str, item: TreeItem, comma: int | None) -> Span:
    start, end = item_start(item), item_end(item) if comma is None else comma + 1
    if _alone(text, item, comma):
        return Span(line_start(text, start), next_line(text, end))
    stop = end
    while text[stop : stop + 1] in (" ", "\t"):
        stop += 1
    if comma is None or text[stop : stop + 1] in ("\r", "\n", "#"):  # last of its row: the space before it goes
        while text[start - 1] in " \t" and text[line_start(text, start) : start].strip():
            start -= 1
        stop = end
    return Span(start, stop)


def _united(spans: list[Span]) -> list[Span]:
    united: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        if united and span.start <= united[-1].end:
            united[-1] = Span(united[-1].start, max(united[-1].end, span.end))
        else:
            united.append(span)
    return united


# --- putting in -----------------------------------------------------------------------------------------------------


def block_entry(source: Source, item: TreeItem, entry: str) -> Edit:
    """The edit that puts `key: value` on a new line behind an entry of a block mapping."""
    text, key = source.text, item.key
    assert key is not None
    before = text[line_start(text, key.outer) : key.outer]
    if before.strip().endswith("?"):
        raise CannotEdit("no key is inserted next to a key that is written with `?`")
    indent, newline = " " * len(before), newline_of(text, key.outer)
    end = max(item_end(item), key.end)
    if text[end - 1 : end] == "\n":  # behind a block scalar
        return Edit(source.path, Span(end, end), f"{indent}{entry}{newline}")
    at = line_end(text, end)
    return Edit(source.path, Span(at, at), f"{newline}{indent}{entry}")


def flow_entry(source: Source, item: TreeItem, entry: str) -> Edit:
    """The edit that puts `key: value` behind an entry of a flow mapping, on a new line if that entry starts one."""
    text, key = source.text, item.key
    assert key is not None
    before = text[line_start(text, key.outer) : key.outer]
    end = max(item_end(item), key.end)
    if before.strip():  # another entry is on the same line
        return Edit(source.path, Span(end, end), f", {entry}")
    newline, comma = newline_of(text, key.outer) + before, _comma(text, end)
    last = end if comma is None else comma + 1
    at = line_end(text, last)
    rest = text[last:at].strip()
    if rest and not rest.startswith("#"):
        return Edit(source.path, Span(end, end), f",{newline}{entry}")
    if comma is None:
        return Edit(source.path, Span(end, at), f",{text[end:at]}{newline}{entry}")
    return Edit(source.path, Span(at, at), f"{newline}{entry},")
