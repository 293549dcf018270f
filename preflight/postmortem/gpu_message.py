"""Reads one GPU out-of-memory message: which process used the memory, and which limit was hit."""

from __future__ import annotations

from preflight.postmortem.diagnosis import Limit
from preflight.postmortem.evidence import GpuOom

ROUNDING = round(0.005 * 2**30)
"""A message shows hundredths of a GiB."""

LOOSE = 0.074
"""Share of the GPU that is reserved but unused, from which on it counts as fragmentation: three quarters of 60 public
messages show less (median 1 %, upper quartile 7.4 %)."""


def in_use(one: GpuOom) -> int | None:
    """Bytes in use on the GPU by all processes together."""
    return one.capacity - one.free if one.capacity is not None and one.free is not None else None


def own(one: GpuOom) -> int | None:
    """Bytes of this process, as the driver counts them; None: the message does not tell.

    In a container this process is one of the "Process N": the smallest one that can hold what PyTorch reserved.
    """
    if one.own is not None:
        return one.own
    if one.reserved is None:
        return None
    able = sorted(size for _, size in one.others if size + ROUNDING >= one.reserved)
    return able[0] if able else None


def elsewhere(one: GpuOom) -> int | None:
    """Bytes of other processes; None: the message does not tell.

    Messages before 2.1 name no process. Memory that is neither free nor reserved belongs to other processes and to the
    context of this one, so the largest known context is subtracted.
    """
    used, mine = in_use(one), own(one)
    if one.others and mine is not None:
        return max(0, sum(size for _, size in one.others) - (mine if one.own is None else 0))
    if mine is not None:
        return max(0, used - mine - ROUNDING) if used is not None else None
    if used is None or one.reserved is None or one.others:
        return None
    return max(0, used - one.reserved - largest_context())


def largest_context() -> int:
    from preflight.machines.gpus import gpus

    return max(gpu.context[2] + gpu.nccl[2] for gpu in gpus())


def limit_of(one: GpuOom) -> Limit:
    """The limit that was hit. Other processes are the reason if the request would have fitted without them."""
    others, tried = elsewhere(one), one.tried
    if tried is None:
        return "gpu"
    if one.allowed is not None and (one.reserved or 0) + tried > one.allowed and (one.free or 0) >= tried:
        return "gpu-fraction"
    if others and others + (one.free or 0) >= tried and others > largest_context():
        return "gpu-shared"  # with less, these processes only have a context
    if one.reserved is not None and one.allocated is not None:
        loose = one.reserved - one.allocated
        if loose + (one.free or 0) >= tried and loose > LOOSE * (one.capacity or one.reserved):
            return "gpu-fragmented"
    return "gpu"
