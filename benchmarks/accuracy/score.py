"""Errors of estimates, and their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.accuracy.truth import Run, Tier
from preflight.vocabulary.estimates import Interval

UNDER = 0.05
"""An estimate short by more than this is counted: it is the error that lets a job die."""


@dataclass(frozen=True)
class Score:
    """One tool on one tier of one run."""

    run: Run
    tool: str
    tier: Tier
    measured: int
    estimate: int | None
    interval: Interval | None = None
    why: str = ""
    """Why there is no estimate."""

    @property
    def error(self) -> float:
        """(estimate - measured) / measured; only where there is an estimate."""
        assert self.estimate is not None
        return self.estimate / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.interval is not None and self.interval.low <= self.measured <= self.interval.high


@dataclass(frozen=True)
class Summary:
    """Statistics of a tool over the rows of a group; fractions of what was measured."""

    answered: int
    refused: int
    median: float
    p90: float
    worst_under: float
    worst_over: float
    under: float
    """Share of answers that are short by more than UNDER."""
    inside: float | None
    """Share of measurements inside the stated interval; None: the tool states none."""


def quantile(values: Sequence[float], share: float) -> float:
    """A value that at least `share` of the values do not exceed (the nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def summary(scores: Iterable[Score]) -> Summary | None:
    """None where nothing was answered and nothing refused."""
    found = list(scores)
    if not found:
        return None
    answered = [score for score in found if score.estimate is not None]
    refused = len(found) - len(answered)
    if not answered:
        return Summary(0, refused, 0.0, 0.0, 0.0, 0.0, 0.0, None)
    errors = [score.error for score in answered]
    sizes = [abs(error) for error in errors]
    stated = [score for score in answered if score.interval is not None]
    return Summary(
        len(answered),
        refused,
        median(sizes),
        quantile(sizes, 0.9),
        min(0.0, *errors),
        max(0.0, *errors),
        sum(error < -UNDER for error in errors) / len(errors),
        sum(score.inside for score in stated) / len(stated) if stated else None,
    )


@dataclass(frozen=True)
class Duel:
    """Two tools on the rows that both answered."""

    tier: Tier
    kind: str
    peer: str
    rows: int
    ours: float
    theirs: float

    @property
    def first(self) -> bool:
        return self.ours <= self.theirs


def duels(scores: Sequence[Score], ours: str) -> list[Duel]:
    """Our median |error| against each peer's, by tier and kind, on common rows only."""
    mine = {(s.run.id, s.tier): s for s in scores if s.tool == ours and s.estimate is not None}
    groups: dict[tuple[Tier, str, str], list[tuple[float, float]]] = {}
    for score in scores:
        own = mine.get((score.run.id, score.tier))
        if score.tool == ours or score.estimate is None or own is None:
            continue
        pair = abs(own.error), abs(score.error)
        groups.setdefault((score.tier, score.run.kind, score.tool), []).append(pair)
    return [
        Duel(tier, kind, peer, len(pairs), median(p[0] for p in pairs), median(p[1] for p in pairs))
        for (tier, kind, peer), pairs in sorted(groups.items())
    ]
