"""The interface of an effect: one thing that a job allocates or does in addition to the tape of its law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.estimates import Interval


class Passage(Struct, frozen=True):
    """Storages that are allocated outside of the steps, in bytes: `kept` stay, `passing` are freed at once."""

    phase: str
    part: str
    """As in `vocabulary.estimates.ALL_PARTS`."""
    kept: tuple[int, ...] = ()
    passing: tuple[int, ...] = ()
    library: bool = False
    """Whether a library takes them for itself, so that no tensor counts among those that were requested."""


class Again(Struct, frozen=True):
    """Another replay of a job. `reserved`: gives reserved bytes of a job after batches of other lengths. `room`: bytes
    of the GPU that can be reserved; None where its capacity is not known."""

    reserved: Callable[[PreparedJob, Sequence[Mapping[str, int]]], Interval]
    room: int | None


class Effect(Protocol):
    """One thing that a job allocates or does in addition to the tape of its law. The replay, the bound and the report
    ask every effect (`effects.EFFECTS`). An effect must tell the replay and the bound the same."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        """The events before the first step."""
        return iter(())

    def after(self, prepared: PreparedJob) -> Iterator[Passage]:
        """The events after the last step."""
        return iter(())

    def step(self, prepared: PreparedJob, segment: Segment, dims: Mapping[str, int]) -> Segment:
        """The step at dimensions, with the additions of the effect."""
        return segment

    def raised(self, prepared: PreparedJob, peak: int) -> int:
        """The law's peak of a step in bytes, with what `step` adds to it."""
        return peak

    def tries_kernels(self, prepared: PreparedJob) -> bool:
        """Whether cuDNN tries its algorithms in the first step, which empties the allocator's cache each time."""
        return False

    def reserved(self, prepared: PreparedJob, found: Interval, again: Again) -> Interval:
        """The interval of reserved bytes, with the changes of the effect."""
        return found

    def wider(self, prepared: PreparedJob) -> tuple[float, float]:
        """By how much intervals are wider, below and above, as fractions."""
        return 0.0, 0.0

    def notes(self, prepared: PreparedJob) -> Iterator[str]:
        """Notes for the user."""
        return iter(())
