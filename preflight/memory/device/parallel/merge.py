"""Estimates of the layouts that a job may have, as one."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.memory.estimate import DeviceEstimate, Interval
from preflight.records import replace


def fullest(ranks: Sequence[DeviceEstimate], others: Sequence[DeviceEstimate]) -> DeviceEstimate:
    """The fullest rank's estimate, its intervals widened by what the job may be as well, with the smallest of the
    largest batches."""
    found = max(ranks, key=lambda one: one.process.expected)
    every = [*ranks, *others]
    process = _over(found.process, [one.process for one in others])
    batches = [one.largest_batch_size for one in every if one.largest_batch_size is not None]
    return replace(
        found,
        requested=_over(found.requested, [one.requested for one in others]),
        allocated=_over(found.allocated, [one.allocated for one in others]),
        reserved=_over(found.reserved, [one.reserved for one in others]),
        process=process,
        verdict=process.verdict(found.capacity),
        largest_batch_size=min(batches) if batches else None,
    )


def _over(one: Interval, others: Sequence[Interval]) -> Interval:
    return Interval(min([one.low, *(o.low for o in others)]), one.expected, max([one.high, *(o.high for o in others)]))
