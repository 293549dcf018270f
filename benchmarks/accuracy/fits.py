"""Fitted or died: verdicts beside outcomes, each source counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.incidents import Incident
from benchmarks.accuracy.peers.base import Refused
from benchmarks.accuracy.tool import Preflight, job_of
from benchmarks.accuracy.truth import Inexpressible
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.estimates import Verdict
from preflight.vocabulary.values import Unknown

VERDICTS: tuple[Verdict, ...] = ("fits", "at-risk", "exceeds", "unknown")
LARGE, ROUNDED = 10 << 20, 2 << 20
DIED_JUDGED_FITS = 0.02
WORKED_JUDGED_EXCEEDS = 0.05
"""The targets: shares of reports with a verdict."""


@dataclass(frozen=True)
class Judged:
    incident: Incident
    verdict: Verdict
    why: str = ""
    """Why it is unknown."""


def judge(incidents: Iterable[Incident], tool: Preflight) -> list[Judged]:
    """preflight's verdict on each report, by the capacity of its GPU."""
    return [_judge(incident, tool) for incident in incidents]


def _judge(incident: Incident, tool: Preflight) -> Judged:
    if isinstance(incident.fields, Inexpressible):
        return Judged(incident, "unknown", f"not a Job: {incident.fields.reason}")
    contradiction = contradicted(incident)
    if contradiction:
        return Judged(incident, "unknown", contradiction)
    found = tool.device(job_of(incident.fields))
    if isinstance(found, Refused):
        return Judged(incident, "unknown", found.reason)
    why = "" if found.verdict != "unknown" else "; ".join(found.notes) or "the GPU's capacity is not known"
    return Judged(incident, found.verdict, why)


def contradicted(incident: Incident) -> str:
    """Why the batch or the length that a report's collector inferred cannot have been the run's: its message asks for
    a size that nothing in a step of that batch and length has. Empty where nothing speaks against them.

    PyTorch asks the device for multiples of 2 MiB from 10 MiB on, and its message states that size
    (c10/cuda/CUDACachingAllocator.cpp, kRoundLarge).
    """
    if incident.asked is None or incident.asked < LARGE or not {"batch_size", "seq_len"} & {*incident.inferred}:
        return ""
    ready = None if isinstance(incident.fields, Inexpressible) else prepare(job_of(incident.fields))
    if ready is None or isinstance(ready, Unknown):
        return ""
    sizes = Segment.of(ready.laws.made.tape, ready.dims).sizes
    sizes += tuple(round(n * each) for n, each, _ in ready.rank.rows)
    if any(-(-size // ROUNDED) * ROUNDED == incident.asked for size in sizes):
        return ""
    return (
        f"its message asks for {incident.asked >> 20} MiB, which nothing has at the batch and length that are inferred"
    )


def weights(judged: Sequence[Judged]) -> dict[str, float]:
    """By report: reports of one source share one vote."""
    sizes = Counter(one.incident.group for one in judged)
    return {one.incident.id: 1 / sizes[one.incident.group] for one in judged}


@dataclass(frozen=True)
class Confusion:
    """Votes by outcome and verdict. Rates are of the votes with a verdict; None where there are none."""

    died: dict[Verdict, float]
    worked: dict[Verdict, float]

    @property
    def died_judged_fits(self) -> float | None:
        return _share(self.died, "fits")

    @property
    def worked_judged_exceeds(self) -> float | None:
        return _share(self.worked, "exceeds")


def _share(votes: dict[Verdict, float], verdict: Verdict) -> float | None:
    known = sum(size for name, size in votes.items() if name != "unknown")
    return votes[verdict] / known if known else None


def confusion(judged: Sequence[Judged]) -> Confusion:
    """The table, hard cases included."""
    each = weights(judged)
    tables: dict[bool, dict[Verdict, float]] = {died: dict.fromkeys(VERDICTS, 0.0) for died in (True, False)}
    for one in judged:
        tables[one.incident.died][one.verdict] += each[one.incident.id]
    return Confusion(tables[True], tables[False])
