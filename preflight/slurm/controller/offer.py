"""The resources that one idle node can give a job: CPUs, cores per socket, generic resources.

Follows select/cons_tres: can_job_run_on_node (src/plugins/select/cons_tres/job_test.c), _allocate_sc
(src/plugins/select/cons_common/cons_common.c), gres_sched_create_sock_gres_list (cons_tres/gres_sched.c) and
gres_select_filter_remove_unusable (cons_common/gres_select_filter.c). Not modelled: the cores that gres.conf binds
a GPU to. Every GPU may be used from every core here.
"""

from __future__ import annotations

from msgspec import Struct, field

from preflight.slurm.controller.hosts import Shape
from preflight.slurm.controller.job import Gres, SlurmJob
from preflight.vocabulary.machine import Cluster, Partition

NO_LIMIT = 0xFFFFFFFE
"""NO_VAL: arithmetic on it must wrap as the controller's does."""


class Rules(Struct, frozen=True):
    """How the cluster counts (SelectTypeParameters), and the partition's own limits."""

    by_core: bool = True
    by_socket: bool = False
    memory: bool = True
    one_task_per_core: bool = False
    most_cpus: int | None = None
    whole_nodes: bool = False
    """select/linear: a node is given to one job (preflight.slurm.controller.linear)."""
    cons_tres: bool = True
    """select/cons_tres; select/cons_res looks neither at tasks on a node nor at the types of GPUs (its job_test.c)."""


_PARAMETERS = {"cons_tres": {"CR_CORE_MEMORY"}, "cons_res": {"CR_CPU"}}
"""SelectTypeParameters if none are set (22.05: `scontrol show config` of a controller without them)."""


def rules_of(cluster: Cluster, partition: Partition) -> Rules:
    said = {one.upper() for one in cluster.select_parameters} or _PARAMETERS.get(
        cluster.select_type or "cons_tres", set()
    )
    return Rules(
        by_core=any(one.startswith("CR_CORE") and one != "CR_CORE_DEFAULT_DIST_BLOCK" for one in said),
        by_socket=any(one.startswith("CR_SOCKET") for one in said),
        memory=any("MEMORY" in one for one in said),
        one_task_per_core="CR_ONE_TASK_PER_CORE" in said,
        whole_nodes=cluster.select_type == "linear",
        cons_tres=cluster.select_type in (None, "cons_tres"),
        most_cpus=partition.max_cpus_per_node,
    )


class Details(Struct):
    """Values that the controller derives from the job description (job_details_t, _copy_job_desc_to_job_record)."""

    cpus_per_task: int
    cpus_per_node: int
    num_tasks: int
    min_nodes: int
    max_nodes: int
    ntasks_per_core: int | None
    """None: not limited"""
    min_gres_cpus: int = 0
    """CPUs per node that --cpus-per-gpu asks for"""
    min_job_gres_cpus: int = 0


def details_of(job: SlurmJob, rules: Rules) -> Details:
    each = job.cpus_per_task_or_one
    per_node = job.cpus_per_node or 1
    if job.ntasks_per_node is not None and not job.overcommit and (job.num_tasks or 0) > 1:
        per_node = max(per_node, each * job.ntasks_per_node)
    per_core = job.ntasks_per_core
    if per_core is None and rules.one_task_per_core:
        per_core = 1
    min_nodes = job.min_nodes if job.min_nodes is not None else 1
    return Details(each, max(per_node, each), job.num_tasks or 0, min_nodes, job.max_nodes or 0, per_core)


class Available(Struct):
    """sock_gres_t without sockets: how many of one resource a node has for the job."""

    gres: Gres
    count: int
    total: int
    most: int = 0
    """max_node_gres; 0: not limited"""


class Offer(Struct):
    """avail_res_t: the available resources of a node. `cores` per socket."""

    cpus: int
    cores: list[int]
    gres: list[Available] = field(default_factory=list)
    gpus: int = 0
    near_gpus: int = 0

    @property
    def weight(self) -> int:
        """avail_res_cnt"""
        return self.cpus + self.gpus

    def copy(self) -> Offer:
        gres = [Available(one.gres, one.count, one.total, one.most) for one in self.gres]
        return Offer(self.cpus, list(self.cores), gres, self.gpus, self.near_gpus)


def cpus_per_core(job: SlurmJob, details: Details, shape: Shape, rules: Rules) -> int:
    """common_cpus_per_core"""
    if rules.one_task_per_core and details.min_gres_cpus > 0:
        return shape.tpc
    usable = shape.tpc
    if details.ntasks_per_core:
        usable = min(usable, details.ntasks_per_core * details.cpus_per_task)
    if job.threads_per_core is not None:
        usable = min(usable, job.threads_per_core)
    return usable


def offer(job: SlurmJob, details: Details, shape: Shape, rules: Rules) -> Offer | None:
    """The available resources of the node; None: the job cannot run on it (can_job_run_on_node)."""
    gres = available_gres(job, shape, rules)
    if gres is None:
        return None
    found = _cores(job, details, shape, rules)
    if found is None or found.cpus == 0:
        return None
    tasks = 1
    if job.ntasks_per_node:
        tasks = job.ntasks_per_node
    elif not job.overcommit and details.max_nodes == 1 and details.num_tasks:
        tasks = details.num_tasks
    if rules.cons_tres and found.cpus < tasks * details.cpus_per_task:
        return None
    found.gres = gres
    memory = shape.memory if rules.memory else None
    if gres and rules.cons_tres and not _usable_gres(job, details, shape, memory, found):
        return None
    if memory is not None:
        found.cpus = _cpus_by_memory(job, details, shape, rules, memory, found.cpus)
    return found if found.cpus else None


# --- generic resources ----------------------------------------------------------------------------------------------


def available_gres(job: SlurmJob, shape: Shape, rules: Rules) -> list[Available] | None:
    """gres_sched_create_sock_gres_list, for nodes whose resources are not bound to cores."""
    found = []
    for one in job.gres:
        own = [(kind, count) for name, kind, count in shape.gres if name == one.name]
        if not own:
            return None
        least = max(one.per_node or 1, one.per_socket, one.per_task)
        typed = rules.cons_tres and any(kind is not None for kind, _ in own)
        if one.type is not None and not rules.cons_tres:
            own = [(kind, count) for kind, count in own if kind == one.type or shape.any_type]
        total = 0
        if typed or (one.type is not None and shape.any_type):
            for kind, count in own:
                if (one.type is None or kind == one.type or shape.any_type) and count >= least:
                    total += count
        elif (one.type is None or not rules.cons_tres) and sum(count for _, count in own) >= least:
            total = sum(count for _, count in own)
        if not total:
            return None
        found.append(Available(one, total, total))
    return found


def _usable_gres(job: SlurmJob, details: Details, shape: Shape, memory: int | None, node: Offer) -> bool:
    """gres_select_filter_remove_unusable: removes resources without enough memory and CPUs."""
    for one in node.gres:
        gres = one.gres
        least = one.total if job.whole_node else gres.per_node or 1
        least = max(least, gres.per_socket * _sockets(job, details), gres.per_task * (job.ntasks_per_node or 0))
        each = gres.cpus_per or (gres.tasks_per or 0) * details.cpus_per_task or gres.default_cpus_per
        if each:
            most = node.cpus // each
            if most == 0 or max(gres.per_node, gres.per_task, gres.per_socket) > most:
                return False
        size = gres.memory_of_each
        if size and memory is not None:
            if size > memory:
                return False
            one.most = memory // size
        near = one.total
        if not job.whole_node:
            for limit in (gres.per_node, gres.per_job):
                if limit and (one.most == 0 or one.most > limit):
                    one.most = limit
                    break
        if each and (gres.tasks_per is None or not job.whole_node):
            most = sum(node.cores) * shape.tpc // each
            if most == 0:
                return False
            if one.most == 0 or one.most > most:
                one.most = most
        if size and memory is not None:
            one.total = min(one.total, memory // size)
        if one.total < least or (one.most and one.most < least):
            return False
        if gres.name == "gpu":
            node.gpus += one.total
            node.near_gpus = min(255, node.near_gpus + (min(near, one.most) if one.most else near))
    return True


def _sockets(job: SlurmJob, details: Details) -> int:
    """Sockets per node that the tasks need (_socks_per_node); 1 if the job does not say."""
    nodes = max(details.min_nodes, 1)
    cpus = max(job.min_cpus, details.num_tasks * details.cpus_per_task)
    if cpus // nodes <= 1 or job.ntasks_per_socket is None:
        return 1
    return -(-(details.num_tasks // nodes) // job.ntasks_per_socket)


# --- cores ----------------------------------------------------------------------------------------------------------


def _cores(job: SlurmJob, details: Details, shape: Shape, rules: Rules) -> Offer | None:
    """_allocate_sc: cores and CPUs of an idle node that the job's layout allows."""
    least_cores = job.cores_per_socket or 1
    least_sockets = job.sockets_per_node or 1
    if job.threads_per_core is not None and not details.ntasks_per_core and job.threads_per_core > shape.tpc:
        return None
    if job.ntasks_per_socket is not None and job.ntasks_per_socket > shape.tpc * shape.cores:
        return None
    free = [shape.cores] * shape.sockets
    most = rules.most_cpus
    if most is not None and shape.total_cores * shape.tpc > most:
        if job.whole_node or job.shared_with is not None:
            return None
        wants = (details.ntasks_per_core or 0, job.ntasks_per_socket or 0, details.cpus_per_task)
        if most == 1 and max(wants) > 1:
            return None
        if not rules.cons_tres and most < details.cpus_per_task:
            return None
    if shape.cores < least_cores or shape.sockets < least_sockets:
        return None
    threads = cpus_per_core(job, details, shape, rules)
    if shape.total_cores * threads < details.cpus_per_node:
        return None
    cpus = sum(cores * threads for cores in free)
    tasks = sum(min(cores * threads, job.ntasks_per_socket or cores * threads) for cores in free)
    if job.ntasks_per_node and tasks < job.ntasks_per_node and not job.overcommit:
        return None
    if not tasks or cpus < details.cpus_per_node:
        return None
    per_socket = shape.cores * threads
    if job.ntasks_per_socket:
        per_socket = job.ntasks_per_socket * max(details.cpus_per_task, 1)
    return _filled(free, cpus, threads, per_socket, details, most)


def _filled(free: list[int], cpus: int, threads: int, per_socket: int, details: Details, most: int | None) -> Offer:
    """Cores taken socket by socket until the CPUs, or the limit per socket, are used up."""
    taken, used = [0] * len(free), 0
    left = details.cpus_per_task
    split = details.ntasks_per_core == 1 and details.cpus_per_task > threads  # a task's last core is not used whole
    for socket, cores in enumerate(free):
        cores = min(cores, max(-(-per_socket // threads), 1))
        if not split:
            taken[socket] = min(cores, -(-(cpus - used) // threads))
            used += min(taken[socket] * threads, cpus - used)
            continue
        for _ in range(cores):
            if used >= cpus:
                break
            taken[socket] += 1
            step = min(left, threads, cpus - used)
            used += step
            left = details.cpus_per_task if left <= step else left - step
    return Offer(used if most is None else min(used, most), taken)


def _cpus_by_memory(job: SlurmJob, details: Details, shape: Shape, rules: Rules, memory: int, cpus: int) -> int:
    """The CPUs for which the node has the memory that the job asks for."""
    if job.memory_per_cpu is None:
        return cpus if (job.memory or 0) <= memory else 0
    size = job.memory_per_cpu
    if job.whole_node and size * cpus > memory:
        return 0
    if size:
        if (rules.by_core or rules.by_socket) and details.ntasks_per_core == 1 and details.cpus_per_task == 1:
            cpus = min(cpus, memory // (size * shape.tpc))
        else:
            step = _unit(job, details, shape, rules)
            cpus = max(0, cpus - max(0, -(-(cpus - memory // size) // step)) * step)
    if details.cpus_per_task > 1:
        cpus -= cpus % details.cpus_per_task
    return 0 if cpus < (job.ntasks_per_node or 0) else cpus


def _unit(job: SlurmJob, details: Details, shape: Shape, rules: Rules) -> int:
    """CPUs that are given together: a socket's, a core's, or one."""
    unit = shape.cores * shape.tpc if rules.by_socket else shape.tpc if rules.by_core else 1
    if details.ntasks_per_core:
        unit = min(unit, details.ntasks_per_core * details.cpus_per_task)
    if job.threads_per_core is not None:
        unit = min(unit, job.threads_per_core)
    return max(unit, 1)
