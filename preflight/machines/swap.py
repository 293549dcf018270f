"""How much of a node's swap a SLURM job may use beside its memory."""

from __future__ import annotations

from preflight.machines.model import Cgroup


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
