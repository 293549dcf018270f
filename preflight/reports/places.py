"""The line and column of an origin, and its source line with carets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight.reports.streams import clean
from preflight.reports.style import Look, columns
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.project import UnreadableFile
from preflight.vocabulary.text import Place, Source
from preflight.vocabulary.values import Origin, Span


def source_of(report: Report, path: str) -> Source | None:
    """The text of a file; None if it cannot be read (any more). The place is then shown without its line."""
    try:
        return report.project.source(path)
    except UnreadableFile:
        return None


def place_in(source: Source, span: Span) -> Place:
    """The lines and columns of a span, limited to the text."""
    end = len(source.text)
    start = min(max(span.start, 0), end)
    return source.place(Span(start, min(max(span.end, start), end)))


def place(report: Report, origin: Origin) -> Place | None:
    """The lines and columns of an origin; None if the file cannot be read."""
    source = source_of(report, origin.path)
    return place_in(source, origin.span) if source is not None else None


_MARGIN = 12
"""Characters before the span that stay when a long line is cut."""
_LEAST_MARKS = 8
"""Marks that stay under a long span whose label would not fit beside all of them."""


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
    room = look.width - gutter - 4 - columns(before) - columns(label)  # a long span leaves room for its label
    marks = mark * max(1, min(columns(marked), max(room, _LEAST_MARKS)))
    lead = columns(before) - columns(label) - 1
    if room <= columns(marks) and lead >= 0:  # no room behind the marks: the label stands before them
        under = " " * lead + look.paint(f"{label} {marks}", style)
    else:
        under = " " * columns(before) + look.paint(f"{marks} {label}".rstrip(), style)
    return [f"{number} {bar} {(before + marked + after).rstrip()}", f"{' ' * gutter} {bar} {under}"]


def _cut(before: str, marked: str, after: str, width: int, look: Look) -> tuple[str, str, str]:
    """The three pieces of a line, shortened to `width`. The middle stays visible."""
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


def gutter_of(report: Report, origins: Iterable[Origin | None]) -> int:
    """Digits of the largest line number of some places."""
    found = [place(report, origin) for origin in origins if origin is not None]
    return len(str(max([1, *(one.line for one in found if one is not None)])))


def spot(
    outcome: Outcome,
    report: Report,
    origin: Origin,
    label: str,
    mark: str,
    style: str,
    look: Look,
    gutter: int,
    first: bool,
    dense: bool = False,
) -> Iterator[str]:
    """A place: its name, the line, the marks. `dense`: without an empty line between."""
    arrow = look.paint("-->" if first else ":::", "bold blue")
    path = clean(outcome.shown(report, origin.path))
    source = source_of(report, origin.path)
    if source is None or (not source.text and not origin.span.end):
        yield f"{' ' * gutter}{arrow} {path}"
        return
    place = place_in(source, origin.span)
    yield f"{' ' * gutter}{arrow} {path}:{place.line}:{place.column}"
    if not dense:
        yield f"{' ' * gutter} {look.paint('|', 'bold blue')}"
    yield from snippet(source, origin.span, clean(label), mark, style, look, gutter)
