"""Nodes of a YAML or JSON text with exact positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from preflight.vocabulary.values import Span, Value

Kind = Literal["scalar", "list", "map"]


class TreeItem(Struct, eq=False):
    """One entry of a collection. `alias` is the place of `*name` if the value is an alias."""

    value: TreeNode
    key: TreeNode | None = None
    alias: Span | None = None


class TreeNode(Struct, eq=False):
    """A value: `start` to `end` is its text without anchor and tag (`outer` is their start).

    `style`: "" plain, "'", '"', "|", ">" for scalars; "flow" or "block" for collections ("pair" for `[a: 1]`).
    `shared` marks a value that an alias repeats: editing it changes several settings.
    """

    kind: Kind
    start: int
    end: int
    outer: int
    style: str
    value: Value = None
    text: str = ""
    items: list[TreeItem] = field(default_factory=list)
    anchor: str | None = None
    shared: bool = False
    size: int = 1
    height: int = 1

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


class FoundNode(Struct, frozen=True):
    """The item at a route, and the way to it."""

    item: TreeItem
    parent: TreeNode | None = None
    aliases: tuple[Span, ...] = ()
    """Places of the aliases (and merge keys) on the way, the outermost first."""
    shared: bool = False

    @property
    def node(self) -> TreeNode:
        return self.item.value


def key_name(key: TreeNode) -> str:
    """A mapping key as routes spell it: the value of a string, the text of anything else (`1`, `on`)."""
    return key.value if isinstance(key.value, str) else key.text


def is_merge(key: TreeNode) -> bool:
    """Whether the key is a merge key, `<<` without quotes."""
    return key.kind == "scalar" and not key.style and key.text == "<<"


def entries(node: TreeNode, merges: bool = True) -> Iterator[tuple[str, TreeItem, tuple[Span, ...]]]:
    """The effective entries of a mapping: its own keys (of equal keys the last), then merged keys that are not hidden.

    The third part has the places of the merge keys through which an entry came.
    """
    own: dict[str, TreeItem] = {}
    merged: list[tuple[TreeItem, Span]] = []
    for item in node.items:
        if item.key is None or item.key.kind != "scalar":
            continue
        if merges and is_merge(item.key):
            merged += _merged(item)
        else:
            own[key_name(item.key)] = item
    yield from ((name, item, ()) for name, item in own.items())
    seen = set(own)
    for source, place in merged:
        for name, item, path in list(entries(source.value)) if source.value.kind == "map" else []:
            if name not in seen:
                seen.add(name)
                yield name, item, (place, *path)


def _merged(item: TreeItem) -> list[tuple[TreeItem, Span]]:
    if item.value.kind == "list":
        return [(inner, inner.alias or item.alias or inner.value.span) for inner in item.value.items]
    return [(item, item.alias or item.value.span)]


def mark_shared(node: TreeNode) -> None:
    """Marks a node and everything below it as shared."""
    if not node.shared:
        node.shared = True
        for item in node.items:
            mark_shared(item.value)
