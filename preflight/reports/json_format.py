"""`--output-format json`, a contract: contract.py and docs/reference/json.md describe it, keys are only ever added."""

from __future__ import annotations

from preflight.reports import plain
from preflight.reports.contract import VERSION, CheckJson
from preflight.reports.statistics import counts
from preflight.reports.style import Look
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome


def document(outcome: Outcome) -> CheckJson:
    """The whole outcome as plain data."""
    return {
        "version": VERSION,
        "findings": [plain.finding(outcome, report, found) for report, found in outcome.findings()],
        "studies": [plain.study(outcome, report, result) for report, result in outcome.studies()],
        "statistics": counts(outcome),
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
