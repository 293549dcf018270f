"""GitHub's workflow commands: a finding as an annotation on its line. GitHub shows ten of each kind per step."""

from __future__ import annotations

from msgspec.structs import replace

from preflight.reports.places import place
from preflight.reports.streams import clean, without_commands
from preflight.reports.style import Look
from preflight.reports.summary import summary
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.outcome import Outcome, Report

_COMMANDS = {Severity.error: "error", Severity.warning: "warning", Severity.info: "notice"}


def render(outcome: Outcome, look: Look) -> str:
    """One command per finding, then the summary as text, because annotations beyond the tenth are not shown."""
    lines = [_command(outcome, report, finding) for report, finding in outcome.findings()]
    return "\n".join([*lines, *map(without_commands, summary(outcome, replace(look, detail="all")))]) + "\n"


def _command(outcome: Outcome, report: Report, finding: Finding) -> str:
    properties = []
    if finding.origin is not None:
        properties.append(("file", outcome.tracked(report, finding.origin.path)))
        found = place(report, finding.origin)
        if found is not None:
            properties += [("line", str(found.line)), ("endLine", str(found.end_line))]
            if found.line == found.end_line:  # GitHub takes columns only within one line
                properties += [("col", str(found.column)), ("endColumn", str(found.end_column))]
    properties.append(("title", f"preflight: {finding.rule}"))
    text = clean(finding.message) + "".join(f"\n{clean(words)}" for words in (*finding.notes, *finding.help))
    head = ",".join(f"{key}={_escape(value, property=True)}" for key, value in properties)
    return f"::{_COMMANDS[finding.severity]} {head}::{_escape(text)}"


def _escape(text: str, property: bool = False) -> str:
    """As the runner decodes it: %, CR, LF everywhere, also `:` and `,` in properties."""
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A")] + ([(":", "%3A"), (",", "%2C")] if property else [])
    for char, code in pairs:
        text = text.replace(char, code)
    return text
