"""Files that a script writes before it starts a program: their text, and where in the script each part of it stands."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from preflight.vocabulary.values import Origin, Span


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of the text, from the offset `start` on. `exact`: `origin` has its characters in a row."""

    start: int
    origin: Origin | None
    exact: bool


@dataclass(frozen=True, slots=True)
class WrittenText:
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
