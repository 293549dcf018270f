"""Whether the stated intervals hold what they promise, and what they would have to be.

Nothing here changes the engine: it prints. Rows of one source share a machine, a script and its mistakes, so a width
that was taken from a source says nothing of that source: each is left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.score import Score
from benchmarks.accuracy.truth import Fields, Inexpressible, Tier

COVERED = 0.90
"""The share of measured runs that an interval promises to hold."""


def hardness(fields: Fields | Inexpressible, kind: str) -> str:
    """What makes a run hard to say in bytes, the hardest first."""
    if isinstance(fields, Inexpressible):
        return "not a Job"
    if "convolution" in kind or kind == "detectors":
        return "convolutions"
    if fields.get("parallel.strategy") not in (None, "none", "ddp"):
        return "sharded"
    if fields.get("train.compile"):
        return "compiled"
    if fields.get("train.quantization.type") not in (None, "none"):
        return "quantised"
    varying = fields.get("train.sequences") in ("bound", "dynamic") and fields.get("train.seq_len") is not None
    return "lengths vary" if varying else "plain"


@dataclass(frozen=True)
class Width:
    """(low, high) as factors of the expected bytes."""

    low: float
    high: float

    def holds(self, ratio: float) -> bool:
        return self.low <= ratio <= self.high


def ratio(score: Score) -> float:
    """measured / expected: what an interval's ends are factors of."""
    assert score.estimate is not None
    return score.measured / score.estimate


def width(ratios: Mapping[str, Sequence[float]], covered: float = COVERED) -> Width | None:
    """The central interval that holds `covered` of the votes; each source has one vote, however many rows it has."""
    votes = sorted((r, 1 / len(values)) for values in ratios.values() for r in values)
    if not votes:
        return None
    total = sum(weight for _, weight in votes)
    tail = total * (1 - covered) / 2
    return Width(_at(votes, tail), _at(votes, total - tail))


def _at(votes: Sequence[tuple[float, float]], mark: float) -> float:
    passed = 0.0
    for value, weight in votes:
        passed += weight
        if passed >= mark - 1e-9:
            return value
    return votes[-1][0]


@dataclass(frozen=True)
class Held:
    """One source's share of measurements inside: the stated interval, and one made of the other sources only."""

    source: str
    rows: int
    stated: float
    left_out: float | None
    """None: there is no other source in the group."""


def held(scores: Iterable[Score]) -> list[Held]:
    """By source, of scores of one tier and one kind of run."""
    groups = by(scores, lambda score: score.run.source)
    ratios = {source: [ratio(score) for score in found] for source, found in groups.items()}
    rows = []
    for source, found in sorted(groups.items()):
        others = width({name: values for name, values in ratios.items() if name != source})
        inside = None if others is None else sum(map(others.holds, ratios[source])) / len(found)
        rows.append(Held(source, len(found), sum(score.inside for score in found) / len(found), inside))
    return rows


def proposal(scores: Iterable[Score]) -> Width | None:
    """The width that the measured runs ask for, each source with one vote."""
    groups = by(scores, lambda score: score.run.source)
    return width({source: [ratio(score) for score in found] for source, found in groups.items()})


def answered(scores: Iterable[Score], tool: str) -> list[Score]:
    """A tool's answers."""
    return [score for score in scores if score.tool == tool and score.estimate is not None]


def by(scores: Iterable[Score], key: Callable[[Score], str]) -> dict[str, list[Score]]:
    """Scores in groups."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score)
    return groups


def classes(scores: Iterable[Score]) -> dict[tuple[Tier, str], list[Score]]:
    """Answers by tier and hardness."""
    groups: dict[tuple[Tier, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.tier, hardness(score.run.fields, score.run.kind)), []).append(score)
    return dict(sorted(groups.items()))
