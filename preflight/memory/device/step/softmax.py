"""Eager attention before torch 1.11: softmax kept its input for backward, in addition to its result.

Until then the backward of softmax was declared with both (tools/autograd/derivatives.yaml, `_softmax_backward_data`:
grad, result, dim, self), though it reads the result alone; 1.11 keeps the input's dtype instead. Laws are traced with
today's torch, so the result of each layer's softmax counts twice here: its input lives exactly as long.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.step.effect import Effect
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.estimates import ALL_PARTS
from preflight.vocabulary.job import Job

FREES_INPUT = (1, 11)
"""The first release whose softmax does not keep its input."""
_ACTIVATIONS = ALL_PARTS.index("activations")


class KeptScores(Effect):
    """Attention scores that are kept in addition to the result of softmax."""

    def step(self, prepared: PreparedJob, segment: Segment, dims: Mapping[str, int]) -> Segment:
        return doubled(segment, dims) if keeps_input(prepared.job, prepared.resolved) else segment

    def raised(self, prepared: PreparedJob, peak: int) -> int:
        if not keeps_input(prepared.job, prepared.resolved):
            return peak
        segment = Segment.of(prepared.laws.made.tape, prepared.dims)
        return peak + sum(segment.sizes[birth] for birth in inputs(segment, prepared.dims))


def keeps_input(job: Job, resolved: Resolved) -> bool:
    """Whether the stated torch keeps the scores as well."""
    numbers = job.software.get("torch", "").partition("+")[0].split(".")[:2]
    if len(numbers) < 2 or not all(part.isdecimal() for part in numbers):
        return False
    return tuple(map(int, numbers)) < FREES_INPUT and resolved.setup.attention in ("eager", "math")


def inputs(segment: Segment, dims: Mapping[str, int]) -> tuple[int, ...]:
    """Births of what each layer's softmax returns and keeps: the first storage of the scores' size in it that is alive
    when backward begins. Empty where layers are checkpointed, or the scores' size is not known."""
    if not {"b", "a", "s", "L"} <= set(dims):
        return ()
    scores = dims["b"] * dims["a"] * dims["s"] ** 2
    for width in (4, 2):
        kept = [birth for birth in _alive(segment) if segment.sizes[birth] == width * scores]
        if kept and len(kept) % dims["L"] == 0:
            return tuple(kept[:: len(kept) // dims["L"]])
    return ()


def doubled(segment: Segment, dims: Mapping[str, int]) -> Segment:
    """A step in which the scores live at the same time as the result of softmax."""
    sizes = list(segment.sizes)
    for birth in inputs(segment, dims):
        sizes[birth] *= 2
    return replace(segment, sizes=tuple(sizes))


def _alive(segment: Segment) -> list[int]:
    """Births of forward that are alive when backward begins, in order."""
    alive: dict[int, None] = {}
    for phase, kinds, numbers in segment.order:
        if phase == "backward":
            break
        for kind, birth in zip(kinds, numbers, strict=True):
            if not kind and segment.parts[birth] == _ACTIVATIONS:
                alive[birth] = None
            elif kind == 1:
                alive.pop(birth, None)
    return list(alive)
