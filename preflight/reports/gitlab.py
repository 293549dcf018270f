"""GitLab's Code Quality report: a JSON list that a merge request compares with the one of its target branch.

https://docs.gitlab.com/ci/testing/code_quality/ names the fields. GitLab shows only `description`, so the rule's name
is in it, and it tells new findings from old ones by `fingerprint` alone.
"""

from __future__ import annotations

from preflight.reports import plain
from preflight.reports.places import place
from preflight.reports.rules import address, fingerprints
from preflight.reports.style import Look
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.outcome import Outcome, Report

_SEVERITIES = {Severity.error: "critical", Severity.warning: "minor", Severity.info: "info"}
"""GitLab's own are info, minor, major, critical and blocker."""


def document(outcome: Outcome) -> list[plain.Plain]:
    """An entry for each finding."""
    found = list(outcome.findings())
    prints = fingerprints(outcome, found)
    return [_entry(outcome, report, finding, mark) for (report, finding), mark in zip(found, prints, strict=True)]


def render(outcome: Outcome, look: Look) -> str:
    """The document as text."""
    return plain.written(document(outcome))


def _entry(outcome: Outcome, report: Report, finding: Finding, fingerprint: str) -> plain.Plain:
    entry: plain.Plain = {
        "description": f"{finding.rule}: {finding.message}",
        "check_name": finding.rule,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": _location(outcome, report, finding),
    }
    body = [*finding.notes, *finding.help, *([url] if (url := address(outcome, finding.rule)) else [])]
    if body:
        entry["content"] = {"body": "\n\n".join(body)}
    return entry


def _location(outcome: Outcome, report: Report, finding: Finding) -> plain.Plain:
    """The path from the root of the checkout, and the lines. GitLab refuses an entry without them, so a finding without
    a place is put at the start of the first file that was checked."""
    if finding.origin is None:
        path = outcome.tracked(report, report.files[0]) if report.files else "."
        return {"path": path, "lines": {"begin": 1, "end": 1}}
    found = place(report, finding.origin)
    begin, end = (found.line, found.end_line) if found is not None else (1, 1)
    return {"path": outcome.tracked(report, finding.origin.path), "lines": {"begin": begin, "end": end}}
