"""Copies of a data set of Python objects."""

from __future__ import annotations

from cases import GIB, case, spread
from cases import findings as all_findings

from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.rule import Case
from preflight_rules.dataset_copied_per_worker import DatasetCopiedPerWorker


def findings(case: Case) -> list[Finding]:
    return all_findings(case, DatasetCopiedPerWorker)


def test_copies_are_named_where_they_are_large() -> None:
    written = {"data.workers": 8, "data.in_memory_bytes": GIB, "data.in_memory_kind": "objects"}
    for copies, rules in ((GIB, []), (4 * GIB, ["dataset-copied-per-worker"])):
        need = spread(8 * GIB)
        host = HostEstimate(need, {"base": GIB, "copy_on_write": copies}, None, "unknown", "unknown")
        found = findings(case(written, host=lambda _, host=host: host))  # type: ignore[misc]
        assert [finding.rule for finding in found] == rules
