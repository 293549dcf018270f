"""`--output-format json`, a contract: docs/reference/output.md describes it, fields are only ever added."""

from __future__ import annotations

from dataclasses import asdict

from preflight.reports import plain
from preflight.reports.statistics import counts
from preflight.reports.style import Look
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome

VERSION = 2


def document(outcome: Outcome) -> plain.Plain:
    """The whole outcome as plain data."""
    return {
        "version": VERSION,
        "findings": [plain.finding(outcome, report, found) for report, found in outcome.findings()],
        "studies": [plain.study(outcome, report, result) for report, result in outcome.studies()],
        "statistics": [asdict(count) for count in counts(outcome)],
        "summary": {
            "errors": outcome.counts[Severity.error],
            "warnings": outcome.counts[Severity.warning],
            "infos": outcome.counts[Severity.info],
            "fixed": outcome.fixed,
            "files": outcome.files,
            "incomplete": bool(outcome.incomplete),
        },
    }


def render(outcome: Outcome, look: Look) -> str:
    """The document as text."""
    return plain.written(document(outcome))
