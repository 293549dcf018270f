"""The default format: each finding in at most eight lines, or with all its evidence, then a summary."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.reports import concise
from preflight.reports.bar import bar
from preflight.reports.places import gutter_of, spot
from preflight.reports.rules import address
from preflight.reports.short import cost_text, flag_of, short
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, note, wrap
from preflight.reports.summary import summary
from preflight.vocabulary.findings import Finding, Safety
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.words import gib

_RELATED_LIMIT = 6
"""The most places that are shown after the first one."""


def render(outcome: Outcome, look: Look) -> str:
    """All findings, an empty line after each, then the summary."""
    if look.detail == "line":
        return concise.render(outcome, look)
    shown = _finding if look.detail == "all" else short
    blocks = ["\n".join(shown(outcome, report, finding, look)) + "\n" for report, finding in outcome.findings()]
    return "\n".join([*blocks, *summary(outcome, look)]) + "\n"


def _finding(outcome: Outcome, report: Report, finding: Finding, look: Look) -> Iterator[str]:
    style = COLOURS[finding.severity]
    head = f"{finding.severity.value}[{finding.rule}]"
    message = wrap(clean(finding.message), look.width, "  ", len(head) + 2)
    yield f"{look.paint(head, style)}: {look.paint(message, 'bold')}"
    gutter = gutter_of(report, [finding.origin, *(origin for origin, _ in finding.related[:_RELATED_LIMIT])])
    if finding.origin is not None:
        yield from spot(outcome, report, finding.origin, finding.label, "^", style, look, gutter, first=True)
    shown = finding.related[:_RELATED_LIMIT]
    for origin, words in shown:
        yield from spot(outcome, report, origin, words, "-", "bold blue", look, gutter, first=finding.origin is None)
    if finding.origin is not None:
        yield f"{' ' * gutter} {look.paint('|', 'bold blue')}"
    if len(finding.related) > len(shown):
        yield from note("note", f"{len(finding.related) - len(shown)} more places", look, gutter)
    yield from _evidence(finding, look, gutter)
    for text in finding.notes:
        yield from note("note", text, look, gutter)
    for text in finding.help:
        yield from note("help", text, look, gutter)
    yield from _fix(finding, look, gutter)
    if url := address(outcome, finding.rule):
        yield from note("rule", url, look, gutter)


def _evidence(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    """The interval against the capacity, and the parts as a bar."""
    if finding.interval is not None:
        low, expected, high = finding.interval
        what = {"device": "GPU memory", "host": "host memory per node"}.get(finding.side, "memory")
        text = f"{gib(expected)} expected ({gib(low)} to {gib(high)})"
        limit = f", {gib(finding.capacity)} available" if finding.capacity is not None else ""
        yield from note(what, text + limit, look, gutter)
    for line in bar(finding.parts, finding.capacity, look, look.width - gutter - 3):
        yield f"{' ' * (gutter + 3)}{line}"


def _fix(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    if finding.fix is None:
        return
    safe, flag = finding.fix.safety is Safety.safe, flag_of(finding.fix)
    reason = f" (unsafe: {finding.fix.reason})" if finding.fix.reason and not safe else ""
    yield from note("fix", f"{finding.fix.title}; `{flag}` writes it{reason}", look, gutter)
    for cost in finding.fix.costs:
        yield from note("cost", f"{cost_text(cost)}: {cost.why} ({cost.source})", look, gutter)
