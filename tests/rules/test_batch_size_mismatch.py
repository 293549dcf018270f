"""Stated batches against the product of their factors."""

from __future__ import annotations

import pytest
from cases import case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const
from preflight_rules.batch_size_mismatch import BatchSizeMismatch


def findings(case: Case) -> list[Finding]:
    return all_findings(case, BatchSizeMismatch)


@pytest.mark.parametrize(("stated", "wrong"), [(32, False), (16, False), (48, True)])
def test_a_stated_effective_batch(stated: int, wrong: bool) -> None:
    written = {"train.batch_size": 8, "train.grad_accum": 2, "parallel.ranks_per_node": 2}
    found = findings(case(written, constants={"data.effective_batch_size": Const(stated, origin(9))}))
    assert [finding.rule for finding in found] == ["batch-size-mismatch"] * wrong
    if wrong:
        assert found[0].severity is Severity.warning
        assert "effective_batch_size is 48, but micro-batch 8 x accumulation 2 x ranks 2 is 32" in found[0].message
