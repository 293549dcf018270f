"""`check --statistics`: the findings of each rule as counts, then the summary."""

from __future__ import annotations

from preflight.reports.rules import RuleCount, counts, summary
from preflight.reports.style import COLOURS, Cell, Look, table
from preflight.reports.summary import summary as last_lines
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.outcome import Outcome


def rendered(outcome: Outcome, look: Look) -> str:
    """A row for each rule, the most frequent first; `[*]` marks a rule with fixes that `--fix` writes."""
    rows: list[tuple[Cell, ...]] = [
        (
            f"{one.count:,}",
            (one.rule, COLOURS[_worst(one)]),
            "[*]" if one.safe_fixes else "",
            summary(outcome, one.rule),
        )
        for one in counts(outcome)
    ]
    lines = table(rows, look, right=(0,), indent=0)
    return "\n".join([*lines, *([""] if lines else []), *last_lines(outcome, look)]) + "\n"


def _worst(count: RuleCount) -> Severity:
    if count.errors:
        return Severity.error
    return Severity.warning if count.warnings else Severity.info
