"""What recorded jobs took of what the law said: votes, and the ends that a share of them lies between.

A run that ran out of memory is censored: it would have gone on to more than it had and asked for. Leaving such runs out
would make every figure too low, and counting them at what they reached as well. The product-limit estimate (Kaplan and
Meier, 1958) takes them as what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from preflight.store.records import KeptRun, hash_of
from preflight.vocabulary.watched import PLAUSIBLE

COVERAGE = 0.9
"""Share of jobs to come between the ends: 5 % are to be outside on each side."""


class Vote(Struct, frozen=True):
    """Measured over expected allocated bytes of one run. `censored`: it would have been more. `weight`: the runs of one
    family of jobs from one source have one vote together."""

    ratio: float
    weight: float = 1.0
    censored: bool = False


class Votes(Struct, frozen=True):
    """Votes of jobs that are as hard to estimate. `jobs`: families of jobs, one for each source."""

    votes: tuple[Vote, ...]
    jobs: int
    runs: tuple[KeptRun, ...] = ()


def votes_of(runs: Iterable[KeptRun], kind: str, version: str) -> Votes:
    """The votes of runs of one kind, whose law was of this version of preflight up to its second number."""
    found: dict[tuple[str, str], list[tuple[KeptRun, Vote]]] = {}
    for one in runs:
        vote = _vote(one) if one.kind == kind and release(one.law_version) == release(version) else None
        if vote is not None and one.job is not None:
            found.setdefault((hash_of({"model": one.job.get("model", {})}), one.source), []).append((one, vote))
    weighted = tuple(Vote(vote.ratio, 1 / len(group), vote.censored) for group in found.values() for _, vote in group)
    return Votes(weighted, len(found), tuple(run for group in found.values() for run, _ in group))


def release(version: str) -> str:
    """The first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def _vote(one: KeptRun) -> Vote | None:
    law = next((peak.law for peak in one.peaks if peak.tier == "allocated" and peak.law is not None), None)
    measured = one.peak("allocated")
    if law is None or not measured or law[1] <= 0 or one.outcome not in ("completed", "oom"):
        return None
    if one.machine.gpu_memory and measured > one.machine.gpu_memory:
        return None  # no GPU allocates more than it has
    died = one.outcome == "oom"
    ratio = (measured + ((one.oom_request or 0) if died else 0)) / law[1]
    if ratio > PLAUSIBLE[1] or (ratio < PLAUSIBLE[0] and not died):
        return None
    return Vote(ratio, censored=died)


def ends(found: Votes) -> tuple[float, float, float] | None:
    """The low end, the middle and the high end; None: there are too few votes, or too many of them are censored.

    The ends are those of split conformal prediction: with n votes the k-th smallest for k = (n + 1) * 95 %, rounded up,
    and its mirror image. The middle is the median.
    """
    count = found.jobs
    rank = math.ceil((count + 1) * (1 + COVERAGE) / 2)
    if rank > count:
        return None
    shares = ((count - rank + 1) / count, 0.5, rank / count)
    low, middle, high = (_at(found.votes, share) for share in shares)
    return None if low is None or middle is None or high is None else (low, middle, high)


def _at(votes: Sequence[Vote], share: float) -> float | None:
    """The least ratio that at least this share of all is not above, by the product-limit estimate."""
    left = sum(vote.weight for vote in votes)
    above = 1.0
    for vote in sorted(votes, key=lambda one: (one.ratio, one.censored)):
        if not vote.censored and left > 0:
            above *= max(0.0, 1 - vote.weight / left)
            if 1 - above >= share - 1e-9:
                return vote.ratio
        left -= vote.weight
    return None
