"""What a job holds or does beside the tape of its law: the interface of one such effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from preflight.memory.device.step.ready import Ready
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.estimates import Interval


@dataclass(frozen=True)
class Passage:
    """Storages that come outside of the steps: `kept` stay, `passing` go again before anything else comes. Bytes."""

    phase: str
    part: str
    """As in `replay.ALL_PARTS`."""
    kept: tuple[int, ...] = ()
    passing: tuple[int, ...] = ()
    library: bool = False
    """Whether a library takes them for itself, so that no tensor counts among those that were requested."""


@dataclass(frozen=True)
class Again:
    """How a job can be replayed once more. `reserved`: of a job, after batches of other lengths; `room`: bytes that the
    card has for what is reserved, None where its capacity is not known."""

    reserved: Callable[[Ready, Sequence[Mapping[str, int]]], Interval]
    room: int | None


class Effect(Protocol):
    """One thing that a job holds or does beside the tape of its law. The replay, the bound and the report ask every
    effect (`effects.EFFECTS`); what one says to the replay it says to the bound as well."""

    def before(self, ready: Ready) -> Iterator[Passage]:
        """What comes before the first step."""
        return iter(())

    def after(self, ready: Ready) -> Iterator[Passage]:
        """What comes after the last step."""
        return iter(())

    def step(self, ready: Ready, segment: Segment, dims: Mapping[str, int]) -> Segment:
        """The step at dimensions, with what it holds more."""
        return segment

    def raised(self, ready: Ready, peak: int) -> int:
        """The law's peak of a step in bytes, with what `step` adds to it."""
        return peak

    def tries_kernels(self, ready: Ready) -> bool:
        """Whether the first step gives the allocator's cache back before each kernel that is tried."""
        return False

    def reserved(self, ready: Ready, found: Interval, again: Again) -> Interval:
        """The reserved bytes, with what the job may do otherwise."""
        return found

    def wider(self, ready: Ready) -> tuple[float, float]:
        """What widens intervals below and above, as fractions."""
        return 0.0, 0.0

    def notes(self, ready: Ready) -> Iterator[str]:
        """What a user should know."""
        return iter(())
