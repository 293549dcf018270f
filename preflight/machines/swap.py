"""What a SLURM job is held to: how much of the memory it is given, and of the node's swap beside it."""

from __future__ import annotations

from preflight.vocabulary.machine import Cgroup


def usable_swap(swap: int | None, memory: int | None, cgroup: Cgroup) -> int | None:
    """Bytes of a node's `swap` that a job with `memory` bytes may use; None where nobody said what jobs are held to.

    cgroup.conf(5): with ConstrainSwapSpace a job may swap AllowedSwapSpace per cent of its memory, none by default;
    without it what the node has.
    """
    if swap is None or cgroup.constrain_swap is None:
        return None
    if not cgroup.constrain_swap:
        return swap
    if not cgroup.allowed_swap_percent:
        return 0
    return None if memory is None else min(swap, round(memory * cgroup.allowed_swap_percent / 100))


def usable_memory(given: int, node: int | None, cgroup: Cgroup) -> int:
    """Bytes of the memory that SLURM gives a job on a node that its processes may use.

    cgroup.conf(5), ConstrainRAMSpace: AllowedRAMSpace per cent of what is given, at most MaxRAMPercent per cent of the
    node's. Without it the figures mean nothing.
    """
    if not cgroup.constrain_memory:
        return given
    allowed = round(given * (cgroup.allowed_memory_percent or 100) / 100)
    return allowed if node is None else min(allowed, round(node * (cgroup.max_memory_percent or 100) / 100))
