"""A piece of source with carets under the span that a finding speaks of."""

from __future__ import annotations

from preflight.reports.places import place_in
from preflight.reports.style import Look, clean, columns
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Span

_MARGIN = 12
"""Characters kept before the span where a long line is cut."""


def snippet(source: Source, span: Span, label: str, mark: str, style: str, look: Look, gutter: int) -> list[str]:
    """The line of `span` and a line of `mark`s with `label` under it; `gutter` is how wide line numbers are.

    A span of several lines is marked to the end of its first. Lines wider than the look are cut around the span.
    """
    place = place_in(source, span)
    text = source.line(place.line)
    start = min(place.column - 1, len(text))
    end = place.end_column - 1 if place.end_line == place.line else len(text.rstrip())
    before, marked, after = clean(text[:start]), clean(text[start : max(start, end)]), clean(text[max(start, end) :])
    before, marked, after = _cut(before, marked, after, look.width - gutter - 4, look)
    number = look.paint(f"{place.line:>{gutter}}", "bold blue")
    bar = look.paint("|", "bold blue")
    marks = mark * max(1, columns(marked))
    under = " " * columns(before) + look.paint(f"{marks} {label}".rstrip(), style)
    return [f"{number} {bar} {(before + marked + after).rstrip()}", f"{' ' * gutter} {bar} {under}"]


def _cut(before: str, marked: str, after: str, width: int, look: Look) -> tuple[str, str, str]:
    """The three pieces of a line, shortened to `width` so that the middle stays in sight."""
    dots = "…" if look.unicode else "..."
    if columns(before + marked + after) <= width:
        return before, marked, after
    if columns(before + marked) > width and len(before) > _MARGIN:
        before = dots + before[-_MARGIN:]
    room = max(width - columns(before), 20)
    if columns(marked) > room:
        marked, after = marked[: room - len(dots)] + dots, ""
    room = max(width - columns(before + marked), 0)
    if columns(after) > room:
        after = after[: max(room - len(dots), 0)] + dots
    return before, marked, after
