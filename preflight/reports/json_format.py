"""`--output-format json`: version 1 of a contract; docs/output.md describes it, fields are only ever added."""

from __future__ import annotations

import json

from preflight.reports import plain
from preflight.reports.style import Look
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome

VERSION = 1


def document(outcome: Outcome) -> plain.Plain:
    """The whole outcome as plain data."""
    return {
        "version": VERSION,
        "findings": [plain.finding(outcome, report, found) for report, found in outcome.findings()],
        "studies": [plain.study(outcome, report, result) for report, result in outcome.studies()],
        "summary": {
            "errors": outcome.counts[Severity.error],
            "warnings": outcome.counts[Severity.warning],
            "infos": outcome.counts[Severity.info],
            "fixed": outcome.fixed,
            "files": outcome.files,
        },
    }


def render(outcome: Outcome, look: Look) -> str:
    """The document as text, one final newline. Numbers that JSON does not have (infinity) are null."""
    return json.dumps(_finite(document(outcome)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    """`value` without infinities and NaN, which a hostile configuration may hold and JSON may not."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
