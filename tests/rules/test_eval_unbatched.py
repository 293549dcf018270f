"""An evaluation set in one batch: what fits first, then what does not."""

from __future__ import annotations

import pytest
from cases import GIB, Device, case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case
from preflight_rules.eval_unbatched import EvalUnbatched

FITS = {"train.batch_size": 8, "train.seq_len": 1024}


def findings(case: Case) -> list[Finding]:
    return all_findings(case, EvalUnbatched)


def test_unbatched_evaluation_that_fits_is_left_alone() -> None:
    written = {**FITS, "validation.batch_size": 64}
    facts = {"eval_unbatched": True, "eval_samples": 64}
    assert findings(case(written, device=Device(evaluation=GIB // 1024), facts=facts)) == []


@pytest.mark.parametrize(
    ("samples", "severity", "words"),
    [
        (40_000, Severity.error, "all 40,000 samples"),
        (None, Severity.warning, "number is unknown) through the model as one batch: 8,192 of them fit, 16,384 do not"),
    ],
)
def test_unbatched_evaluation(samples: int | None, severity: Severity, words: str) -> None:
    facts = {"eval_unbatched": True} | ({"eval_samples": samples} if samples else {})
    written = {**FITS, "validation.batch_size": samples} if samples else FITS
    [finding] = findings(case(written, device=Device(evaluation=GIB // 1024), facts=facts))
    assert finding.severity is severity
    assert words in finding.message
    assert finding.origin == origin(90)
