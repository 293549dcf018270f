"""The resources of a job on each of its nodes: tasks, CPUs, GPUs, memory.

Follows src/plugins/select/cons_common/dist_tasks.c (dist_tasks, _cyclic_sync_core_bitmap), cons_tres/dist_tasks.c
(dist_tasks_compute_c_b), cons_common/gres_select_util.c and the end of _job_test (cons_common/job_test.c).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from preflight.slurm.controller.choose import Taken
from preflight.slurm.controller.hosts import MIB, Host, Shape
from preflight.slurm.controller.job import SlurmJob, asked
from preflight.slurm.controller.offer import Details, Rules, cpus_per_core


class Share(Struct, frozen=True):
    """The resources of the job on one node. Memory in bytes; None: the memory of the node is not known."""

    host: Host
    tasks: int
    cpus: int
    gpus: int
    memory: int | None


def shares(job: SlurmJob, details: Details, rules: Rules, taken: Sequence[Taken]) -> tuple[Share, ...] | None:
    """The resources of the job on every node; None: a node has too few cores (_cyclic_sync_core_bitmap)."""
    if not taken:  # --nodes=0
        return ()
    usable = [_usable(job, one) for one in taken]
    slots, used = _distributed(job, details, taken, usable)
    tasks = _tasks(job, slots)
    found, left = [], {id(one): one.per_job for one in job.gres}
    for index, one in enumerate(taken):
        shape = one.host.shape
        per_core = cpus_per_core(job, details, shape, rules)
        cores = -(-used[index] // per_core)
        if not job.whole_node and (rules.by_core or rules.by_socket):
            if cores > sum(one.offer.cores) and not job.overcommit:
                return None
            cores = min(cores, sum(one.offer.cores))
        cpus = shape.cpus if job.whole_node else cores * shape.tpc if rules.by_core or rules.by_socket else used[index]
        sockets = _sockets(shape, cores, slots[index], details.cpus_per_task)
        if rules.by_socket and not job.whole_node:
            cpus = sockets * shape.cores * shape.tpc
        gpus = _gpus(job, one, slots[index], sockets, len(taken) - index - 1, left)
        counted = min(cpus, cores * per_core) if job.threads_per_core is not None and not job.whole_node else cpus
        memory = _memory(job, one, counted, gpus) if rules.memory else _all(shape)
        found.append(Share(one.host, tasks[index], cpus, gpus, memory))
    return tuple(found)


def _sockets(shape: Shape, cores: int, tasks: int, each: int) -> int:
    """Sockets that tasks are spread over: those of one CPU in turn, larger ones whole (_cyclic_sync_core_bitmap)."""
    if each == 1:
        return min(cores, shape.sockets)
    room = shape.cores * shape.tpc // each
    return min(-(-tasks // room), shape.sockets) if room else shape.sockets


def _all(shape: Shape) -> int | None:
    """The memory of the whole node, if memory is not a consumable resource (slurm.conf(5), SelectTypeParameters)."""
    return None if shape.memory is None else shape.memory * MIB


def whole_shares(job: SlurmJob, details: Details, rules: Rules, taken: Sequence[Host]) -> tuple[Share, ...]:
    """The resources of the job on whole nodes (select/linear): all CPUs, the requested GPUs, as many tasks as fit."""
    slots = [job.ntasks_per_node or max(host.shape.cpus // details.cpus_per_task, 1) for host in taken]
    found = []
    gpus = sum(one.per_node for one in job.gres if one.name == "gpu")
    for host, tasks in zip(taken, _tasks(job, slots), strict=True):
        shape = host.shape
        if not rules.memory:
            memory = _all(shape)
        elif job.memory_per_cpu is not None:
            memory = job.memory_per_cpu * shape.cpus * MIB
        else:
            memory = job.memory * MIB if job.memory else _all(shape)
        found.append(Share(host, tasks, shape.cpus, gpus, memory))
    return tuple(found)


def _usable(job: SlurmJob, one: Taken) -> int:
    """CPUs that may be used on a node: those of the search; with GPUs, at most those of its cores."""
    cpus = one.offer.cpus
    return min(cpus, sum(one.offer.cores) * one.host.shape.tpc) if job.gres else cpus


def _tasks(job: SlurmJob, slots: list[int]) -> list[int]:
    """The tasks that srun starts on each node: one each, then node by node as many as fit (-m block)."""
    left = (job.num_tasks if job.num_tasks is not None else len(slots)) - len(slots)
    tasks = []
    for room in slots:
        most = job.ntasks_per_node if job.ntasks_per_node else room
        more = max(0, min(left, most - 1))
        tasks.append(1 + more)
        left -= more
    return tasks


def _distributed(
    job: SlurmJob, details: Details, taken: Sequence[Taken], usable: list[int]
) -> tuple[list[int], list[int]]:
    """Room for tasks and CPUs per node (dist_tasks_compute_c_b): one task each, then the rest in turn."""
    nodes, each = len(taken), details.cpus_per_task
    of_tasks = max(nodes * (job.ntasks_per_node or 1), _tasks_of_gpus(job, nodes))
    of_cpus = max(job.min_cpus, nodes * details.cpus_per_node, _cpus_of_gres(job, details, nodes))
    total = max(of_tasks, of_cpus)
    if job.overcommit and details.num_tasks:
        total = min(sum(usable), details.num_tasks)
    most = total
    if not job.overcommit and each > 1:
        most = total // each if not job.ntasks_per_node else job.ntasks_per_node * nodes
    most = max(most, 1)
    limits = [_task_limit(job, one) for one in taken]
    tasks, used, placed = [0] * nodes, [0] * nodes, 0
    per_task = any(one.per_task for one in job.gres)

    def add(node: int) -> None:
        nonlocal placed
        placed += 1
        tasks[node] += 1
        used[node] = min(usable[node], used[node] + each)

    for node in range(nodes):
        if placed < most and usable[node]:
            add(node)
    crowded = not any(used[node] < usable[node] for node in range(nodes))
    if job.overcommit and not per_task:
        most = 0
    while placed < most:
        room = False
        for node in range(nodes):
            for _ in range(max(taken[node].host.shape.tpc // each, 1)):
                if placed >= most:
                    break
                if not crowded:
                    limit = limits[node]
                    full = job.ntasks_per_node and tasks[node] >= job.ntasks_per_node
                    if usable[node] - used[node] < each or (limit is not None and tasks[node] >= limit) or full:
                        break
                add(node)
                room = room or usable[node] - used[node] >= each
        crowded = crowded or not room
    return tasks, used


def _task_limit(job: SlurmJob, one: Taken) -> int | None:
    """gres_select_util_get_task_limit"""
    limits = [have.total // have.gres.per_task for have in one.offer.gres if have.gres.per_task]
    return min(limits, default=None)


def _tasks_of_gpus(job: SlurmJob, nodes: int) -> int:
    if not job.ntasks_per_gpu:
        return 0
    sockets = job.sockets_per_node or 1
    gpus = [one for one in job.gres if one.name == "gpu"]
    counts = [one.per_job or one.per_node * nodes or one.per_socket * nodes * sockets for one in gpus]
    return job.ntasks_per_gpu * max(counts, default=0)


def _cpus_of_gres(job: SlurmJob, details: Details, nodes: int) -> int:
    """gres_select_util_job_min_cpus"""
    found, sockets = 0, job.sockets_per_node or 1
    for name in {one.name for one in job.gres}:
        own = [one for one in job.gres if one.name == name]
        per_job, per_node, per_socket, per_task = asked(own)
        count = per_job or per_node * nodes or per_socket * nodes * sockets or per_task * details.num_tasks
        found = max(found, own[0].cpus_of_each * count)
    return found


def _gpus(job: SlurmJob, one: Taken, tasks: int, sockets: int, others: int, left: dict[int, int]) -> int:
    """GPUs on a node; an exclusive job gets all. Of a number for the whole job, each further node gets at least one."""
    if job.whole_node:
        return sum(count for name, _, count in one.host.shape.gres if name == "gpu")
    total = 0
    for have in one.offer.gres:
        gres = have.gres
        if gres.per_node:
            count = gres.per_node
        elif gres.per_socket:
            count = gres.per_socket * sockets  # those that its cores are on
        elif gres.per_task:
            count = gres.per_task * tasks
        else:
            count = max(0, min(have.count, left[id(gres)] - others))
            left[id(gres)] -= count
        total += count if gres.name == "gpu" else 0
    return total


def _memory(job: SlurmJob, one: Taken, cpus: int, gpus: int) -> int | None:
    """Bytes on a node: per GPU, per CPU, per node, or all that it has."""
    per_gpu = next((gres.memory_of_each for gres in job.gres if gres.memory_of_each), 0)
    if per_gpu and not job.memory_stated:
        return per_gpu * gpus * MIB
    if job.memory_per_cpu is not None:
        return job.memory_per_cpu * cpus * MIB
    if job.memory:
        return job.memory * MIB
    return _all(one.host.shape)
