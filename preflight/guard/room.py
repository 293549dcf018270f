"""What a process may take of the GPU that is here, or of the card in small, before anything is loaded.

Nothing here imports torch: a program without it has no GPU that could be asked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .laws import Need, need_of


def room(need: Need) -> int | None:
    """Process bytes that a job may have: of the GPU that was stated or is here, or of the card in small. A memory
    fraction limits what the allocator reserves, and the context comes on top."""
    torch, whole = sys.modules.get("torch"), need.capacity
    if torch is None:
        return need.capacity
    from . import small_card
    from .counters import fraction_of

    card = small_card.current()
    if card is not None:
        return card.budget if need.capacity is None else need.capacity
    if not torch.cuda.is_available():
        return need.capacity
    if need.capacity is None or torch.cuda.is_initialized():
        whole = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    found, fraction = need.capacity or whole, fraction_of(torch)
    return (
        found if found is None or whole is None or fraction >= 1.0 else min(found, int(fraction * whole) + need.context)
    )


def at(job: Mapping[str, Any] | None, size: int | None, accumulation: int) -> Mapping[str, Any] | None:
    """The job with another batch."""
    if job is None or size is None:
        return job
    given = {"batch_size": size, "grad_accum": accumulation}
    if isinstance(job.get("train"), Mapping):
        return {**job, "train": {**job["train"], **given}}
    return {**job, **{f"train.{name}": value for name, value in given.items()}}


def stated(job: Any) -> Any:
    """A Job of preflight.api as the dict that it was made of; a dict as it is."""
    dump: Any = getattr(job, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if dump is not None else job


def largest_batch(job: Any, start: int, *, gpu: str | None = None, floor: int = 1) -> int:
    """`start`, halved until its job is expected to fit: where a search for the batch may begin. `job`: a Job, or a dict
    of one. `start` itself where the need of the job or the GPU is not known."""
    size, accumulation = start, 1
    while True:
        need = need_of(at(stated(job), size, accumulation) or {}, gpu)
        capacity = room(need) if need is not None else None
        if need is None or capacity is None or need.expected <= capacity or size % 2 or size // 2 < floor:
            return size
        size, accumulation = size // 2, accumulation * 2
