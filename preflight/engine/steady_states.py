"""What a model keeps on the GPU from its first step on, whatever the batch."""

from __future__ import annotations

from collections.abc import Callable

from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.job import Job

STATES = ("weights", "gradients", "optimizer")

SHORT = 16
"""Tokens whose activations are nothing beside any model's states."""


def states(job: Job, device: DeviceEstimate, estimate: Callable[[Job], Estimates]) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer states when all three are there: what no smaller batch reduces.

    The peak of a large batch lies where gradients have only begun; that of the smallest one is the optimizer step.
    """
    found = [device.breakdown]
    if job.train.batch_size is not None and not device.lower_bound:
        smallest = possible(job, _smallest(job))
        least = estimate(smallest).device if smallest is not None else None
        found += [least.breakdown] if least is not None else []
    each = [{part: breakdown.get(part, 0) for part in STATES} for breakdown in found]
    for parts in each:  # a second copy, as tied weights have for a moment, is not kept
        parts["gradients"] = min(parts["gradients"], parts["weights"])
    return max(each, key=lambda parts: sum(parts.values()))


def _smallest(job: Job) -> dict[str, object]:
    """One short sample, never evaluated: nothing is at the peak but the states and what the optimizer step needs."""
    short = {"train.seq_len": min(job.train.seq_len, SHORT)} if job.train.seq_len is not None else {}
    silent = {"validation.batch_size": None, "validation.samples": None, "validation.accumulates_logits": False}
    return {"train.batch_size": 1, **short, **silent}
