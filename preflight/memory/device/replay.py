"""Replaying a job through the allocator: two whole iterations, then validation, then generation.

The second iteration is the one that counts: it has optimizer states, and the blocks that the first one left behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from preflight.memory.device.allocator import Block, CachingAllocator
from preflight.memory.device.convolution import WORKSPACE
from preflight.memory.device.law import PARTS, part_of
from preflight.memory.device.optimizers import Step
from preflight.memory.device.tape import Tape, expand

ALL_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")
_PART = {name: index for index, name in enumerate(ALL_PARTS)}
_FROM_LAW = tuple(_PART[name] for name in PARTS)


@dataclass
class Replayed:
    """Peaks in bytes; `parts` (keys: ALL_PARTS): what was allocated at the peak; `phases`: allocated peak of each."""

    allocated: int
    reserved: int
    parts: dict[str, int]
    phase: str
    phases: dict[str, int] = field(default_factory=dict)
    overflow: bool = False


@dataclass(frozen=True)
class Segment:
    """A tape at dimensions: (kind, birth, bytes, part, phase, mark) for every event."""

    events: tuple[tuple[str, int, int, int, str, str], ...]

    @classmethod
    def of(cls, tape: Tape, dims: Mapping[str, int], outputs_kept: bool = False, gradients: float = 1.0) -> Segment:
        """Expand a tape. `outputs_kept`: what the model returned stays until the end of the step. `gradients`: the
        share of each gradient that stays on this GPU (the rest is reduced to other ranks as soon as it is there)."""
        raw = expand(tape, dims)
        values = tape.values(dims)
        death = {birth: tape.items[item].phase for kind, birth, _, _, item in raw if kind == "d"}
        made: dict[int, tuple[int, int, str]] = {}
        events = []
        for kind, birth, size, mark, item in raw:
            phase = tape.items[item].phase.rstrip("~")
            if kind == "b":
                law_part = part_of(tape.sizes[size], mark, tape.items[item].phase, death.get(birth, "end"))
                nbytes = round(values[size] * gradients) if law_part == 0 else values[size]
                made[birth] = (nbytes, _FROM_LAW[law_part], mark)
            elif kind == "d" and outputs_kept and "o" in made[birth][2]:
                continue
            nbytes, part, made_mark = made[birth]
            events.append((kind, birth, nbytes, part, phase, made_mark))
        return cls(tuple(events))


class Recording(Protocol):
    """What is told of every event of a replay; bytes, `parts` in the order of ALL_PARTS."""

    def note(self, phase: str, allocated: int, reserved: int, parts: Sequence[int]) -> None: ...


class Replay:
    """One device's history."""

    def __init__(self, allocator: CachingAllocator, recorder: Recording | None = None) -> None:
        self.allocator = allocator
        self.recorder = recorder
        self.live = [0] * len(ALL_PARTS)
        self.phases: dict[str, int] = {}
        self.peak = 0
        self.peak_parts = list(self.live)
        self.peak_phase = "load"
        self._gradients: list[tuple[Block, int]] = []
        self._outputs: list[tuple[Block, int]] = []

    def hold(self, sizes: Sequence[int], part: str, phase: str) -> list[tuple[Block, int]]:
        """Allocate storages that stay."""
        index = _PART[part]
        held = []
        for size in sizes:
            block = self.allocator.malloc(size)
            self.live[index] += block.size
            held.append((block, index))
        self._note(phase)
        return held

    def drop(self, held: Sequence[tuple[Block, int]]) -> None:
        """Free storages again."""
        for block, index in held:
            self.live[index] -= block.size
            self.allocator.free(block)

    def _note(self, phase: str) -> None:
        allocated = self.allocator.allocated
        if self.recorder is not None:
            self.recorder.note(phase, allocated, self.allocator.reserved, self.live)
        if allocated > self.phases.get(phase, 0):
            self.phases[phase] = allocated
            if allocated > self.peak:
                self.peak, self.peak_phase, self.peak_parts = allocated, phase, list(self.live)

    def run(self, segment: Segment, accumulated: bool = False, benchmarking: bool = False) -> None:
        """One step. `accumulated`: gradients exist already, so new ones die when they are added. `benchmarking`: cuDNN
        tries its algorithms before each convolution and gives the cache back. What the model returned before, if it is
        still held, goes when it returns anew."""
        malloc, free, live = self.allocator.malloc, self.allocator.free, self.live
        blocks: dict[int, Block] = {}
        for kind, birth, nbytes, part, phase, mark in segment.events:
            if self._outputs and phase == "backward":
                self.forget_outputs()
            if kind == "b":
                if benchmarking and WORKSPACE in mark:
                    self.allocator.empty_cache()
                block = malloc(nbytes)
                blocks[birth] = block
                live[part] += block.size
                self._note(phase)
            elif kind == "d" or accumulated:
                gone = blocks.pop(birth, None)
                if gone is not None:
                    live[part] -= gone.size
                    free(gone)
                    if self.recorder is not None and phase != "end":
                        self._note(phase)
        made = {birth: (part, mark) for kind, birth, _, part, _, mark in segment.events if kind == "b"}
        for birth, block in blocks.items():
            part, mark = made[birth]
            if part == _PART["gradients"]:
                self._gradients.append((block, part))
            elif "o" in mark and block.size:
                self._outputs.append((block, part))
            else:  # what a phase leaves behind
                live[part] -= block.size
                free(block)

    def optimizer_step(self, step: Step, first: bool) -> None:
        """States in the first one, then temporaries."""
        if first:
            self.hold(step.states, "optimizer", "optimizer")
        for wave in step.waves:
            self.drop(self.hold(wave, "temporary", "optimizer"))
        self._note("optimizer")

    def forget_outputs(self) -> None:
        """The names of what the model returned are bound anew, or go out of scope."""
        self.drop(self._outputs)
        self._outputs = []

    def zero_grad(self) -> None:
        """set_to_none=True."""
        self.drop(self._gradients)
        self._gradients = []

    def result(self) -> Replayed:
        parts = dict(zip(ALL_PARTS, self.peak_parts, strict=True))
        return Replayed(self.allocator.peak_allocated, self.allocator.peak_reserved, parts, self.peak_phase,
                        dict(self.phases), self.allocator.overflow)  # fmt: skip
