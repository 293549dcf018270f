"""Fitted or died: verdicts beside outcomes, each source counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.incidents import Incident
from benchmarks.accuracy.peers.base import Refused
from benchmarks.accuracy.tool import Preflight, job_of
from benchmarks.accuracy.truth import Inexpressible
from preflight.memory.estimate import Verdict

VERDICTS: tuple[Verdict, ...] = ("fits", "at-risk", "exceeds", "unknown")
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
    found = tool.device(job_of(incident.fields))
    if isinstance(found, Refused):
        return Judged(incident, "unknown", found.reason)
    why = "" if found.verdict != "unknown" else "; ".join(found.notes) or "the GPU's capacity is not known"
    return Judged(incident, found.verdict, why)


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
