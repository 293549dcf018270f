"""The traces of one check have a budget together: past it a law is unknown, and the next check goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from preflight.memory.device import laws_of_job, traced_laws
from preflight.memory.device.fit.subprocess import TraceError, request_traces
from preflight.memory.device.law.law import Laws
from preflight.memory.device.resolve import resolve
from preflight.system import observed
from preflight.vocabulary.budgets import REMARKS_SECONDS, TRACES_SECONDS, TraceTime
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.job import build
from preflight.vocabulary.tracing import TRACE
from preflight.vocabulary.values import Cause, Unknown


def law(size: int, spent: TraceTime) -> Laws | Unknown:
    job = {"model.target": "timm:resnet18", "task": "image-classification", "train.image_size": size}
    resolved = resolve(build({**job, "train.batch_size": 3}))
    assert not isinstance(resolved, Unknown)
    return laws_of_job.laws_for(resolved, "train", replace(TRACE, time=spent))


def test_past_the_budget_no_law_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def failing(traces: object, interpreter: object, seconds: float, spent: TraceTime) -> object:
        asked.append(seconds)
        spent.used += TRACES_SECONDS * 2 / 3
        raise TraceError("no such layer")

    monkeypatch.setattr(traced_laws, "request_traces", failing)
    monkeypatch.setattr(traced_laws, "TRACED", BoundedCache(4))
    monkeypatch.setattr(traced_laws, "can_trace", lambda tracing: True)
    record, spent = observed.start(), TraceTime()
    try:
        found = [law(size, spent) for size in (61, 67, 71)]
        assert list(record.flaws) == [TRACES_SECONDS.over]
    finally:
        observed.stop()
    assert [one.cause for one in found if isinstance(one, Unknown)] == [*[Cause.cannot_trace] * 2, Cause.budget]
    assert len(asked) == 2
    assert isinstance(law(71, TraceTime()), Unknown)
    assert len(asked) == 3, "another check traces it"


def test_remarks_stop_before_verdicts_do() -> None:
    spent = TraceTime()
    spent.used = (REMARKS_SECONDS + TRACES_SECONDS) / 2
    with spent.for_remarks():
        assert spent.over()
        assert spent.limit.over == REMARKS_SECONDS.over
    assert not spent.over()
    spent.used = TRACES_SECONDS + 1
    assert spent.over()


def test_a_trace_that_is_ended_counts_by_the_clock(tmp_path: Path) -> None:
    silent, spent = tmp_path / "silent", TraceTime()
    silent.write_text("#!/bin/sh\nsleep 5\n")
    silent.chmod(0o700)
    with pytest.raises(TraceError):
        request_traces([], str(silent), 0.05, spent)
    assert spent.used >= 0.05
