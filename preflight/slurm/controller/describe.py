"""The job description that sbatch sends for a request: derived counts, and requests that sbatch itself refuses.

Follows src/sbatch/opt.c (_opt_verify) and src/common/slurm_opt.c (slurm_opt_create_job_desc, _validate_ntasks_per_gpu).
"""

from __future__ import annotations

from preflight.machines.hostlist import expand
from preflight.slurm.controller.gres import check_plugin, parse, validate
from preflight.slurm.controller.job import CLIENT, RequestRefused, SlurmJob, text, whole
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown, Value

MIB = 2**20
SOME_MIB = 1
"""The size that is used for one that is written but not known: no request is refused for it."""


def describe(request: Request, gres_types: tuple[str, ...] | None, select_type: str | None = None) -> SlurmJob:
    """The job description (_opt_verify in src/sbatch/opt.c, slurm_opt_create_job_desc in src/common/slurm_opt.c).

    Unknown values are left out, so the job requests less. Raises Refused.
    """
    _exclusive_options(request)
    job = _counts(request)
    job.features, job.partition = text(request.constraint), text(request.partition)
    job.time_limit, job.time_min = whole(request.time_minutes), whole(request.time_min_minutes)
    job.array = text(request.array)
    job.contiguous, job.licenses, job.prefer = request.contiguous, text(request.licenses), text(request.prefer)
    job.dependency, job.local_disk = text(request.dependency), _mib(request.local_disk)
    job.exclusive, job.overcommit, job.shared_with = request.exclusive, request.overcommit, request.shared_with
    job.node_list, job.exclude = text(request.node_list), text(request.exclude)
    job.memory, job.memory_per_cpu = _mib(request.memory), _mib(request.memory_per_cpu)
    job.memory_stated = job.memory is not None or job.memory_per_cpu is not None
    job.sockets_per_node, job.cores_per_socket = whole(request.sockets_per_node), whole(request.cores_per_socket)
    job.threads_per_core = whole(request.threads_per_core)
    job.ntasks_per_socket, job.ntasks_per_core = whole(request.tasks_per_socket), whole(request.tasks_per_core)
    job.ntasks_per_gpu = whole(request.tasks_per_gpu)
    check_plugin(request, select_type)
    job.gres = parse(request, gres_types)
    validate(job, request, client=True)
    return job


def _mib(value: Value) -> int | None:
    if isinstance(value, Unknown):
        return SOME_MIB
    size = whole(value)
    return None if size is None else -(-size // MIB)


def _exclusive_options(request: Request) -> None:
    """_validate_ntasks_per_gpu. The reader of the directives checks the memory options."""
    if request.tasks_per_gpu is None:
        return
    for name, option in (
        ("gpus_per_task", "--gpus-per-task"),
        ("gpus_per_socket", "--gpus-per-socket"),
        ("tasks_per_node", "--ntasks-per-node"),
    ):
        if getattr(request, name) is not None:
            words = f"--ntasks-per-gpu and {option} cannot be used together"
            raise RequestRefused(CLIENT, words, "request.tasks_per_gpu", f"request.{name}")


def _counts(request: Request) -> SlurmJob:
    """Numbers of tasks, nodes and CPUs that follow from each other."""
    tasks, per_node = whole(request.tasks), whole(request.tasks_per_node)
    least, most = whole(request.min_nodes), whole(request.max_nodes)
    if least is None and whole(request.nodes) is not None:
        least = most = whole(request.nodes)
    nodes_set = least is not None
    least, most = (least, most or 0) if least is not None else (1, 0)
    named = len(set(expand(text(request.node_list) or "")))
    if named:
        least = max(least, named) if nodes_set else named
        nodes_set = True
    if most and least > most:
        words = f"the job needs at least {least} nodes, but --nodes allows at most {most}"
        raise RequestRefused(CLIENT, words, "request.nodes", "request.node_list")
    if tasks is None and per_node and most in (0, least):
        tasks = least * per_node
    each = whole(request.cpus_per_task)
    count = 1 if tasks is None else tasks
    plane = whole(request.plane_size)
    if plane and (least <= 0 or count // plane < least) and ((least - 1) * plane) % 2**32 >= count:
        words = f"--distribution=plane={plane}: {count} tasks in blocks of {plane} are too few for {least} nodes"
        raise RequestRefused(CLIENT, words, "request.plane_size", "request.nodes")
    if (nodes_set or request.tasks_of_layout) and tasks is None and most in (0, least):
        count = max(least, 1)
        layout = [
            whole(getattr(request, name)) for name in ("sockets_per_node", "cores_per_socket", "threads_per_core")
        ]
        for number in layout:
            if number is not None:
                tasks = count = count * number
    elif nodes_set and tasks is not None:
        if tasks < most:
            most = tasks
        if tasks < least:
            least = most = tasks
    per_node_cpus = max((n for n in (whole(request.cpus_per_node), each) if n is not None), default=None)
    minimum = max(least, 1) if request.overcommit else count * each if each is not None else count
    return SlurmJob(
        num_tasks=tasks,
        min_nodes=least if nodes_set else None,
        max_nodes=most or None if nodes_set else None,
        ntasks_per_node=per_node,
        cpus_per_task=each,
        cpus_per_node=per_node_cpus,
        min_cpus=0 if nodes_set and least == 0 and each is None and not request.overcommit else minimum,
    )
