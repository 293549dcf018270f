"""A law over batch and length of a recorded run: the sizes of its allocations at two batches and at two lengths.

A program passes its batch on, so a storage grows on a straight line with it. With the length it grows on a straight
line or with the square (scores of attention), which two lengths tell apart where the square is all that there is.
Whoever makes a law runs a third size, and keeps the law only if it foretells that run (`TOLERANCE`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device import recorded
from preflight.memory.device.recorded import Recording
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu

TOLERANCE = 0.001
"""Part of the requested bytes by which the third run may differ from what the law foretells."""
REACH = 16
"""How many times the largest batch that was run a law is used for: kernels may change far beyond."""
LENGTHS = (0.5, 2.0)
"""The same of lengths: the least and the most, as a part of the shortest and the longest that were run."""
Sizes = Sequence[int]
"""Bytes of every birth in another run, in the places of the tape's events; 0 at a death."""


class OverLength(Struct, frozen=True):
    """Sizes at another length: at the tape's own batch, and at the law's other one."""

    own: int
    other: int
    sizes: Sizes
    both: Sizes


class RecordedLaw(Struct, frozen=True):
    """The tape at any batch, and at any length where `lengths` is known. `sizes`: those at the other batch."""

    tape: Recording
    batch: int
    other: int
    sizes: Sizes
    lengths: OverLength | None = None
    runs: tuple[tuple[int, int | None], ...] = ()
    """(batch, length) of every run that made or confirmed it."""
    second_step: bool = False
    """Whether the tape is of the second training step alone: in the runs no other moment took more."""

    def at(self, batch: int, length: int | None = None) -> Recording:
        """The tape at a batch and a length (None: the tape's own)."""
        if batch == self.batch and self._is_own(length):
            return self.tape
        events = [
            event if event < 0 else max(0, round(self._size(at, batch, length)))
            for at, event in enumerate(self.tape.events)
        ]
        return replace(self.tape, events=events, shapes={})

    def _is_own(self, length: int | None) -> bool:
        return length is None or self.lengths is None or length == self.lengths.own

    def _size(self, at: int, batch: int, length: int | None) -> Fraction:
        each, rest = self._line(self.tape.events[at], self.sizes[at])
        over = self.lengths
        if over is not None and length is not None:
            each_other, rest_other = self._line(over.sizes[at], over.both[at])
            each = _between(each, each_other, over, length)
            rest = _between(rest, rest_other, over, length)
        return rest + each * batch

    def _line(self, own: int, other: int) -> tuple[Fraction, Fraction]:
        """(bytes for each sample, bytes without any) of one storage."""
        each = Fraction(other - own, self.other - self.batch)
        return each, own - each * self.batch

    @property
    def batches(self) -> tuple[int, int]:
        """The smallest and the largest batch of which the law speaks."""
        return self.batch if self.second_step else 1, REACH * max(batch for batch, _ in self.runs)

    @property
    def reached_lengths(self) -> tuple[int, int] | None:
        """The same of lengths; None where it knows none but that of the tape."""
        known = [one for _, one in self.runs if one is not None]
        if self.lengths is None or not known:
            return None
        return math.ceil(LENGTHS[0] * min(known)), math.floor(LENGTHS[1] * max(known))

    def why_not(self, batch: int, length: int | None) -> str:
        """Why the law does not speak of a batch and a length; "" where it does."""
        low, high = self.batches
        if batch > high:
            return f"batch {batch:,} is more than {REACH} times the largest that was run ({high // REACH:,})"
        if batch < low:
            return f"below batch {low:,} other moments than the training step may take more"
        if length is None:
            return ""
        reached = self.reached_lengths
        if reached is None:
            return "it has no law over the length"
        if reached[0] <= length <= reached[1]:
            return ""
        known = [one for _, one in self.runs if one is not None]
        return f"length {length:,} is too far from those that were run ({min(known):,} to {max(known):,})"

    def largest(self, job: Job, gpu: Gpu, length: int | None = None) -> int | None:
        """The largest batch whose estimate fits; 0: not even 1; None: beyond what the law reaches. A replay is not
        quite monotone in the batch, so what is found is estimated itself."""

        def fits(batch: int) -> bool:
            return recorded.estimate(self.at(batch, length), job, gpu).verdict == "fits"

        least, high = self.batches
        if fits(high) or (self.second_step and not fits(least)):
            return None
        low = least if self.second_step else 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def _between(own: Fraction, other: Fraction, over: OverLength, length: int) -> Fraction:
    """A term at a length, from its values at two: with the square where both say so, else on a straight line."""
    if own * over.other**2 == other * over.own**2:
        return own * Fraction(length, over.own) ** 2
    return own + (other - own) * Fraction(length - over.own, over.other - over.own)
