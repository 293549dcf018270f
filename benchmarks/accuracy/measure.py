"""Runs every tool on every run that a tier was measured of."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import NamedTuple

from benchmarks.accuracy.peers import Answer, Peer, Refused
from benchmarks.accuracy.score import Score
from benchmarks.accuracy.tool import NAME, Preflight, job_of
from benchmarks.accuracy.truth import Fields, Inexpressible, Run
from preflight.vocabulary.estimates import Interval, Verdict


class Said(NamedTuple):
    """What tables name of an estimate. An estimate itself cannot be sent from one process to another."""

    verdict: Verdict
    phase: str


@dataclass
class Measured:
    """All scores, and what each tool cost."""

    scores: list[Score] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    estimates: dict[str, Said] = field(default_factory=dict)
    """preflight's, by run."""

    def add(self, other: Measured) -> None:
        """What another process measured."""
        self.scores += other.scores
        self.crashes += other.crashes
        self.estimates |= other.estimates
        for name, seconds in other.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def measure(runs: Sequence[Run], peers: Iterable[Peer], ours: Preflight, jobs: int = 1) -> Measured:
    """A score for each tool and each measured tier; a run that no Job describes is refused by every tool.

    `jobs`: processes. Runs of one model stay together, so that each law is made once.
    """
    found = Measured()
    present = [peer for peer in peers if peer.version is not None]
    models: dict[str, list[Run]] = {}
    for run in runs:
        if run.measured:
            models.setdefault(_model(run), []).append(run)
    if jobs == 1:
        parts: Iterable[Measured] = (_part(group, present, ours) for group in models.values())
        for part in parts:
            found.add(part)
        return _in_order(found, runs)
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(_part, models.values(), repeat(present), repeat(ours)):
            found.add(part)
    return _in_order(found, runs)


def _model(run: Run) -> str:
    if isinstance(run.fields, Inexpressible):
        return ""
    return str(run.fields.get("model.target") or run.fields.get("model.name"))


def _in_order(found: Measured, runs: Sequence[Run]) -> Measured:
    """The same text whichever process was first."""
    place = {run.id: number for number, run in enumerate(runs)}
    found.scores.sort(key=lambda score: place[score.run.id])
    found.crashes.sort()
    return found


def _part(runs: Sequence[Run], peers: Sequence[Peer], ours: Preflight) -> Measured:
    """One model's runs."""
    found = Measured()
    ours = replace(ours, crashes=[])
    for run in runs:
        found.scores += _preflight(run, ours, found)
        for peer in peers:
            found.scores += _peer(run, peer, found.seconds)
    found.crashes = ours.crashes
    return found


def _refused(run: Run, tool: str, why: str) -> Iterator[Score]:
    return (Score(run, tool, tier, size, None, None, why) for tier, size in run.measured.items())


def _preflight(run: Run, ours: Preflight, found: Measured) -> Iterable[Score]:
    if isinstance(run.fields, Inexpressible):
        return _refused(run, NAME, f"not a Job: {run.fields.reason}")
    start = time.perf_counter()
    answer = ours.estimate(job_of(run.fields))
    found.seconds[NAME] = found.seconds.get(NAME, 0.0) + time.perf_counter() - start
    if isinstance(answer, Refused):
        return _refused(run, NAME, answer.reason)
    found.estimates[run.id] = Said(answer.verdict, answer.phase)
    scores = []
    for tier, size in run.measured.items():
        interval: Interval = getattr(answer, tier)
        scores.append(Score(run, NAME, tier, size, interval.expected, interval))
    return scores


def _asked(peer: Peer, fields: Fields) -> Answer | Refused:
    """A tool that fails has refused; what it prints is not ours to show."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return peer.estimate(job_of(fields))
    except Exception as error:
        return Refused(f"crashed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}")


def _peer(run: Run, peer: Peer, seconds: dict[str, float]) -> Iterable[Score]:
    if isinstance(run.fields, Inexpressible):
        return _refused(run, peer.name, f"not a Job: {run.fields.reason}")
    if not set(peer.tiers) & set(run.measured):
        return _refused(run, peer.name, "no figure for this tier")
    start = time.perf_counter()
    answer = _asked(peer, run.fields)
    seconds[peer.name] = seconds.get(peer.name, 0.0) + time.perf_counter() - start
    if isinstance(answer, Refused):
        return _refused(run, peer.name, answer.reason)
    return [
        Score(run, peer.name, tier, size, answer.get(tier), None, "" if tier in answer else "no figure for this tier")
        for tier, size in run.measured.items()
    ]
