"""Constants of the host law fitted without a group of points, which is then judged by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from benchmarks.accuracy.host import jobs
from preflight.memory.host import constants as c
from preflight.memory.host import heap
from preflight.memory.host.estimate import moments_of
from preflight.memory.host.rank import rank_of
from preflight.vocabulary.job import Job

Point = tuple[str, Job, int]
STEPS = (0.8, 1.0, 1.2)
ROUNDS = 1
_first, _untouched = heap.first, dict(c.UNTOUCHED_PER_ITEM)


def _plain(module: ModuleType, name: str) -> Callable[[float], None]:
    value = getattr(module, name)

    def put(factor: float) -> None:
        setattr(module, name, value * factor)

    return put


def _put_holes(factor: float) -> None:
    heap.first = lambda batch: _first(batch) * factor


def _put_untouched(factor: float) -> None:
    c.UNTOUCHED_PER_ITEM["objects"] = _untouched["objects"] * factor


KNOBS: dict[str, Callable[[float], None]] = {
    "WORKER_FORK": _plain(c, "WORKER_FORK"),
    "WORKER_SPAWN": _plain(c, "WORKER_SPAWN"),
    "COLLATE_BATCHES": _plain(c, "COLLATE_BATCHES"),
    "DECODED_BATCHES": _plain(c, "DECODED_BATCHES"),
    "DECODER": _plain(c, "DECODER"),
    "SYNCHRONOUS_SAMPLES": _plain(c, "SYNCHRONOUS_SAMPLES"),
    "COLLECTED_PART": _plain(c, "COLLECTED_PART"),
    "PIN": _plain(heap, "PIN"),
    "PER_PIN": _plain(heap, "PER_PIN"),
    "FROM_NUMPY": _plain(heap, "FROM_NUMPY"),
    "first": _put_holes,
    "UNTOUCHED_PER_ITEM": _put_untouched,
}
"""What is calibrated. The rest of the law is counted (queues, copies, permutations) or measured apart (bases)."""


@contextmanager
def _restored() -> Iterator[None]:
    try:
        yield
    finally:
        for put in KNOBS.values():
            put(1.0)


def left_out(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Absolute errors of each group, by constants that the other groups gave."""
    points = [(row["group"], jobs.job_of(row), jobs.measured(row)) for row in rows]
    found: dict[str, list[float]] = {}
    for group in dict.fromkeys(name for name, _, _ in points):
        with _restored():
            _fit([point for point in points if point[0] != group])
            found[group] = [_error(point) for point in points if point[0] == group]
    return found


def _fit(points: Sequence[Point]) -> None:
    """Each constant in turn takes the factor with the least mean error."""
    best = dict.fromkeys(KNOBS, 1.0)
    for _ in range(ROUNDS):
        for name, put in KNOBS.items():
            errors = {}
            for factor in STEPS:
                put(factor)
                errors[factor] = sum(_error(point) for point in points)
            best[name] = min(errors, key=lambda factor: (errors[factor], abs(factor - 1)))
            put(best[name])


def _error(point: Point) -> float:
    """Of the expected value alone: an interval takes three times as long, and this runs 10^5 times."""
    job = point[1]
    rank = rank_of(job, job.data.sample_bytes or 0, None, cuda=False, trains=False)
    expected = max(moment.total for moment in moments_of(rank)) * (job.parallel.ranks_per_node or 1)
    return abs(expected / point[2] - 1)
