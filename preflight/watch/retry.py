"""Which setting is lowered before a command starts again, by the limit that was hit and the phase."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.vocabulary.job import Job

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
EXPANDABLE = "expandable_segments:True"
EVALUATION = ("validation", "generation")


@dataclass(frozen=True)
class Remedy:
    """A Job field with its new value, or variables of the environment."""

    setting: str = ""
    value: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def remedy(limit: str, phase: str, job: Job | None) -> Remedy | str:
    """What would help; words why nothing does."""
    if limit == "gpu-fragmented" and ALLOCATOR not in os.environ:
        return Remedy(environment={ALLOCATOR: EXPANDABLE})
    if limit == "gpu-shared":
        return "other processes hold the GPU, and no setting of this one gives it back"
    if job is None:
        return "the job of the command is not known"
    if limit.startswith("gpu"):
        if phase in ("load", "save"):
            return f"it died in {phase}, which another batch does not change"
        name = "validation.batch_size" if phase in EVALUATION else "train.batch_size"
        return _half(job, name)
    if limit in ("cgroup", "node", "killed", "refused", "shm"):
        return _half(job, "data.workers")
    return f"no setting helps against this limit ({limit})"


def _half(job: Job, name: str) -> Remedy | str:
    value = job.get(name)
    if not isinstance(value, int):
        return f"{name} is not known"
    if value < 2:
        return f"{name} is {value} already"
    return Remedy(name, value // 2)
