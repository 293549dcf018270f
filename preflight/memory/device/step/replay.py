"""The replay of a tape through the caching allocator.

A job is replayed for two whole iterations, then validation, then generation (`run.replayed`).

The second iteration is the one that counts: it has optimizer states, and the blocks that the first one left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from preflight.memory.device.law.alignment import aligned, events_at
from preflight.memory.device.law.law import KEPT, PARTS, Peak, part_of
from preflight.memory.device.law.tape import WORKSPACE, Tape
from preflight.memory.device.step.allocator import CachingAllocator, MemoryBlock
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.estimates import ALL_PARTS
from preflight.vocabulary.optimizer import Step

_PART = {name: index for index, name in enumerate(ALL_PARTS)}
_CODE = {"b": 0, "d": 1, "+": 2}
_FROM_LAW = tuple(_PART[name] for name in PARTS)


class Replayed(Struct, frozen=True):
    """Peaks in bytes; `parts` (keys: ALL_PARTS): allocated bytes at the peak; `phases`: allocated peak of each."""

    allocated: int
    reserved: int
    parts: Mapping[str, int]
    phase: str
    phases: Mapping[str, int] = field(default_factory=dict)
    overflow: bool = False


RETURNED = "returned"
"""The part of forward after a model has returned, where its loss is made apart."""
Order: TypeAlias = "tuple[tuple[str, bytes, tuple[int, ...]], ...]"
"""Events in order, cut by phase: (phase, a code of _CODE for each, the number of the birth)."""


class Segment(Struct, frozen=True):
    """A tape at dimensions."""

    order: Order
    sizes: tuple[int, ...]
    """Bytes of every birth, by its number; so for `parts` (indices of ALL_PARTS) and `marks`."""
    parts: tuple[int, ...]
    marks: tuple[str, ...]

    @classmethod
    def of(cls, tape: Tape, dims: Mapping[str, int], outputs_kept: bool = False, phase: str | None = None) -> Segment:
        """Expand a tape. `outputs_kept`: what the model returned stays until the end of the step. `phase`: one name for
        all of it."""
        tape = tape.at(dims)
        order, births, parts, marks = _shape(tape, dims, outputs_kept)
        if phase is not None:
            order = tuple((phase, kinds, numbers) for _, kinds, numbers in order)
        values = tape.values(dims)
        return cls(order, tuple([values[size] for size in births]), parts, marks)

    @classmethod
    def listed(cls, events: Sequence[Event]) -> Segment:
        """A segment from its events one by one."""
        births = {birth: (nbytes, part, mark) for kind, birth, nbytes, part, _, mark in events if kind == "b"}
        rows = [births.get(number, (0, 0, "")) for number in range(max(births, default=-1) + 1)]
        order = _ordered((phase, kind, birth) for kind, birth, _, _, phase, _ in events)
        return cls(order, tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events one by one."""
        return tuple(
            ("bd+"[kind], birth, self.sizes[birth], self.parts[birth], phase, self.marks[birth])
            for phase, kinds, births in self.order
            for kind, birth in zip(kinds, births, strict=True)
        )


Event: TypeAlias = "tuple[str, int, int, int, str, str]"
"""(kind as in `expand.expand`, birth, bytes, part, phase, mark)."""
Shape: TypeAlias = "tuple[Order, tuple[int, ...], tuple[int, ...], tuple[str, ...]]"
_SHAPES: BoundedCache[Shape] = BoundedCache(64)


def _shape(tape: Tape, dims: Mapping[str, int], outputs_kept: bool) -> Shape:
    """Order, sizes (indices of the tape's), parts and marks: the same at every batch, and at most lengths."""
    depths = tuple(dims[depth] for depth in tape.depths.values())
    key = (depths, aligned(tape.sizes, dims), outputs_kept)
    return _SHAPES.get(tape, key, lambda: _shaped(tape, dims, outputs_kept))


def _shaped(tape: Tape, dims: Mapping[str, int], outputs_kept: bool) -> Shape:
    events = events_at(tape, dims)
    death = {birth: item for kind, birth, _, _, item in events if kind == "d"}
    phases = [item.phase for item in tape.items]
    last = max((event[1] for event in events), default=-1) + 1
    sizes, parts, marks = [0] * last, [0] * last, [""] * last
    known: dict[tuple[int, str, int, int], int] = {}
    ordered = []
    for kind, birth, size, mark, item in events:
        if kind == "b":
            dies = death.get(birth, -1)
            like = (size, mark, item, dies)
            if like not in known:
                ends = phases[dies] if dies >= 0 else "end"
                known[like] = _FROM_LAW[part_of(tape.sizes[size], mark, phases[item], ends)]
            sizes[birth], parts[birth], marks[birth] = size, known[like], mark
        elif kind == "d" and outputs_kept and KEPT & {*marks[birth]}:
            continue
        ordered.append((phases[item].rstrip("~"), kind, birth))
    returned = max(
        (at for at, (_, kind, birth) in enumerate(ordered) if kind == "b" and "r" in marks[birth]), default=0
    )
    if returned:
        ordered[returned + 1 :] = [(RETURNED if p == "forward" else p, k, b) for p, k, b in ordered[returned + 1 :]]
    return _ordered(ordered), tuple(sizes), tuple(parts), tuple(marks)


def _ordered(events: Iterable[tuple[str, str, int]]) -> Order:
    """(phase, kind, birth) by phases."""
    order: list[tuple[str, bytearray, list[int]]] = []
    for phase, kind, birth in events:
        if not order or order[-1][0] != phase:
            order.append((phase, bytearray(), []))
        order[-1][1].append(_CODE[kind])
        order[-1][2].append(birth)
    return tuple((phase, bytes(kinds), tuple(numbers)) for phase, kinds, numbers in order)


class Phase(Struct, frozen=True):
    """A phase other than training: its peak by the law, and its tape at `dims`. `kept`: bytes of the logits
    accumulated over the evaluation set; `kept_again`: of the copy that joining the last batch to them makes."""

    name: str
    peak: Peak
    tape: Tape
    dims: Mapping[str, int]
    kept: tuple[int, ...] = ()
    kept_again: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    """Weights that are there for this phase alone, in bytes."""
    notes: tuple[str, ...] = ()

    def segment(self) -> Segment:
        """The events, expanded (a search space needs the peak alone)."""
        return Segment.of(self.tape, self.dims, phase=self.name)


class Recording(Protocol):
    """The record of one event of a replay: bytes, `parts` in the order of ALL_PARTS."""

    def note(self, phase: str, allocated: int, reserved: int, parts: Sequence[int]) -> None: ...


class Replay:
    """The allocations of one device, in order."""

    def __init__(self, allocator: CachingAllocator, recorder: Recording | None = None) -> None:
        self.allocator = allocator
        self.recorder = recorder
        self.live = [0] * len(ALL_PARTS)
        self.phases: dict[str, int] = {}
        self.peak = 0
        self.peak_parts = list(self.live)
        self.peak_phase = "load"
        self._gradients: list[tuple[MemoryBlock, int]] = []
        self._outputs: list[tuple[MemoryBlock, int, str]] = []

    def hold(self, sizes: Sequence[int], part: str, phase: str) -> list[tuple[MemoryBlock, int]]:
        """Allocate storages that stay."""
        index = _PART[part]
        held = []
        for size in sizes:
            block = self.allocator.malloc(size)
            self.live[index] += block.size
            held.append((block, index))
        self._note(phase)
        return held

    def drop(self, held: Sequence[tuple[MemoryBlock, int]]) -> None:
        """Free storages again."""
        for block, index in held:
            self.live[index] -= block.size
            self.allocator.free(block)

    def _note(self, phase: str) -> None:
        allocated = self.allocator.allocated
        if self.recorder is not None:
            self.recorder.note(phase, allocated, self.allocator.reserved, self.live)
        if allocated > self.phases.get(phase, 0):
            self._risen(phase, allocated)

    def _risen(self, phase: str, allocated: int) -> None:
        """More than before is allocated in a phase."""
        self.phases[phase] = allocated
        if allocated > self.peak:
            self.peak, self.peak_phase, self.peak_parts = allocated, phase, list(self.live)

    def run(self, segment: Segment, accumulated: bool = False, benchmarking: bool = False) -> None:
        """One step. `accumulated`: gradients exist already, so new ones die when they are added. `benchmarking`: cuDNN
        tries its algorithms before each convolution and gives the cache back. Outputs of the step before
        that are still held are freed when the model returns again."""
        blocks: list[MemoryBlock | None] = [None] * len(segment.sizes)
        for phase, kinds, numbers in segment.order:
            if self._outputs and phase in (RETURNED, "backward"):
                self.forget_outputs("o" if phase == RETURNED else KEPT)
            phase = "forward" if phase == RETURNED else phase
            run = self._watched if self.recorder is not None or benchmarking else self._stretch
            run(segment, phase, kinds, numbers, blocks, accumulated, benchmarking)
        for birth, block in enumerate(blocks):
            if block is None:
                continue
            part = segment.parts[birth]
            if part == _PART["gradients"]:
                self._gradients.append((block, part))
            elif KEPT & {*segment.marks[birth]} and block.size:
                self._outputs.append((block, part, segment.marks[birth]))
            else:  # storages that a phase leaves
                self.live[part] -= block.size
                self.allocator.free(block)

    def _stretch(
        self,
        segment: Segment,
        phase: str,
        kinds: bytes,
        numbers: tuple[int, ...],
        blocks: list[MemoryBlock | None],
        accumulated: bool,
        _: bool,
    ) -> None:
        """Events of one phase without a watcher: the live storages of a peak are recorded when one dies after it."""
        allocator, live, sizes, parts = self.allocator, self.live, segment.sizes, segment.parts
        malloc, free = allocator.malloc, allocator.free
        top, risen = self.phases.get(phase, 0), False
        for kind, birth in zip(kinds, numbers, strict=True):
            if not kind:
                block = blocks[birth] = malloc(sizes[birth])
                live[parts[birth]] += block.size
                if allocator.allocated > top:
                    top, risen = allocator.allocated, True
            elif kind == 1 or accumulated:
                gone = blocks[birth]
                if gone is not None:
                    if risen:
                        self._risen(phase, top)
                        risen = False
                    blocks[birth] = None
                    live[parts[birth]] -= gone.size
                    free(gone)
        if risen:
            self._risen(phase, top)

    def _watched(
        self,
        segment: Segment,
        phase: str,
        kinds: bytes,
        numbers: tuple[int, ...],
        blocks: list[MemoryBlock | None],
        accumulated: bool,
        benchmarking: bool,
    ) -> None:
        """The same, noted event by event."""
        for kind, birth in zip(kinds, numbers, strict=True):
            part = segment.parts[birth]
            if not kind:
                if benchmarking and WORKSPACE in segment.marks[birth]:
                    self.allocator.empty_cache()
                block = blocks[birth] = self.allocator.malloc(segment.sizes[birth])
                self.live[part] += block.size
                self._note(phase)
            elif kind == 1 or accumulated:
                gone = blocks[birth]
                if gone is not None:
                    blocks[birth] = None
                    self.live[part] -= gone.size
                    self.allocator.free(gone)
                    if self.recorder is not None and phase != "end":
                        self._note(phase)

    def optimizer_step(self, step: Step, first: bool) -> None:
        """States in the first one, then temporaries."""
        if first:
            self.hold(step.states, "optimizer", "optimizer")
        for wave in step.waves:
            self.drop(self.hold(wave, "temporary", "optimizer"))
        self._note("optimizer")

    def forget_outputs(self, marks: Iterable[str] = KEPT) -> None:
        """Frees the model's outputs and the loss: their names are assigned again, or go out of scope."""
        self.drop([(block, part) for block, part, mark in self._outputs if {*marks} & {*mark}])
        self._outputs = [kept for kept in self._outputs if not {*marks} & {*kept[2]}]

    def zero_grad(self) -> None:
        """set_to_none=True."""
        self.drop(self._gradients)
        self._gradients = []

    def result(self) -> Replayed:
        parts = dict(zip(ALL_PARTS, self.peak_parts, strict=True))
        return Replayed(
            self.allocator.peak_allocated,
            self.allocator.peak_reserved,
            parts,
            self.peak_phase,
            dict(self.phases),
            self.allocator.overflow,
        )
