"""Models that are neither transformers with a task of their own nor image classifiers: where each kind is resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from preflight.memory.device.fit.few_traces import Depth
from preflight.memory.device.workloads import (
    denoisers,
    detectors,
    embeddings,
    perception,
    segmenters,
    speech,
    vision_language,
    yolo,
)
from preflight.vocabulary.values import Unknown

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

FREE = ("b", "u", "r", "w", "t", "V", "k", "o")
"""Lengths that a shipped law of these models is a function of."""
Resolver: TypeAlias = "Callable[[Job, str, str, Mapping[str, Any], Gpu | None], Resolved | Unknown]"


def resolver(architecture: str, task: str = "") -> Resolver | None:
    """What resolves a job of this architecture or import target; None for any that others see to."""
    if detectors.knows(architecture):
        return detectors.resolve
    if yolo.knows(architecture):
        return yolo.resolve
    if denoisers.knows(architecture):
        return denoisers.resolve
    if vision_language.knows(architecture):
        return vision_language.resolve
    if segmenters.knows(architecture):
        return segmenters.resolve
    if embeddings.knows(architecture, task):
        return embeddings.resolve
    if perception.knows(architecture, task):
        return perception.resolve
    return speech.resolve if speech.knows(architecture) else None


def target_of(name: str) -> str | None:
    """The target that a name alone means, of libraries of detectors; None for any other."""
    return name if detectors.knows(name) else yolo.spelled(name)


def is_convolutional(resolved: Resolved) -> bool:
    """Whether convolutions, whose workspaces vary, are much of the model."""
    if resolved.model.get("kind") == perception.KIND:
        return perception.is_convolutional(resolved.model)
    kinds = (*denoisers.CONVOLUTIONAL, *speech.ARCHITECTURES, detectors.KIND, yolo.KIND, segmenters.KIND)
    return resolved.model.get("architecture") in kinds


def wider(resolved: Resolved) -> tuple[float, float]:
    """What widens an interval below and above, as fractions: of stand-ins."""
    return detectors.WIDER if resolved.model.get("kind") in (detectors.KIND, yolo.KIND) else (0.0, 0.0)


def request(resolved: Resolved, kind: str) -> dict[str, Any]:
    """What the tracer is asked for, but for the point. Some make something in their first step alone."""
    warm_up = resolved.model["kind"] in (detectors.KIND, yolo.KIND, perception.KIND)
    return {"model": resolved.model, "setup": resolved.setup, "kind": kind, "warm_up": warm_up}


def depths(resolved: Resolved) -> tuple[Depth, ...]:
    """The stacks that a model's law is a function of."""
    if resolved.model["kind"] == embeddings.KIND:
        return embeddings.depths_of(str(resolved.model["architecture"]), resolved.model["config"])
    if resolved.model["kind"] in (detectors.KIND, yolo.KIND):
        return ()
    if resolved.model["kind"] == speech.KIND:
        return speech.depths_of(resolved.model["config"])
    return denoisers.depths_of(str(resolved.model["architecture"]), resolved.model["config"])


def with_possible(ready: Ready, gpu: Gpu | None) -> Ready | Unknown:
    """With what lies on the GPU beside a denoiser, and in `others` what the job may be where it does not say."""
    if ready.resolved.model.get("kind") == denoisers.KIND:
        return _with_companions(ready)
    if ready.resolved.model.get("kind") == perception.KIND:
        return perception.with_possible(ready, gpu)
    if ready.resolved.model.get("kind") == embeddings.KIND:
        return embeddings.with_possible(ready, gpu)
    if ready.resolved.model.get("kind") == speech.KIND and "frozen" not in ready.job.train.model_fields_set:
        return _with_trained_convolutions(ready, gpu)
    if ready.resolved.model.get("kind") == yolo.KIND:
        return yolo.with_possible(ready, gpu)
    if ready.resolved.model.get("kind") == vision_language.KIND:
        return vision_language.with_possible(ready, gpu)
    if ready.resolved.model.get("kind") == detectors.KIND:
        return replace(ready, notes=(*ready.notes, f"{ready.resolved.name} is reckoned as {detectors.STAND_IN}"))
    return ready


def _with_companions(ready: Ready) -> Ready | Unknown:
    job, resolved = ready.job, ready.resolved
    lacking = denoisers.unknown_companion(job, resolved)
    if lacking is not None:
        return lacking
    expected, *more = denoisers.companions(job, resolved)
    possible = tuple(_beside(ready, one) for one in more)
    found = _beside(ready, expected)
    peers = tuple(_beside(one, expected) for one in ready.peers)
    return replace(found, peers=peers, others=(*ready.others, *possible), notes=(*ready.notes, *_notes(job, expected)))


def _with_trained_convolutions(ready: Ready, gpu: Gpu | None) -> Ready:
    from preflight.memory.device.prepare import prepare

    job = ready.job
    trained = prepare(job.model_copy(update={"train": job.train.model_copy(update={"frozen": []})}), gpu)
    possible = () if isinstance(trained, Unknown) else (trained,)
    note = "convolutions are taken as frozen, as transformers' example scripts have it: state train.frozen"
    return replace(ready, others=(*ready.others, *possible), notes=(*ready.notes, note))


def _beside(ready: Ready, companions: Sequence[denoisers.Companion]) -> Ready:
    return replace(ready, rank=replace(ready.rank, held=(*ready.rank.held, *companions)))


def _notes(job: Job, expected: Sequence[denoisers.Companion]) -> tuple[str, ...]:
    if job.train.companions is not None:
        return ()
    names = ", ".join(one.name for one in expected) or "nothing"
    return (f"on the GPU beside the denoiser: {names}, as diffusers' example scripts have it; state train.companions",)
