"""A parsed YAML or JSON file: values and places by route. Edits are in `tree_edits`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from preflight.documents.scalars import Version
from preflight.documents.tree import FoundNode, TreeItem, TreeNode, entries
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Origin, Route, Span, Unknown, Value


class Note(Struct, frozen=True):
    """A problem that does not prevent reading the file.

    `kind`: duplicate-key (`related` is the first key), several-documents, value (an unreadable tag or scalar), key.
    """

    kind: str
    message: str
    span: Span
    related: Span | None = None


class TreeDocument(Struct, frozen=True, eq=False):
    """A parsed file. A route has the keys and indices from the top, `("parameters", "lr", "values", 2)`; a key that is
    not a string is spelled as in the text. Methods raise KeyError for a route that does not exist.

    Values behind an alias or a merge key have their place at the anchor. They are not editable, because several
    settings share them.
    """

    source: Source
    root: TreeNode
    language: Literal["yaml", "json"]
    version: Version
    problems: tuple[Note, ...] = ()
    _index: dict[int, dict[str, tuple[TreeItem, tuple[Span, ...]]]] = field(default_factory=dict)

    def find(self, route: Route) -> FoundNode:
        """The item at a route, and how it is reached."""
        found = FoundNode(TreeItem(self.root))
        for step in route:
            found = self._step(found, step, route)
        return found

    def _step(self, found: FoundNode, step: str | int, route: Route) -> FoundNode:
        node = found.node
        if node.kind == "map" and isinstance(step, str):
            entry = self._entries(node).get(step)
            if entry is not None:
                return self._inner(found, *entry)
        elif node.kind == "list" and isinstance(step, int) and 0 <= step < len(node.items):
            return self._inner(found, node.items[step], ())
        raise KeyError(route)

    def _entries(self, node: TreeNode) -> dict[str, tuple[TreeItem, tuple[Span, ...]]]:
        """The entries of a mapping by key, cached."""
        if id(node) not in self._index:
            found = entries(node, merges=self.language == "yaml")
            self._index[id(node)] = {name: (item, places) for name, item, places in found}
        return self._index[id(node)]

    def _inner(self, found: FoundNode, item: TreeItem, places: tuple[Span, ...]) -> FoundNode:
        aliases = (*found.aliases, *places, *((item.alias,) if item.alias is not None else ()))
        shared = found.shared or bool(places) or item.alias is not None or item.value.shared
        return FoundNode(item, found.node, aliases, shared)

    def value(self, route: Route = ()) -> Value:
        """The value at a route: scalars, tuples and dicts."""
        return _value(self.find(route).node, self.language == "yaml")

    def has(self, route: Route) -> bool:
        """Whether the route leads somewhere."""
        try:
            self.find(route)
        except KeyError:
            return False
        return True

    def span(self, route: Route = ()) -> Span:
        """The place of the value's own text (at the anchor where the route goes through an alias)."""
        return self.find(route).node.span

    def key_span(self, route: Route) -> Span:
        """The place of the key, or of the value if it is an item of a list."""
        item = self.find(route).item
        return item.key.span if item.key is not None else item.alias or item.value.span

    def origin(self, route: Route = ()) -> Origin:
        """Where the value is written; `via` has the aliases and merge keys on the way to it."""
        found = self.find(route)
        via = tuple(Origin(self.source.path, place, None, (), False) for place in found.aliases)
        return Origin(self.source.path, found.node.span, tuple(route), via, not found.shared)

    def key_origin(self, route: Route) -> Origin:
        """Where the key is written."""
        return Origin(self.source.path, self.key_span(route), tuple(route), (), False)

    def routes(self, route: Route = ()) -> Iterator[Route]:
        """Every route below `route` to a scalar or an empty collection, in the order of the file."""
        yield from _routes(self.find(route).node, tuple(route), self.language == "yaml")

    def reparse(self, source: Source) -> TreeDocument:
        """Parses another text in the same way. Raises DocumentError."""
        raise NotImplementedError


def _value(node: TreeNode, merges: bool) -> Value:
    if node.kind == "scalar" or isinstance(node.value, Unknown):
        return node.value
    if node.kind == "list":
        return tuple(_value(item.value, merges) for item in node.items)
    return {name: _value(item.value, merges) for name, item, _ in entries(node, merges)}


def _routes(node: TreeNode, route: Route, merges: bool) -> Iterator[Route]:
    if node.kind == "scalar" or not node.items:
        yield route
    elif node.kind == "list":
        for index, item in enumerate(node.items):
            yield from _routes(item.value, (*route, index), merges)
    else:
        for name, item, _ in entries(node, merges):
            yield from _routes(item.value, (*route, name), merges)
