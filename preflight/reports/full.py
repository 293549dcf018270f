"""The default format: each finding with its source line, evidence and fix, then a summary."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.reports.bar import bar
from preflight.reports.places import place, place_in, snippet, source_of
from preflight.reports.rules import address
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, wrap
from preflight.reports.summary import summary
from preflight.vocabulary.findings import Finding, Safety
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.values import Origin
from preflight.vocabulary.words import gib

_RELATED_LIMIT = 6
"""The most places that are shown after the first one."""


def render(outcome: Outcome, look: Look) -> str:
    """All findings, an empty line after each, then the summary."""
    blocks = ["\n".join(_finding(outcome, report, finding, look)) + "\n" for report, finding in outcome.findings()]
    return "\n".join([*blocks, *summary(outcome, look)]) + "\n"


def _finding(outcome: Outcome, report: Report, finding: Finding, look: Look) -> Iterator[str]:
    style = COLOURS[finding.severity]
    head = f"{finding.severity.value}[{finding.rule}]"
    message = wrap(clean(finding.message), look.width, "  ", len(head) + 2)
    yield f"{look.paint(head, style)}: {look.paint(message, 'bold')}"
    gutter = _gutter(report, finding)
    if finding.origin is not None:
        yield from _spot(outcome, report, finding.origin, finding.label, "^", style, look, gutter, first=True)
    shown = finding.related[:_RELATED_LIMIT]
    for origin, words in shown:
        yield from _spot(outcome, report, origin, words, "-", "bold blue", look, gutter, first=finding.origin is None)
    if finding.origin is not None:
        yield f"{' ' * gutter} {look.paint('|', 'bold blue')}"
    if len(finding.related) > len(shown):
        yield from _note("note", f"{len(finding.related) - len(shown)} more places", look, gutter)
    yield from _evidence(finding, look, gutter)
    for text in finding.notes:
        yield from _note("note", text, look, gutter)
    for text in finding.help:
        yield from _note("help", text, look, gutter)
    yield from _fix(finding, look, gutter)
    if url := address(outcome, finding.rule):
        yield from _note("rule", url, look, gutter)


def _gutter(report: Report, finding: Finding) -> int:
    """Digits of the largest line number that the finding shows."""
    lines = [1]
    for origin in [finding.origin, *(origin for origin, _ in finding.related[:_RELATED_LIMIT])]:
        found = place(report, origin) if origin is not None else None
        lines += [found.line] if found is not None else []
    return len(str(max(lines)))


def _spot(
    outcome: Outcome,
    report: Report,
    origin: Origin,
    label: str,
    mark: str,
    style: str,
    look: Look,
    gutter: int,
    first: bool,
) -> Iterator[str]:
    """A place: its name, the line, the marks."""
    arrow = look.paint("-->" if first else ":::", "bold blue")
    path = clean(outcome.shown(report, origin.path))
    source = source_of(report, origin.path)
    if source is None or (not source.text and not origin.span.end):
        yield f"{' ' * gutter}{arrow} {path}"
        return
    place = place_in(source, origin.span)
    yield f"{' ' * gutter}{arrow} {path}:{place.line}:{place.column}"
    yield f"{' ' * gutter} {look.paint('|', 'bold blue')}"
    yield from snippet(source, origin.span, clean(label), mark, style, look, gutter)


def _note(kind: str, text: str, look: Look, gutter: int) -> Iterator[str]:
    lead = " " * (gutter + 1)
    indent = lead + "  " + " " * (len(kind) + 2)
    body = wrap(clean(text), look.width, indent, len(indent))
    yield f"{lead}{look.paint('=', 'bold blue')} {look.paint(kind, 'bold')}: {body}"


def _evidence(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    """The interval against the capacity, and the parts as a bar."""
    if finding.interval is not None:
        low, expected, high = finding.interval
        what = {"device": "GPU memory", "host": "host memory per node"}.get(finding.side, "memory")
        text = f"{gib(expected)} expected ({gib(low)} to {gib(high)})"
        limit = f", {gib(finding.capacity)} available" if finding.capacity is not None else ""
        yield from _note(what, text + limit, look, gutter)
    for line in bar(finding.parts, finding.capacity, look, look.width - gutter - 3):
        yield f"{' ' * (gutter + 3)}{line}"


def _fix(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    if finding.fix is None:
        return
    safe = finding.fix.safety is Safety.safe
    flag = "--fix" if safe else "--unsafe-fixes"
    reason = f" (unsafe: {finding.fix.reason})" if finding.fix.reason and not safe else ""
    yield from _note("fix", f"{finding.fix.title}; `{flag}` writes it{reason}", look, gutter)
