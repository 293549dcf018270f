"""What the rules about SLURM share: what a request gets, where it is written, the memory that it may ask for."""

from __future__ import annotations

from preflight.api import GIB, Allocation, Case, Change, Origin, Request, resolve_request


def allocation_of(case: Case) -> Allocation | None:
    """What the request gets on the case's cluster; None where nothing is requested."""
    request = case.study.request
    return None if request is None else resolve_request(request, case.cluster)


def place(request: Request, *names: str) -> Origin | None:
    """Where the first of the request's fields that is given stands; else where a directive could be added."""
    for name in names:
        if name in request.origins:
            return request.origins[name]
    return request.directives[-1][2] if request.directives else request.insert_at


def whole_gib(size: int) -> int:
    """Bytes rounded up to whole GiB, as a person would write them."""
    return -(-size // GIB) * GIB


def memory_change(case: Case, need: int) -> tuple[Change, int] | None:
    """The change that gives a node `need` bytes (all it has, where that is less), and the bytes it then gives."""
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
    """The memory that a job may be given on its node, None where nobody said what node it is."""
    known = [case.node.memory if case.node is not None else None, case.job.machine.node_memory]
    request = case.study.request
    asked = request.partition if request is not None else None
    for partition in case.cluster.partitions if case.cluster is not None else ():
        if partition.name == asked or (asked is None and partition.default):
            known.append(partition.max_memory_per_node)
    limits = [size for size in known if size is not None]
    return min(limits) if limits else None
