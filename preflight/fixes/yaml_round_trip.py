"""Proof of YAML edits by a second parser: ruamel.yaml must see the same text before and after, outside the edits.

PyYAML reads the files and plans the edits, so it could not notice its own mistakes. ruamel.yaml's round-trip parser
shares no code with libyaml and keeps what PyYAML drops. Both texts become flat lists of parts (keys, values, aliases,
documents) and of comments. Parts that the edits wrote are left out. All other parts must agree pair by pair in kind,
place, parent, text, quotes, style, tag and anchor. Scalars are compared as text, so the YAML version of a tool (`010`,
`on`, `1:30`) does not matter outside the edits. Aliases are never expanded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import yaml
from msgspec import Struct, field
from msgspec.structs import replace
from ruamel.yaml import YAML
from ruamel.yaml import events as ruamel
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.scanner import RoundTripScanner

from preflight.documents.scalars import plain_tag, short_tag
from preflight.vocabulary.budgets import ROUND_TRIP_CHARACTERS, TREE_DEPTH
from preflight.vocabulary.text import Edit, Source, splice
from preflight.vocabulary.values import Span

ReadAs = Literal["1.1", "1.2"]
"""The version of YAML in which the tool reads the file. PyYAML reads 1.1, and W&B, OmegaConf (except for its floats)
and the trainers use PyYAML."""


class Unproved(Exception):
    """An edit is not proved. The message tells the user why."""


def prove(source: Source, edits: Iterable[Edit], read_as: ReadAs = "1.1") -> None:
    """Raises Unproved unless ruamel.yaml reads everything outside the edits of this file as before."""
    ordered = sorted(set(edits), key=lambda edit: (edit.span.start, edit.span.end))
    text = splice(source.text, ordered)
    if max(len(source.text), len(text)) > ROUND_TRIP_CHARACTERS:
        raise Unproved(
            f"{source.path} is longer than {ROUND_TRIP_CHARACTERS // 1024} KiB, too long for the second YAML parser"
        )
    moved = _Moved(ordered)
    before, after = _read(source.text, source.path, read_as), _read(text, source.path, read_as)
    try:
        _same_parts(before, after, moved)
        _same_comments(before, after, moved)
        _no_new_alias(before, after, moved)
        _no_key_twice(after, moved)
        _readers_agree(after, text, moved, read_as)
    except yaml.YAMLError:
        raise Unproved(f"PyYAML does not read the edited {source.path} to its end") from None
    except _Differs as found:
        line = Source(source.path, text).line_column(min(found.at, len(text)))[0]
        raise Unproved(f"{found.what}, in line {line} of the edited {source.path}") from None


class _Differs(Exception):
    """The difference, and its offset in the text after the edits."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what, self.at = what, at


# --- places before and after the edits ------------------------------------------------------------------------------


class _Moved:
    """The spans of the edits in the old and in the new text, and how far they move the text behind them."""

    def __init__(self, ordered: Sequence[Edit]) -> None:
        self.old = [edit.span for edit in ordered]
        self.new: list[Span] = []
        shift = 0
        for edit in ordered:
            start = edit.span.start + shift
            self.new.append(Span(start, start + len(edit.text)))
            shift += len(edit.text) - (edit.span.end - edit.span.start)

    def agree(self, old: int, new: int) -> bool:
        """Whether two offsets of the old and the new text are the same place. Inside an edit, any offset of the edited
        text is accepted."""
        shift = 0
        for one, other in zip(self.old, self.new, strict=True):
            if one.start < old < one.end or one.start == old == one.end:
                return other.start <= new <= other.end
            if old < one.end:
                break
            shift = other.end - one.end
        return new == old + shift


def _touches(start: int, end: int, spans: Iterable[Span]) -> bool:
    """Whether one of the spans overlaps the place; an empty one overlaps what it meets."""
    for span in spans:
        low, high = max(start, span.start), min(end, span.end)
        if low < high or (low == high and (start == end or span.start == span.end)):
            return True
    return False


# --- what ruamel.yaml reads -----------------------------------------------------------------------------------------


class _Part(Struct):
    """A node, an alias, or the start or end of a document. `start` and `end` include its anchor and tag. An empty value
    may be anywhere between its neighbours."""

    kind: str
    role: str
    start: int
    end: int
    parent: int
    text: str = ""
    style: str = ""
    tag: str = ""
    anchor: str = ""
    target: int = -1
    """Of an alias: the part that it repeats."""
    children: int = 0

    @property
    def frame(self) -> tuple[str, str, str, str, str]:
        """The properties that an edit of a part of the text must not change."""
        return self.kind, self.role, self.style, self.tag, self.anchor

    @property
    def empty(self) -> bool:
        return self.kind == "scalar" and not (self.text or self.style or self.tag or self.anchor)

    def written(self, spans: Iterable[Span]) -> bool:
        """Whether it is completely within one of the spans."""
        if self.kind == "document":
            return False
        if self.empty:
            return any(span.start <= self.end and self.start <= span.end for span in spans)
        return any(span.start <= self.start and self.end <= span.end for span in spans)


class _Text(Struct):
    parts: list[_Part] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    """Each with its offset."""

    def outside(self, spans: Sequence[Span]) -> list[int]:
        """The indices of the parts outside the edited spans."""
        return [index for index, part in enumerate(self.parts) if not part.written(spans)]


class _Scanner(RoundTripScanner):
    """Collects comments when they are scanned: ruamel.yaml attaches them to tokens that depend on their neighbours."""

    def __init__(self, loader: Any = None) -> None:
        self.comments: list[tuple[int, str]] = []
        super().__init__(loader)

    def scan_to_next_token(self) -> Any:
        found = super().scan_to_next_token()
        if found is not None and found[0].startswith("#"):
            self.comments.append((found[1].index, found[0].rstrip()))
        return found

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> Any:
        found = super().scan_block_scalar_ignored_line(start_mark)
        if found:
            self.comments.append((start_mark.index, str(found).strip()))
        return found


@lru_cache(maxsize=4)  # several fixes of one file start from the same text
def _read(text: str, path: str, read_as: ReadAs) -> _Text:
    parser = YAML(typ="rt", pure=True)
    parser.version = (1, 1) if read_as == "1.1" else (1, 2)
    parser.Scanner = _Scanner
    builder = _Builder(text)
    try:
        for event in parser.parse(text):
            builder.take(event)
        builder.text.comments = parser.scanner.comments
    except YAMLError as error:
        said = getattr(error, "problem", None) or "it is not YAML"
        raise Unproved(f"a second parser (ruamel.yaml) does not read {path}: {said}") from None
    except (ValueError, AttributeError, TypeError, LookupError, AssertionError):  # errors in ruamel.yaml itself
        raise Unproved(f"a second parser (ruamel.yaml) does not read {path}") from None
    return builder.text


class _Builder:
    """Makes a flat list of parts from parser events."""

    def __init__(self, source: str) -> None:
        self.source, self.text = source, _Text()
        self.open: list[int] = []
        self.anchors: dict[str, int] = {}
        self.last_end = 0

    def take(self, event: ruamel.Event) -> None:
        if isinstance(event, (ruamel.DocumentStartEvent, ruamel.DocumentEndEvent)):
            self.anchors = {}
            said = repr((type(event).__name__, event.explicit, *(getattr(event, n, None) for n in ("version", "tags"))))
            self.text.parts.append(_Part("document", "", event.start_mark.index, event.end_mark.index, -1, said))
        elif isinstance(event, ruamel.CollectionEndEvent):
            self._close(event)
        elif isinstance(event, ruamel.NodeEvent):
            self._node(event)

    def _node(self, event: ruamel.NodeEvent) -> None:
        index = len(self.text.parts)
        part = _part(event, *self._place())
        self.text.parts.append(part)
        if isinstance(event, ruamel.AliasEvent):
            part.target = self.anchors[part.anchor]
        elif part.anchor:
            self.anchors[part.anchor] = index
        if part.style in ("|", ">"):  # its end mark is behind the blank lines that follow
            part.end = part.start + len(self.source[part.start : part.end].rstrip())
        if part.empty:
            part.start = min(part.start, self.last_end)
        if part.kind in ("map", "list"):
            self.open.append(index)
            if len(self.open) > TREE_DEPTH:
                raise ValueError
        else:
            self._reach(part.end if not part.empty else part.start)

    def _place(self) -> tuple[int, str]:
        """The parent of the next part, and the part's role in it."""
        if not self.open:
            return -1, "root"
        parent = self.text.parts[self.open[-1]]
        parent.children += 1
        if parent.kind == "list":
            return self.open[-1], "item"
        return self.open[-1], "key" if parent.children % 2 else "value"

    def _close(self, event: ruamel.CollectionEndEvent) -> None:
        part = self.text.parts[self.open.pop()]
        self._reach(max(part.end, event.end_mark.index) if part.style == "flow" else part.end)
        part.end = max(part.end, self.last_end)

    def _reach(self, end: int) -> None:
        self.last_end = max(self.last_end, end)


def _part(event: ruamel.NodeEvent, parent: int, role: str) -> _Part:
    start, end, anchor = event.start_mark.index, event.end_mark.index, str(event.anchor or "")
    if isinstance(event, ruamel.AliasEvent):
        return _Part("alias", role, start, end, parent, anchor=anchor)
    tag = str(getattr(event, "tag", None) or "")
    if isinstance(event, ruamel.ScalarEvent):
        return _Part("scalar", role, start, end, parent, event.value, event.style or "", tag, anchor)
    style = "flow" if getattr(event, "flow_style", False) else "block"
    kind = "map" if isinstance(event, ruamel.MappingStartEvent) else "list"
    return _Part(kind, role, start, end if style == "flow" else start, parent, "", style, tag, anchor)


# --- what has to agree ----------------------------------------------------------------------------------------------


def _same_parts(before: _Text, after: _Text, moved: _Moved) -> None:
    """Checks that the parts outside the edits agree pair by pair, and that aliases repeat the same unedited parts."""
    old, new = before.outside(moved.old), after.outside(moved.new)
    pairs = dict(zip(old, new, strict=False))
    pairs[-1] = -1
    for i, j in zip(old, new, strict=False):
        one, other = before.parts[i], after.parts[j]
        if pairs.get(one.parent) != other.parent or not _agree(one, other, moved):
            raise _Differs("something outside the edit would be read differently", other.start)
        if one.kind == "alias" and (
            pairs.get(one.target) != other.target
            or _edited(before.parts, one.target, moved.old)
            or _edited(after.parts, other.target, moved.new)
        ):
            raise _Differs("an alias would repeat something else", other.start)
    if len(old) != len(new):
        rest = after.parts[new[len(old)]].start if len(new) > len(old) else after.parts[-1].end
        raise _Differs("something outside the edit would be read differently", rest)


def _agree(one: _Part, other: _Part, moved: _Moved) -> bool:
    """Whether two parts are the same part in the same place. A scalar may have another text if a piece of it is edited,
    and another style if everything except its anchor and tag is edited."""
    if one.kind == "scalar" and _touches(one.start, one.end, moved.old):
        rewritten = (one.anchor or one.tag) and any(span.start < one.end <= span.end for span in moved.old)
        if one.frame == (replace(other, style=one.style) if rewritten else other).frame:
            return moved.agree(one.start, other.start) and moved.agree(one.end, other.end)
    placed = one.empty or one.kind == "document" or one.style == "block" or moved.agree(one.start, other.start)
    return placed and one.frame == other.frame and one.text == other.text


def _edited(parts: Sequence[_Part], target: int, spans: Sequence[Span]) -> bool:
    return target < 0 or _touches(parts[target].start, parts[target].end, spans)


def _same_comments(before: _Text, after: _Text, moved: _Moved) -> None:
    old, new = _comments_outside(before, moved.old), _comments_outside(after, moved.new)
    for (start, text), (place, other) in zip(old, new, strict=False):
        if text != other or not moved.agree(start, place):
            raise _Differs("a comment would be lost or changed", place)
    if len(old) != len(new):
        raise _Differs("a comment would be lost or changed", max((place for place, _ in new), default=0))


def _comments_outside(text: _Text, spans: Sequence[Span]) -> list[tuple[int, str]]:
    return [
        (at, said) for at, said in text.comments if not any(s.start <= at and at + len(said) <= s.end for s in spans)
    ]


def _no_new_alias(before: _Text, after: _Text, moved: _Moved) -> None:
    """Checks that the edits write no alias; an alias inside an edited span may stay."""
    known = {part.anchor for part in before.parts if part.kind == "alias" and part.written(moved.old)}
    for part in after.parts:
        if part.kind == "alias" and part.anchor not in known and part.written(moved.new):
            raise _Differs("the edit writes an alias", part.start)


def _no_key_twice(after: _Text, moved: _Moved) -> None:
    """Checks that no written key is twice in its mapping (the later one would hide the other), and none is a merge
    key."""
    keys = Counter((part.parent, part.text) for part in after.parts if part.role == "key")
    for part in after.parts:
        if part.role == "key" and part.written(moved.new) and not after.parts[part.parent].written(moved.new):
            if part.kind != "scalar" or part.text == "<<":
                raise _Differs("the edit writes a key that is no plain name", part.start)
            if keys[part.parent, part.text] > 1:
                raise _Differs(f"the key {part.text!r} would be given twice", part.start)


def _readers_agree(after: _Text, text: str, moved: _Moved, read_as: ReadAs) -> None:
    """Checks that PyYAML finds the written scalars with the same text. If the tool reads YAML 1.2, both parsers must
    also give a plain scalar the same type. (A tool that reads YAML 1.1 uses PyYAML itself.)"""
    written = {
        part.start: part
        for part in after.parts
        if part.kind == "scalar" and not part.empty and _touches(part.start, part.end, moved.new)
    }
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if not isinstance(event, yaml.ScalarEvent) or event.start_mark is None:
            continue
        part = written.pop(event.start_mark.index, None)
        if part is None:
            continue
        plain = read_as == "1.2" and event.implicit[0] and not part.tag
        if event.value != part.text or (plain and _kind_12(part.text) != plain_tag(part.text, "1.2")):
            raise _Differs("two parsers read what the edit writes differently", part.start)
    for part in written.values():
        raise _Differs("two parsers read what the edit writes differently", part.start)


def _kind_12(text: str) -> str:
    return short_tag(str(YAML().resolver.resolve(ScalarNode, text, (True, False))))
