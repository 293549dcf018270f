"""Shared by the rules about SLURM: the resources of a request, its place, and the memory that it may ask for."""

from __future__ import annotations

from preflight.api import GIB, Allocation, Case, Change, Origin, Request, resolve_request


def allocation_of(case: Case) -> Allocation | None:
    """The resources of the request on the cluster of the case; None without a request."""
    request = case.study.request
    return None if request is None else resolve_request(request, case.cluster)


def place(request: Request, *names: str) -> Origin | None:
    """The place of the first of these fields that the request states; else the place for a new directive."""
    for name in names:
        if name in request.origins:
            return request.origins[name]
    return request.directives[-1][2] if request.directives else request.insert_at


def whole_gib(size: int) -> int:
    """Bytes rounded up to whole GiB, as a person would write them."""
    return -(-size // GIB) * GIB


def memory_change(case: Case, need: int) -> tuple[Change, int] | None:
    """The change that requests `need` bytes per node (at most all that the node has), and the bytes it gives."""
    request, found = case.study.request, allocation_of(case)
    if request is None or found is None:
        return None
    node = node_limit(case)
    memory = whole_gib(need) if node is None else min(whole_gib(need), node // GIB * GIB)
    for name, units in (("memory_per_cpu", found.cpus_per_node), ("memory_per_gpu", found.gpus_per_node)):
        if getattr(request, name) is not None:
            if not units:
                return None
            each = memory // units // 2**20 * 2**20
            return Change(f"request.{name}", each), each * units
    return Change("request.memory", memory), memory


def node_limit(case: Case) -> int | None:
    """The memory that a job can get on its node; None if the node is unknown."""
    known = [case.node.memory if case.node is not None else None, case.job.machine.node_memory]
    request = case.study.request
    asked = request.partition if request is not None else None
    for partition in case.cluster.partitions if case.cluster is not None else ():
        if partition.name == asked or (asked is None and partition.default):
            known.append(partition.max_memory_per_node)
    limits = [size for size in known if size is not None]
    return min(limits) if limits else None
