"""Models that are neither transformers with a task of their own nor image classifiers: where each kind is resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from preflight.memory.device import denoisers
from preflight.memory.device.sparse import Depth
from preflight.values import Unknown

if TYPE_CHECKING:
    from preflight.job import Job
    from preflight.machines.model import Gpu
    from preflight.memory.device.estimate import Ready
    from preflight.memory.device.resolve import Resolved

FREE = ("b", "u", "r", "s")
"""Lengths that a shipped law of these models is a function of."""
Resolver: TypeAlias = "Callable[[Job, str, str, Mapping[str, Any], Gpu | None], Resolved | Unknown]"


def resolver(architecture: str) -> Resolver | None:
    """What resolves a job of this architecture; None for any that transformers' tasks cover."""
    return denoisers.resolve if denoisers.knows(architecture) else None


def is_convolutional(resolved: Resolved) -> bool:
    """Whether convolutions, whose workspaces vary, are much of the model."""
    return resolved.model.get("architecture") in denoisers.CONVOLUTIONAL


def depths(resolved: Resolved) -> tuple[Depth, ...]:
    """The stacks that a model's law is a function of."""
    return denoisers.depths_of(str(resolved.model["architecture"]), resolved.model["config"])


def with_companions(ready: Ready) -> Ready | Unknown:
    """With the frozen models that lie on the GPU beside the one that is trained: what is expected, and in `others` what
    is possible as well."""
    job, resolved = ready.job, ready.resolved
    if resolved.model.get("kind") != denoisers.KIND:
        return ready
    lacking = denoisers.unknown_companion(job, resolved)
    if lacking is not None:
        return lacking
    expected, *more = denoisers.companions(job, resolved)
    possible = tuple(_beside(ready, one) for one in more)
    found = _beside(ready, expected)
    peers = tuple(_beside(one, expected) for one in ready.peers)
    return replace(found, peers=peers, others=(*ready.others, *possible), notes=(*ready.notes, *_notes(job, expected)))


def _beside(ready: Ready, companions: Sequence[denoisers.Companion]) -> Ready:
    return replace(ready, rank=replace(ready.rank, held=(*ready.rank.held, *companions)))


def _notes(job: Job, expected: Sequence[denoisers.Companion]) -> tuple[str, ...]:
    if job.train.companions is not None:
        return ()
    names = ", ".join(one.name for one in expected) or "nothing"
    return (f"beside the denoiser lies {names} of its pipeline, as diffusers' example scripts have it: state "
            "train.companions",)  # fmt: skip
