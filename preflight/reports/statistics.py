"""The findings of each rule as counts: `check --statistics`, and `statistics` in JSON."""

from __future__ import annotations

from preflight.reports.contract import StatisticJson
from preflight.reports.rules import summary
from preflight.reports.style import COLOURS, Cell, Look, table
from preflight.reports.summary import summary as last_lines
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.outcome import Outcome


def counts(outcome: Outcome) -> list[StatisticJson]:
    """The findings by rule, the most frequent first."""
    by_rule: dict[str, list[Finding]] = {}
    for _, finding in outcome.findings():
        by_rule.setdefault(finding.rule, []).append(finding)
    found = [_count(rule, findings) for rule, findings in by_rule.items()]
    return sorted(found, key=lambda one: (-one["count"], one["rule"]))


def _count(rule: str, findings: list[Finding]) -> StatisticJson:
    """The row of one rule; a finding without a fix counts in neither of the last two."""
    errors, warnings, infos = (
        sum(finding.severity is severity for finding in findings)
        for severity in (Severity.error, Severity.warning, Severity.info)
    )
    fixes = [finding.fix.safety for finding in findings if finding.fix is not None]
    safe = sum(safety is Safety.safe for safety in fixes)
    return {
        "rule": rule,
        "count": len(findings),
        "errors": errors,
        "warnings": warnings,
        "infos": infos,
        "safe_fixes": safe,
        "unsafe_fixes": len(fixes) - safe,
    }


def rendered(outcome: Outcome, look: Look) -> str:
    """A row for each rule, the most frequent first; `[*]` marks a rule with fixes that `--fix` writes."""
    rows: list[tuple[Cell, ...]] = [
        (
            f"{one['count']:,}",
            (one["rule"], COLOURS[_worst(one)]),
            "[*]" if one["safe_fixes"] else "",
            summary(outcome, one["rule"]),
        )
        for one in counts(outcome)
    ]
    lines = table(rows, look, right=(0,), indent=0)
    return "\n".join([*lines, *([""] if lines else []), *last_lines(outcome, look)]) + "\n"


def _worst(count: StatisticJson) -> Severity:
    """The severity whose colour the row has."""
    if count["errors"]:
        return Severity.error
    return Severity.warning if count["warnings"] else Severity.info
