"""Batches in flight against /dev/shm: what is enough first."""

from __future__ import annotations

import pytest
from cases import case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const
from preflight_rules.shm_too_small import ShmTooSmall

MIB = 2**20


def findings(case: Case) -> list[Finding]:
    return all_findings(case, ShmTooSmall)


SHARED = {"train.batch_size": 8, "data.workers": Const(4, origin(2)), "data.sample_bytes": MIB}


@pytest.mark.parametrize(
    "written",
    [
        {**SHARED},
        {**SHARED, "machine.shm": 72 * MIB},
        {**SHARED, "machine.shm": MIB, "data.workers": 0},
        {"train.batch_size": 1, "data.workers": 1, "machine.shm": 64 * MIB},
    ],
    ids=["unknown", "just enough", "no workers", "only samples of 21 MiB would not fit"],
)
def test_enough_shared_memory(written: dict[str, object]) -> None:
    assert findings(case(written)) == []  # type: ignore[arg-type]


def test_shared_memory_is_filled_to_the_byte() -> None:
    [finding] = findings(case({**SHARED, "machine.shm": Const(72 * MIB - 1, origin(7))}))
    assert (finding.rule, finding.severity) == ("shm-too-small", Severity.error)
    assert finding.interval == (72 * MIB,) * 3
    assert finding.origin == origin(7)
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("data.workers", 2)]
