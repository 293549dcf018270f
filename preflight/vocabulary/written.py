"""Files that a script writes before it starts a program: their text, and where in the script each part of it stands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from preflight.vocabulary.values import Origin, Span

Part = TypeVar("Part")


class TextPart(Struct, frozen=True):
    """A part of the text, from the offset `start` on. `exact`: `origin` has its characters in a row."""

    start: int
    origin: Origin | None
    exact: bool


class WrittenText(Struct, frozen=True):
    """The text of a file that a script writes, with the places of its parts."""

    text: str
    parts: tuple[TextPart, ...]

    def origin(self, inside: Origin) -> Origin | None:
        """The place of some characters of the text, where they are stated. No fix edits it."""
        first, last = self._part(inside.span.start), self._part(max(inside.span.start, inside.span.end - 1))
        if first is None or first.origin is None:
            return None
        span = first.origin.span
        if first.exact:
            start = span.start + inside.span.start - first.start
            end = span.end if last is not first else min(span.end, span.start + inside.span.end - first.start)
            span = Span(start, max(start, end))
        return replace(first.origin, span=span, route=None, via=(*first.origin.via, *inside.via), editable=False)

    def _part(self, offset: int) -> TextPart | None:
        at = bisect_right([part.start for part in self.parts], offset)
        return self.parts[at - 1] if at else None


Written = WrittenText | None
"""What a script writes to a file; None: it writes the file, and the text is not known."""


class Relocation:
    """What was read of written files: each place in a written text becomes the place in the script."""

    def __init__(self, written: Mapping[str, Written]) -> None:
        self.written = written
        self._done: dict[int, tuple[object, object]] = {}
        """What was changed, with what became of it: expressions share their parts."""

    def of(self, part: Part) -> Part:
        if isinstance(part, (str, int, float, type(None))):
            return part
        if id(part) not in self._done:
            self._done[id(part)] = part, self._of(part)
        return cast(Part, self._done[id(part)][1])

    def _of(self, part: object) -> object:
        if isinstance(part, Origin):
            via = tuple(self.of(one) for one in part.via)
            text = self.written.get(part.path)
            moved = None if text is None else text.origin(part)
            return moved or replace(part, via=via)
        if isinstance(part, tuple) and type(part) is tuple:
            return tuple(self.of(one) for one in part)
        if isinstance(part, list):
            return [self.of(one) for one in part]
        if isinstance(part, Mapping):
            return {key: self.of(one) for key, one in part.items()}
        if isinstance(part, Struct):
            old = {name: getattr(part, name) for name in part.__struct_fields__}
            new = {name: self.of(one) for name, one in old.items()}
            return part if all(new[name] is one for name, one in old.items()) else replace(part, **new)
        return part
