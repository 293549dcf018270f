"""The default format: each finding in at most eight lines, or with all its evidence, then a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight.reports import concise
from preflight.reports.bar import bar
from preflight.reports.places import gutter_of, place, spot
from preflight.reports.rules import address
from preflight.reports.short import MOST_LINES, cost_text, cut, flag_of, short
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, note, wrap
from preflight.reports.summary import summary
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.values import Origin
from preflight.vocabulary.words import gib, plural

_RELATED_LIMIT = 6
"""The most places that are shown after the first one."""
_ALIKE_NAMED = 3
"""The most places of the same remark that are named."""


def render(outcome: Outcome, look: Look) -> str:
    """All findings, an empty line after each, then the summary."""
    if look.detail == "line":
        return concise.render(outcome, look)
    if look.detail == "all":
        blocks = [_finding(outcome, report, finding, look) for report, finding in outcome.findings()]
    else:
        blocks = [_once(outcome, places, look) for places in _alike(outcome)]
    return "\n".join([*("\n".join(lines) + "\n" for lines in blocks), *summary(outcome, look)]) + "\n"


def _alike(outcome: Outcome) -> Iterable[list[tuple[Report, Finding]]]:
    """The findings of each cause, where they are first met: warnings and remarks that say the same of several places,
    and mend nothing."""
    found: dict[object, list[tuple[Report, Finding]]] = {}
    for number, (report, finding) in enumerate(outcome.findings()):
        alone = finding.severity is Severity.error or finding.fix or finding.interval or finding.origin is None
        said = number if alone else (finding.rule, finding.severity, finding.headline, finding.message, finding.help)
        found.setdefault(said, []).append((report, finding))
    return found.values()


def _once(outcome: Outcome, places: list[tuple[Report, Finding]], look: Look) -> Iterator[str]:
    """A finding in a few lines, and where else the same is said."""
    (report, finding), *others = places
    lines = list(short(outcome, report, finding, look))
    yield from lines
    if others:
        names = dict.fromkeys(_place(outcome, one, same.origin) for one, same in others if same.origin is not None)
        named = ", ".join(list(names)[:_ALIKE_NAMED])
        more = f" and {len(names) - _ALIKE_NAMED} more" if len(names) > _ALIKE_NAMED else ""
        text = f"the same in {plural(len(others), 'more place')}: {named}{more}"
        said = "\n".join(note("note", text, look, gutter_of(report, [finding.origin]))).split("\n")
        yield from cut(said, max(MOST_LINES - len(lines), 1), look)


def _place(outcome: Outcome, report: Report, origin: Origin) -> str:
    at = place(report, origin)
    return outcome.shown(report, origin.path) + (f":{at.line}" if at is not None else "")


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
