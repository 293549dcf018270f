"""Where an origin is, in lines and columns."""

from __future__ import annotations

from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import UnreadableFile
from preflight.vocabulary.text import Place, Source
from preflight.vocabulary.values import Origin, Span


def source_of(report: Report, path: str) -> Source | None:
    """A file's text; None where it cannot be read (any more): the place is still named, only no line is shown."""
    try:
        return report.project.source(path)
    except UnreadableFile:
        return None


def place_in(source: Source, span: Span) -> Place:
    """The span as lines and columns, kept within the text."""
    end = len(source.text)
    start = min(max(span.start, 0), end)
    return source.place(Span(start, min(max(span.end, start), end)))


def place(report: Report, origin: Origin) -> Place | None:
    """Lines and columns of an origin; None for a file without text."""
    source = source_of(report, origin.path)
    return place_in(source, origin.span) if source is not None else None
