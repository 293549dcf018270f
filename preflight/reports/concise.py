"""One line per finding, for editors and grep: `path:line:column: severity[rule] message`."""

from __future__ import annotations

from msgspec.structs import replace

from preflight.reports.not_known import nothing_checked
from preflight.reports.places import place
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look
from preflight.reports.summary import summary
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.outcome import Outcome, Report


def render(outcome: Outcome, look: Look) -> str:
    """The findings, then the summary."""
    lines = [_line(outcome, report, finding, look) for report, finding in outcome.findings()]
    if look.detail == "line":
        lines += nothing_checked(outcome, look)
    else:
        lines += summary(outcome, replace(look, detail="all"))
    return "".join(f"{line}\n" for line in lines)


def _line(outcome: Outcome, report: Report, finding: Finding, look: Look) -> str:
    head = look.paint(f"{finding.severity.value}[{finding.rule}]", COLOURS[finding.severity])
    where = ""
    if finding.origin is not None:
        at = place(report, finding.origin)
        where = clean(outcome.shown(report, finding.origin.path)) + (f":{at.line}:{at.column}" if at else "") + ": "
    return f"{where}{head} {clean(finding.message)}{' [*]' if finding.fix is not None else ''}"
