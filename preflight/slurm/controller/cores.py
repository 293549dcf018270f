"""How many tasks and CPUs of a job one node takes, and the cores that it keeps for them.

Follows _select_cores (src/plugins/select/cons_tres/job_test.c) and gres_select_filter_sock_core
(src/plugins/select/cons_common/gres_select_filter.c).
"""

from __future__ import annotations

from typing import Protocol

from preflight.slurm.controller.hosts import Host, Shape
from preflight.slurm.controller.job import SlurmJob
from preflight.slurm.controller.offer import NO_LIMIT, Available, Details, Offer, Rules


class Searched(Protocol):
    """The search that a node is checked for: the job, and how the cluster counts."""

    job: SlurmJob
    details: Details
    rules: Rules

    @property
    def per_core(self) -> int | None: ...


def select_cores(search: Searched, node: Offer, host: Host) -> int:
    """The CPUs to use on a node, 0 if no task fits (_select_cores). Changes the cores and resources of the offer."""
    job, details, shape = search.job, search.details, host.shape
    if not search.rules.cons_tres:
        return node.cpus
    low, high = _task_range(job, details, search.per_core, shape)
    each = details.cpus_per_task
    if not job.overcommit:
        fitting = node.cpus // each
        if fitting < low:
            high = 0
        elif high == NO_LIMIT or fitting < high:
            high = fitting
    cpus = node.cpus
    if job.gres:
        cpus, high = _gres_cores(search, node, host, cpus, low, high)
    if high == 0:
        return 0
    return cpus


def _task_range(job: SlurmJob, details: Details, per_core: int | None, shape: Shape) -> tuple[int, int]:
    """The fewest and the most tasks that one node takes."""
    if job.ntasks_per_node:
        return job.ntasks_per_node, job.ntasks_per_node
    if job.ntasks_per_socket:
        return job.ntasks_per_socket, job.ntasks_per_socket * shape.sockets
    if per_core:
        return per_core, per_core * shape.total_cores
    if job.ntasks_per_gpu:
        if details.min_nodes == 1:
            return details.num_tasks, details.num_tasks
        if details.min_nodes > 0:
            return details.num_tasks // details.min_nodes, details.num_tasks // details.min_nodes
        return 1, NO_LIMIT
    if details.max_nodes == 1:
        return (details.num_tasks, details.num_tasks) if details.num_tasks else (1, NO_LIMIT)
    if details.num_tasks == 1 or (details.num_tasks and details.num_tasks == details.min_nodes == details.max_nodes):
        return 1, 1
    return 1, NO_LIMIT


def _gres_cores(search: Searched, node: Offer, host: Host, cpus: int, low: int, high: int) -> tuple[int, int]:
    """gres_select_filter_sock_core, for resources that are not bound to sockets: CPUs to use, and the most tasks."""
    if high == 0:
        return cpus, 0
    step = max(low, 1)
    given_cpus = False
    shape, details = host.shape, search.details
    threads = min(shape.tpc, search.job.threads_per_core or shape.tpc)
    for one in node.gres:
        gres = one.gres
        given_cpus = given_cpus or bool(gres.cpus_of_each)
        most = _most_gres(one)
        if most and (gres.per_node > most or gres.per_socket * max(1, search.job.sockets_per_node or 0) > most):
            return cpus, 0
        if gres.per_node and gres.per_task:
            tasks = gres.per_node // gres.per_task
            if tasks == 0 or tasks > high or tasks < low:
                return cpus, 0
            if high == NO_LIMIT or high > tasks:
                high = most
        each = gres.cpus_per or (gres.tasks_per or 0) * details.cpus_per_task or gres.default_cpus_per
        count = one.count
        if each:
            most = min(cpus // each, most) if most else cpus // each
            count = min(count, most)
        if count == 0 or gres.per_node > count or gres.per_task > count:
            high = 0
        if gres.per_task:
            high = min(high, count // gres.per_task)
        low, high = low // step * step, high // step * step
        if high == 0:
            return cpus, 0
        if high == NO_LIMIT:
            if each:
                one.total = min(cpus // each, one.total)
            continue
        high, needed = _needed_cores(search, one, node, threads, low, high, each, count, shape.tpc)
        if needed > sum(node.cores):
            return cpus, 0
        cpus = _without_extra(node, needed, cpus, shape.tpc)
        if each:
            one.total = min(cpus // each, one.total)
            if gres.per_node > one.total or gres.per_task > one.total:
                high = 0
                break
    if not given_cpus and (details.cpus_per_task > 1 or not search.rules.one_task_per_core):
        cpus = min(cpus, high * details.cpus_per_task & 0xFFFFFFFF)
    return cpus, high


def _most_gres(one: Available) -> int:
    if not one.most:
        return 0
    left = max(one.gres.per_job - one.gres.total, 0)
    return left if left and left < one.most else one.most


def _needed_cores(
    search: Searched, one: Available, node: Offer, threads: int, low: int, high: int, each: int, count: int, tpc: int
) -> tuple[int, int]:
    """How many tasks the cores of the node are enough for, and how many cores these need."""
    size, cores = search.details.cpus_per_task, sum(node.cores)
    if search.per_core == 1 and size % threads:
        size = (size // threads + 1) * threads
    needed = high * size
    while high >= low:
        needed = -(-needed // threads)
        if needed <= cores:
            break
        high -= 1
        needed = high * size
    if each:
        gres = one.gres
        units = gres.per_node or gres.per_socket * len(node.cores) or gres.per_task * high or count or 1
        needed = max(needed, -(-units * each // tpc))
    return high, needed


def _without_extra(node: Offer, needed: int, cpus: int, tpc: int) -> int:
    """Gives back cores that are not needed, from the fullest sockets; returns the CPUs that are left."""
    total = sum(node.cores)
    if total <= needed:
        return cpus
    if len(node.cores) == 1:
        node.cores[0] = needed
    else:
        node.cores = _levelled(node.cores, needed)
    return cpus - tpc * max(0, min(total - 1, (cpus - 1) // tpc) - needed + 1)


def _levelled(cores: list[int], needed: int) -> list[int]:
    """The cores cut from the top until so many are left, the last ones from the first sockets."""
    level = 0
    for height in sorted(set(cores)):
        if sum(min(one, height) for one in cores) > needed:
            break
        level = height
    higher = sum(one > level for one in cores)
    level += (needed - sum(min(one, level) for one in cores)) // higher if higher else 0
    kept = [min(one, level) for one in cores]
    left = needed - sum(kept)
    for socket in range(len(cores) - 1, -1, -1):
        if left and cores[socket] > level:
            kept[socket] += 1
            left -= 1
    return kept
