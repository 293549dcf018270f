"""Before a command starts again: which setting is lowered, by the limit that was hit and the phase, and from which
checkpoint it goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from preflight.vocabulary.job import Job
from preflight.watch.checkpoints import Checkpoint

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
EXPANDABLE = "expandable_segments:True"
EVALUATION = ("validation", "generation")


class Remedy(Struct, frozen=True):
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


class GoingOn(Struct, frozen=True):
    """Where another start begins. `command` is None: it is not started, and `text` says why."""

    command: tuple[str, ...] | None
    text: str
    checkpoint: Checkpoint | None = None


def going_on(
    words: tuple[str, ...],
    found: Sequence[Checkpoint],
    resumes: bool,
    other_batch: bool,
    transformers: str,
    named: Callable[[str], tuple[str, ...] | None],
) -> GoingOn:
    """From the newest whole checkpoint that this run wrote, where the program takes it and it stays the same run; else
    from the beginning.

    `found`: the newest first. `resumes`: the program goes on from a checkpoint by itself. `named`: the command with a
    checkpoint on its line, if it takes one there.
    """
    whole = next((one for one in found if one.whole), None)
    fits = whole is not None and (not other_batch or whole.takes_other_batch(transformers))
    given = named(whole.path) if whole is not None and fits else None
    if given is not None and whole is not None:
        return GoingOn(given, f"from {Path(whole.path).name}", whole)
    if resumes:
        if other_batch and not fits:
            return GoingOn(None, "it resumes by itself, and its checkpoint may count batches of the old size")
        if found and not found[0].whole:
            return GoingOn(None, f"it resumes by itself, and {Path(found[0].path).name} is not whole")
        return GoingOn(words, "it resumes by itself", whole)
    if whole is None:
        why = "no checkpoint is whole" if found else "no checkpoint was written"
    elif not fits:
        why = f"{Path(whole.path).name} may count batches of the old size"
    else:
        why = "the command takes no checkpoint that is known"
    return GoingOn(words, f"from the beginning, since {why}")
