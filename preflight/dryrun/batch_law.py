"""A law over the batch: the tapes of two batch sizes, birth by birth, confirmed at a third.

The sizes of storages grow on straight lines with the batch wherever a program only passes it on. So two runs with the
same births in the same places give the whole tape at any batch, and with it every tier, by the same replay. Where the
runs differ, or the third is not what the two foretell, there is no law: nothing is said of other batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from typing import Any

from preflight.dryrun.report_of_process import RunReport, recording
from preflight.memory.device import recorded
from preflight.memory.device.recorded import Recording
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu

TOLERANCE = 0.001
"""Part of the requested bytes by which the third run may differ from what two others foretell."""
REACH = 16
"""How many times the largest confirmed batch a law is used for: kernels may change far beyond what was run."""


class NoLaw(Exception):
    """Nothing is known of other batches; the message says why, in words that follow "no law over the batch:"."""


@dataclass(frozen=True)
class BatchLaw:
    """A tape at any batch. `slopes`: bytes for each further sample, of every birth; deaths have none."""

    own: int
    batches: tuple[int, ...]
    """The batch sizes that were run."""
    tape: Recording
    slopes: tuple[Fraction, ...]

    def at(self, batch: int) -> Recording:
        """The tape at a batch size."""
        more = batch - self.own
        events = [
            event if event < 0 else max(0, round(event + slope * more))
            for event, slope in zip(self.tape.events, self.slopes, strict=True)
        ]
        return replace(self.tape, events=events, shapes={})

    def largest(self, job: Job, gpu: Gpu) -> int | None:
        """The largest batch whose estimate fits; 0: not even 1; None: larger than the law reaches. A replay is not
        quite monotone in the batch, so what is found is estimated itself."""

        def fits(batch: int) -> bool:
            return recorded.estimate(self.at(batch), job, gpu).verdict == "fits"

        low, high = 0, REACH * max(self.batches)
        if fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def plain(self) -> dict[str, Any]:
        """The law as plain data: sizes at the own batch, and bytes for each further sample."""
        return {
            "batch": self.own,
            "confirmed_at": list(self.batches),
            "events": list(self.tape.events),
            "bytes_per_sample": [float(one) for one in self.slopes],
            "phases": [[name, len(list(run))] for name, run in groupby(self.tape.phases)],
            "parts": {str(birth): part for birth, part in self.tape.parts.items()},
        }


def sizes_to_try(own: int) -> tuple[int, int]:
    """Two other batch sizes: half as much again and twice the own, in steps of 8 where the own is one of these, since
    kernels round to 8."""
    step = 8 if own % 8 == 0 else 1
    second = own + max(step, own // 2 // step * step)
    return second, max(2 * own, second + step)


def law(reports: Mapping[int, RunReport], directory: str) -> BatchLaw:
    """The law of three runs, by their batch sizes: the first two make it, the third confirms it. Raises NoLaw."""
    (own, first), (other, second), (third, confirming) = reports.items()
    slopes = _slopes(first, second, other - own)
    found = BatchLaw(own, tuple(reports), recording(first, directory), slopes)
    foretold = recorded.peak(found.at(third).events).bytes
    seen = recorded.peak(confirming.events).bytes
    if abs(foretold - seen) > TOLERANCE * seen:
        raise NoLaw(
            f"batch {third} takes {seen:,} bytes of tensors, and batches {own} and {other} foretell {foretold:,}"
        )
    return found


def _slopes(first: RunReport, second: RunReport, more: int) -> tuple[Fraction, ...]:
    """Bytes for each further sample of every event of the first run. Raises NoLaw where the runs do not align."""
    births, others = (_births(one) for one in (first, second))
    if len(births) != len(others) or _shape(first, births) != _shape(second, others):
        raise NoLaw("runs of two batch sizes do not allocate the same tensors in the same order")
    slopes = [Fraction(0)] * len(first.events)
    for at, other in zip(births, others, strict=True):
        slopes[at] = Fraction(second.events[other] - first.events[at], more)
    return tuple(slopes)


def _births(report: RunReport) -> list[int]:
    return [at for at, event in enumerate(report.events) if event >= 0]


def _shape(report: RunReport, births: Sequence[int]) -> list[tuple[object, ...]]:
    """The places of the births, and which births end between two of them."""
    number = {at: index for index, at in enumerate(births)}
    found: list[tuple[object, ...]] = []
    ended: set[int] = set()
    for at, event in enumerate(report.events):
        if event < 0:
            ended.add(number[-1 - event])
            continue
        place = report.places[at]
        found.append((place.phase, place.module, place.user, frozenset(ended)))
        ended = set()
    return found
