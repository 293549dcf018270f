"""Parser of YAML with positions: a tree of nodes made from libyaml's events.

Files may be hostile, so depth, the number of nodes and the expansion of aliases are limited. Every error is a
DocumentError with its place.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from preflight.documents.document import Note, TreeDocument
from preflight.documents.scalars import BadScalar, Version, plain_tag, scalar, short_tag
from preflight.documents.tree import TreeItem, TreeNode, key_name, mark_shared
from preflight.vocabulary.budgets import EXPANDED_NODES, TREE_DEPTH, TREE_NODES
from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Route, Span, Unknown

_PROPERTIES = regex(r"(?:(?:!<[^>\s]*>|[&!][^\s,\[\]{}]*)(?:\s+(?:#[^\n]*\s*)*|(?=[,\]}])|\Z))+")


class YamlDocument(TreeDocument, frozen=True):
    """A parsed YAML file; see TreeDocument for its methods."""

    def reparse(self, source: Source) -> YamlDocument:
        return parse_yaml(source, self.version)


YAML: CacheKind[YamlDocument] = CacheKind("a parsed YAML file, by its version")


def yaml_of(source: Source, project: Project, version: Version) -> YamlDocument:
    """The document of `parse_yaml`, parsed once for a project. Raises DocumentError."""
    found = project.remembered.known(YAML, source.path, version)
    if found is None or found.source is not source:
        found = parse_yaml(source, version)
        project.remembered.put(YAML, found, source.path, version)
    return found


def parse_yaml(source: Source, version: Version = "1.1") -> YamlDocument:
    """Parses the first document of a YAML file. `version` decides how scalars are read: "1.1" as PyYAML's safe loader
    does, "1.2" by the core schema, "omegaconf" as Hydra does.

    Raises DocumentError with the place.
    """
    composer = _Composer(source, version)
    try:
        root = composer.document()
    except yaml.YAMLError as error:
        raise _document_error(error, source.text) from None
    except UnicodeEncodeError as error:
        raise DocumentError(
            "it contains a lone surrogate, which is not a character", _at(source.text, error.start)
        ) from None
    return YamlDocument(source, root, "yaml", version, tuple(composer.notes))


def text_at(document: YamlDocument, route: Route) -> Expr:
    """A string with the place of each of its lines, also for block scalars."""
    value, origin = str(document.value(route)), document.origin(route)
    start, end = origin.span.start, origin.span.end
    if end - start in (len(value), len(value) + 2):
        return Const(value, origin)
    raw, at, parts = document.source.text[start:end], 0, []
    for line in value.splitlines(keepends=True):
        where = raw.find(line, at) if line.strip() else -1
        place = Origin(origin.path, Span(start + where, start + where + len(line))) if where >= 0 else origin
        at = where + len(line) if where >= 0 else at
        parts.append(Const(line, place))
    return Op("concat", tuple(parts), origin) if parts else Const(value, origin)


def _place(event: yaml.Event) -> Span:
    return Span(event.start_mark.index, event.end_mark.index)  # type: ignore[union-attr]  # a parser always sets them


def _at(text: str, offset: int) -> Span:
    start = max(0, min(offset, len(text)))
    return Span(start, min(start + 1, len(text)))


def _document_error(error: yaml.YAMLError, text: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if "end of stream" in str(
        getattr(error, "problem", "")
    ):  # the place where it was opened is more useful than the end of the file
        mark = getattr(error, "context_mark", None) or mark
    if mark is not None:
        words = " ".join(
            str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part
        )
        return DocumentError(words or "it is not YAML", _at(text, mark.index))
    if isinstance(error, yaml.reader.ReaderError):
        # libyaml counts bytes of the UTF-8 text here, PyYAML's own reader counts characters
        at = len(text.encode("utf-8", "replace")[: error.position].decode("utf-8", "ignore"))
        bad = next((i for i, c in enumerate(text) if _unprintable(c)), at)
        return DocumentError("it holds a control character, which YAML does not allow", _at(text, bad))
    return DocumentError("it is not YAML", Span(0, 0))


def _unprintable(char: str) -> bool:
    control = (char < " " and char not in "\t\n\r") or "\x7f" <= char <= "\x9f"
    return (control and char != "\x85") or char in "\ufffe\uffff"


class _Composer:
    """Makes nodes from events. One instance reads one file."""

    def __init__(self, source: Source, version: Version) -> None:
        self.source, self.text, self.version = source, source.text, version
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.events: Iterator[yaml.Event] = yaml.parse(self.text, Loader=loader)
        self.notes: list[Note] = []
        self.anchors: dict[str, TreeNode | None] = {}
        self.count = 0

    def document(self) -> TreeNode:
        """The root of the first document; an empty file is null."""
        event = next(self.events)
        while isinstance(event, yaml.StreamStartEvent):
            event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            return TreeNode("scalar", 0, 0, 0, "")
        root = self.item(next(self.events), 1).value
        next(self.events)  # the document's end
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            place = _place(after)
            self.notes.append(Note("several-documents", "only the first document of this file is read", place))
        return root

    def item(self, event: yaml.Event, depth: int) -> TreeItem:
        """The value that starts with `event`, with the place of the alias if it is one."""
        place = _place(event)
        self.count += 1
        if depth > TREE_DEPTH:
            raise DocumentError(f"it is nested more than {TREE_DEPTH} levels deep", place, mistake=False)
        if self.count > TREE_NODES:
            raise DocumentError(f"it holds more than {TREE_NODES:,} values", place, mistake=False)
        assert isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.AliasEvent):
            return TreeItem(self.aliased(str(event.anchor), depth, place), alias=place)
        if isinstance(event, yaml.ScalarEvent):
            node = self.scalar(event, place)
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            node = self.collection(event, place, depth)
        if event.anchor is not None:
            node.anchor = event.anchor
            self.anchors[event.anchor] = node
        return TreeItem(node)

    def aliased(self, name: str, depth: int, place: Span) -> TreeNode:
        if name not in self.anchors:
            raise DocumentError(f"the alias *{name} has no anchor", place)
        node = self.anchors[name]
        if node is None:
            raise DocumentError(f"the alias *{name} is inside the value that it repeats", place)
        if depth + node.height > TREE_DEPTH:
            raise DocumentError(f"it is nested more than {TREE_DEPTH} levels deep", place, mistake=False)
        mark_shared(node)
        return node

    def start_of(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, start: int) -> int:
        """The offset of the value's text, behind its anchor and tag."""
        if event.anchor is not None or event.tag is not None:
            match = _PROPERTIES.match(self.text, start)
            if match is not None:
                return match.end()
        return start

    def scalar(self, event: yaml.ScalarEvent, place: Span) -> TreeNode:
        outer, end = place.start, place.end
        start = min(self.start_of(event, outer), end)
        style = event.style or ""
        if not style and start < end and not event.value:  # `&a` or `!!null` alone: the value is empty, behind them
            start = end = outer + len(self.text[outer:end].rstrip())
        while start == end == outer and self.text[start - 1 : start] in (" ", "\t"):
            start = end = outer = start - 1  # libyaml puts an empty value in front of what follows it in a flow
        node = TreeNode("scalar", start, end, outer, style, text=event.value)
        if event.tag in (None, "!"):
            forced = event.tag == "!" and self.version == "1.2"  # PyYAML resolves these as if `!` were not there
            tag = plain_tag(event.value, self.version) if event.implicit[0] and not forced else "str"
        else:
            tag = short_tag(event.tag)
        try:
            node.value = scalar(event.value, tag, self.version)
        except BadScalar as error:
            node.value = Unknown(str(error), Cause.invalid)
            self.notes.append(Note("value", str(error), place))
        return node

    def collection(self, event: yaml.CollectionStartEvent, place: Span, depth: int) -> TreeNode:
        outer, is_map = place.start, isinstance(event, yaml.MappingStartEvent)
        start = self.start_of(event, outer)
        style = "block" if not event.flow_style else "flow" if self.text[start : start + 1] in ("[", "{") else "pair"
        node = TreeNode("map" if is_map else "list", start, start, outer, style)
        if event.tag not in (None, "!") and short_tag(event.tag) not in ("map", "seq"):
            node.value = Unknown(f"the tag {event.tag} is not read", Cause.not_read)
            self.notes.append(Note("value", f"the tag {event.tag} is not read", place))
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        last = self.children(node, depth)
        node.end = _place(last).end if style == "flow" else self.end_of(node)
        return node

    def children(self, node: TreeNode, depth: int) -> yaml.Event:
        """Adds the items to a collection, and returns the event at its end."""
        seen: dict[str, TreeNode] = {}
        while not isinstance(event := next(self.events), yaml.CollectionEndEvent):
            if node.kind == "list":
                item = self.item(event, depth + 1)
            else:
                key = self.item(event, depth + 1).value
                item = self.item(next(self.events), depth + 1)
                item.key = key
                self.check_key(key, seen)
            node.items.append(item)
            node.size += item.value.size
            node.height = max(node.height, item.value.height + 1)
            if node.size > EXPANDED_NODES:
                place = item.alias or item.value.span
                raise DocumentError(f"its aliases expand to more than {EXPANDED_NODES:,} values", place, mistake=False)
        return event

    def check_key(self, key: TreeNode, seen: dict[str, TreeNode]) -> None:
        if key.kind != "scalar":
            self.notes.append(Note("key", "a key that is a list or a mapping is not read", key.span))
            return
        name = key_name(key)
        if name in seen:
            line = self.source.line_column(seen[name].start)[0]
            message = f"the key {name!r} is given twice; the first is on line {line}"
            self.notes.append(Note("duplicate-key", message, key.span, seen[name].span))
        seen[name] = key

    def end_of(self, node: TreeNode) -> int:
        """Where the last value of a block collection ends. (libyaml's mark is behind the comments that follow.)"""
        if not node.items:
            return node.start
        last = node.items[-1]
        if last.alias is not None:
            return last.alias.end
        return max(last.value.end, last.key.end if last.key else 0)
