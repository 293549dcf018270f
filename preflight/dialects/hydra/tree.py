"""A Hydra configuration as tables, lists and leaves with their places, and its merging.

Merging follows OmegaConf 2.3 (`BaseContainer._map_merge`): tables merge key by key, lists and scalars replace the old
value, and `???` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, Union

from msgspec import Struct, field

from preflight.documents.document import Note, TreeDocument
from preflight.documents.tree import TreeNode, entries
from preflight.vocabulary.values import Cause, Expr, Origin, Route, Span, Unknown, Value

MISSING = "???"


class Leaf(Struct, frozen=True):
    """A scalar as in the text, interpolations included; `expr` is set if a caller gives the value."""

    value: Value
    origin: Origin | None = None
    expr: Expr | None = None
    rank: int = 0

    @property
    def missing(self) -> bool:
        return self.value == MISSING and self.expr is None

    @property
    def interpolated(self) -> bool:
        return self.expr is None and isinstance(self.value, str) and "${" in self.value


class Listing(Struct, frozen=True):
    items: tuple[Item, ...]
    origin: Origin | None = None
    rank: int = 0


class ConfigTable(Struct):
    items: dict[str, Item] = field(default_factory=dict)
    origin: Origin | None = None


Item: TypeAlias = Union[Leaf, Listing, ConfigTable]
Path: TypeAlias = "tuple[str, ...]"


def from_document(document: TreeDocument) -> Item:
    """The whole file as an item, without its `defaults` list."""
    root = _convert(document, document.root, (), (), False)
    if isinstance(root, ConfigTable):
        root.items.pop("defaults", None)
    return root


def _convert(document: TreeDocument, node: TreeNode, route: Route, aliases: tuple[Span, ...], shared: bool) -> Item:
    path = document.source.path
    via = tuple(Origin(path, place, None, (), False) for place in aliases)
    origin = Origin(path, node.span, route, via, not shared)
    if node.kind == "scalar" or isinstance(node.value, Unknown):
        return Leaf(node.value, origin)
    if node.kind == "list":
        inner = []
        for index, item in enumerate(node.items):
            here = (*aliases, item.alias) if item.alias is not None else aliases
            inner.append(_convert(document, item.value, (*route, index), here, shared or item.alias is not None))
        return Listing(tuple(inner), origin)
    table = ConfigTable({}, origin)
    for name, item, places in entries(node):
        here = (*aliases, *places, *((item.alias,) if item.alias is not None else ()))
        is_shared = shared or bool(here) or item.value.shared
        table.items[name] = _convert(document, item.value, (*route, name), here, is_shared)
    return table


def from_value(value: object, origin: Origin | None, rank: int) -> Item:
    """The value of a parsed override (scalars, lists, dictionaries) as an item with the place `origin`."""
    if isinstance(value, dict):
        return ConfigTable({str(key): from_value(item, origin, rank) for key, item in value.items()}, origin)
    if isinstance(value, (list, tuple)):
        return Listing(tuple(from_value(item, origin, rank) for item in value), origin, rank)
    if value is None or isinstance(value, (bool, int, float, str)):
        return Leaf(value, origin, None, rank)
    return Leaf(Unknown(f"a {type(value).__name__} in an override is not read", Cause.not_read), origin, None, rank)


def copied(item: Item) -> Item:
    """A copy whose tables can be merged into without touching the original."""
    if isinstance(item, ConfigTable):
        return ConfigTable({name: copied(inner) for name, inner in item.items.items()}, item.origin)
    return item


Clash: TypeAlias = "tuple[str, Item, Item]"
"""A key that is a table in one file and a list in another; OmegaConf refuses to merge them."""


def merge(
    into: ConfigTable, other: ConfigTable, clashes: list[Clash] | None = None, root: ConfigTable | None = None
) -> None:
    """Merges `other` into `into`, in place. `root` is the whole configuration, to resolve interpolated tables."""
    top = root if root is not None else into
    for name, item in other.items.items():
        old = into.items.get(name)
        if isinstance(old, Leaf) and old.interpolated and isinstance(item, ConfigTable):
            old = _aliased(old, top)  # a table that is only referred to is copied before it is changed
            if old is not None:
                into.items[name] = old
        if isinstance(item, Leaf) and item.missing and old is not None:
            continue
        if clashes is not None and isinstance(old, (ConfigTable, Listing)) and isinstance(item, (ConfigTable, Listing)):
            clashes += [(name, old, item)] if type(old) is not type(item) else []
        if isinstance(old, ConfigTable) and isinstance(item, ConfigTable):
            merge(old, item, clashes, top)
            old.origin = item.origin or old.origin
        else:
            into.items[name] = copied(item)


def _aliased(leaf: Leaf, root: ConfigTable) -> Item | None:
    text = str(leaf.value).strip()
    if not (text.startswith("${") and text.endswith("}")) or text.count("${") > 1 or ":" in text:
        return leaf
    found = select(root, split_key(text[2:-1]))
    return copied(found) if isinstance(found, ConfigTable) else leaf


def split_key(key: str) -> Path:
    """`a.b[c].d` -> ("a", "b", "c", "d")."""
    return tuple(part for part in key.replace("[", ".").replace("]", "").split(".") if part)


def select(root: Item, path: Path) -> Item | None:
    """The item at a path, None if there is none. Interpolations on the way are not followed."""
    item: Item = root
    for part in path:
        if isinstance(item, ConfigTable) and part in item.items:
            item = item.items[part]
        elif (
            isinstance(item, Listing)
            and part.lstrip("-").isdecimal()
            and -len(item.items) <= int(part) < len(item.items)
        ):
            item = item.items[int(part)]
        else:
            return None
    return item


def assign(root: ConfigTable, path: Path, item: Item) -> None:
    """Puts an item at a path and makes the tables on the way. Tables merge (`OmegaConf.update(..., merge=True)`)."""
    table = root
    for part in path[:-1]:
        inner = table.items.get(part)
        if isinstance(inner, Leaf) and inner.interpolated:
            inner = _aliased(inner, root)
        if not isinstance(inner, ConfigTable):
            inner = ConfigTable()
        table.items[part] = inner
        table = inner
    old = table.items.get(path[-1])
    if isinstance(old, ConfigTable) and isinstance(item, ConfigTable):
        merge(old, item, None, root)
    else:
        table.items[path[-1]] = item


def remove(root: ConfigTable, path: Path) -> bool:
    """Removes a key; False if it does not exist."""
    table = select(root, path[:-1])
    if not isinstance(table, ConfigTable) or path[-1] not in table.items:
        return False
    del table.items[path[-1]]
    return True


def embedded(item: Item, package: str) -> ConfigTable | None:
    """The content of a file below its package. None for a text, and for a list that has no package."""
    if isinstance(item, Leaf) and item.value is None:
        item = ConfigTable({}, item.origin)  # an empty file
    if isinstance(item, Leaf):
        return None
    for part in reversed([part for part in package.split(".") if part]):
        item = ConfigTable({part: item}, None)
    return item if isinstance(item, ConfigTable) else None


def leaves(item: Item, path: Path = ()) -> Iterator[tuple[Path, Leaf | Listing]]:
    """Every leaf and every list, with its path."""
    if isinstance(item, ConfigTable):
        for name, inner in item.items.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, item


def keys(item: Item, path: Path = ()) -> Iterator[str]:
    """Every key by its dotted path, those of tables too."""
    if isinstance(item, ConfigTable):
        for name, inner in item.items.items():
            yield ".".join((*path, name))
            yield from keys(inner, (*path, name))


class Entry(Struct, frozen=True):
    """One item of a defaults list: `group` None for a plain path; `option` is text, a tuple of texts, or None."""

    option: str | tuple[str, ...] | None
    origin: Origin
    group: str | None = None
    package: str | None = None
    optional: bool = False
    override: bool = False


class ConfigFile(Struct, frozen=True):
    """One file, or one registered class: its content, its defaults list and its package header."""

    path: str
    item: Item
    entries: tuple[Entry, ...]
    package: str | None
    complaints: tuple[tuple[str, Origin], ...]
    notes: tuple[Note, ...]
    origin: Origin
    defaults_origin: Origin
    """The place of its defaults list, or of the whole file without one."""
