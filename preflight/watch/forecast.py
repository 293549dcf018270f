"""From the phases seen so far to those that are still to come: the law's figures, corrected by what was measured.

Tiers are not mixed: the law's process bytes of a phase without the context are reserved bytes, and only those are
compared with what the allocator reserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.watched import PLAUSIBLE

TRAINING = ("forward", "backward", "optimizer")
"""Phases that all have to be seen first: the peak of a step is in one of them."""
LATER = ("validation", "generation", "save")
STEPS = 2
"""Steps after which the optimizer's states are there."""


@dataclass(frozen=True)
class Forecast:
    """A phase to come. `low` and `expected`: process bytes; `residual`: measured over expected."""

    phase: str
    low: int
    expected: int
    capacity: int
    residual: float

    @property
    def certain(self) -> bool:
        """Whether even the low end does not fit."""
        return self.low > self.capacity


def forecast(
    law: DeviceEstimate, seen: Mapping[str, Mapping[str, int]], steps: int, capacity: int | None
) -> Forecast | None:
    """The first phase to come that is not expected to fit; None: there is none, or nothing can be said yet."""
    room = capacity or law.capacity
    if room is None or law.lower_bound or steps < STEPS or any(phase not in seen for phase in TRAINING):
        return None
    context = law.process.expected - law.reserved.expected
    of_law = {phase: size - context for phase, size in law.phases.items()}
    expected = max((size for phase, size in of_law.items() if _base(phase) in TRAINING), default=0)
    measured = max((peaks.get("reserved", 0) for phase, peaks in seen.items() if phase in TRAINING), default=0)
    if expected <= 0 or measured <= 0:
        return None
    residual = measured / expected
    if not PLAUSIBLE[0] <= residual <= PLAUSIBLE[1]:
        return None
    for phase, size in of_law.items():
        if _base(phase) in LATER and _base(phase) not in seen:
            likely = round(size * residual) + context
            low = round(likely * law.process.low / law.process.expected)
            if likely > room:
                return Forecast(_base(phase), low, likely, room, residual)
    return None


def _base(phase: str) -> str:
    """The phase's name as it is recorded: the law says "optimizer step"."""
    return phase.partition(" ")[0]
