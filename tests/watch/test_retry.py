"""Which setting is lowered after which end."""

from __future__ import annotations

import pytest

from preflight.api import job_of
from preflight.vocabulary.job import Job
from preflight.watch.retry import ALLOCATOR, Remedy, remedy

JOB = job_of({"train.batch_size": 64, "validation.batch_size": 8, "data.workers": 4})


@pytest.mark.parametrize(
    ("limit", "phase", "job"),
    [
        ("gpu", "load", JOB), ("gpu", "save", JOB), ("gpu-shared", "forward", JOB), ("gpu", "forward", None),
        ("gpu", "forward", job_of({})), ("gpu", "forward", job_of({"train.batch_size": 1})), ("time", "", JOB),
        ("node-failure", "", JOB), ("cgroup", "", job_of({"data.workers": 1})),
    ],
)  # fmt: skip
def test_nothing_helps(limit: str, phase: str, job: Job | None) -> None:
    assert isinstance(remedy(limit, phase, job), str)


@pytest.mark.parametrize(
    ("limit", "phase", "setting", "value"),
    [
        ("gpu", "backward", "train.batch_size", 32), ("gpu", "", "train.batch_size", 32),
        ("gpu", "validation", "validation.batch_size", 4), ("cgroup", "", "data.workers", 2),
        ("node", "forward", "data.workers", 2), ("shm", "", "data.workers", 2),
    ],
)  # fmt: skip
def test_a_setting_is_halved(limit: str, phase: str, setting: str, value: int) -> None:
    assert remedy(limit, phase, JOB) == Remedy(setting, value)


def test_fragmentation_asks_for_segments_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOCATOR, raising=False)
    found = remedy("gpu-fragmented", "backward", JOB)
    assert isinstance(found, Remedy)
    assert found.environment
    monkeypatch.setenv(ALLOCATOR, found.environment[ALLOCATOR])
    assert remedy("gpu-fragmented", "backward", JOB) == Remedy("train.batch_size", 32)
