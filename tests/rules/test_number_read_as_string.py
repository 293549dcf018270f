"""Problems of the readers, as findings with their repair."""

from __future__ import annotations

from cases import case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.rule import Case
from preflight_rules.number_read_as_string import NumberReadAsString


def findings(case: Case) -> list[Finding]:
    return all_findings(case, NumberReadAsString)


def test_problems_become_findings_with_their_repair() -> None:
    problem = Problem("number-read-as-string", "1e-5 is read as text", origin(7), "warning", fix="1.0e-5", safe=True)
    [finding] = findings(case({}, problems=(problem,)))
    assert (finding.rule, finding.severity, finding.origin) == (problem.rule, Severity.warning, origin(7))
    [proposal] = finding.proposals
    assert proposal.safety is Safety.safe
    assert (proposal.edits[0].span, proposal.edits[0].text) == (origin(7).span, "1.0e-5")
