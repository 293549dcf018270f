"""Generic resources of a request: how many per job, node, socket and task, and whether these numbers fit together.

Follows src/common/gres.c (gres_job_state_validate, _get_next_gres, _test_gres_cnt, _merge_generic_data) and
src/slurmctld/job_mgr.c (valid_tres_cnt).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.slurm.controller.job import GRES, GRES_PLUGIN, GRES_TYPE, TRES, Gres, RequestRefused, SlurmJob, whole
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown

MIB = 2**20
_FACTORS = {"": 1, "k": 2**10, "kib": 2**10, "kb": 10**3, "m": 2**20, "mib": 2**20, "mb": 10**6, "g": 2**30,
            "gib": 2**30, "gb": 10**9, "t": 2**40, "tib": 2**40, "tb": 10**12}  # fmt: skip
"""suffix_mult, src/common/slurm_protocol_defs.c"""

SCOPES = {"job": ("gpus",), "node": ("gpus_per_node",), "socket": ("gpus_per_socket",), "task": ("gpus_per_task",)}
"""Unit of a requested resource (job, node, ...) -> the field of the request with the number."""


def number(text: str) -> int | None:
    """A count with an optional suffix, as strtoull and suffix_mult read it; None: not a count."""
    found = re.fullmatch(r"\s*[+-]?(\d*)(.*)", text, re.DOTALL)
    if found is None:
        return None
    factor = _FACTORS.get(found[2].lower())
    if factor is None:
        return None
    value = int(found[1] or 0) * factor
    return value if value < 2**63 and not text.lstrip().startswith("-") else None


def items(text: str, types: tuple[str, ...] | None) -> Iterator[tuple[str, str | None, int]]:
    """Name, type and count of each entry of `gpu:a100:2,nvme` (_get_next_gres). Raises Refused."""
    for part in text.split(","):
        part = part.removeprefix("gres:")
        if not part:
            continue
        name, *rest = part.split(":", 2)
        kind: str | None = None
        count: int | None = 1
        if len(rest) == 2:
            kind, count = rest[0], number(rest[1]) if rest[1] else None
            kind = kind or None
            count = None if kind is None else count
        elif rest:
            count = number(rest[0]) if rest[0] else None
            if count is None and rest[0]:
                kind, count = rest[0], 1
        if count is None:
            raise _unreadable(GRES, part)
        if count == 0:
            continue
        if types is not None and name not in types:
            known = ", ".join(types) or "none"
            words = f"this cluster has no generic resource {name} (GresTypes: {known})"
            raise RequestRefused(GRES, words, "request.gres")
        yield name, kind, count


def _unreadable(answer: str, part: str) -> RequestRefused:
    return RequestRefused(
        answer, f"SLURM cannot read the generic resource {part} (NAME:TYPE:COUNT)", "request.gpus_per_node"
    )


def _texts(request: Request) -> Iterator[tuple[str, str]]:
    """Scope and text of all requested resources; a request that is not from text has only counts of GPUs."""
    if request.gres:
        yield from request.gres
        return
    for scope, (name,) in SCOPES.items():
        count = getattr(request, name)
        kind = request.gpu_type if isinstance(request.gpu_type, str) else None
        if isinstance(count, Unknown):
            count = 1
        if isinstance(count, int):
            yield scope, f"gpu:{kind}:{count}" if kind else f"gpu:{count}"


def check_plugin(request: Request, select_type: str | None) -> None:
    """Only select/cons_tres has GPUs per job, socket or task, and CPUs or memory per GPU. Raises Refused."""
    if select_type in (None, "cons_tres"):
        return
    scopes = {"job": "gpus", "socket": "gpus_per_socket", "task": "gpus_per_task"}
    asked = [scopes[scope] for scope, _ in _texts(request) if scope in scopes]
    asked += [name for name in ("cpus_per_gpu", "memory_per_gpu") if getattr(request, name) is not None]
    if asked:
        option = "--" + {"memory_per_gpu": "mem-per-gpu"}.get(asked[0], asked[0].replace("_", "-"))
        words = f"{option} needs select/cons_tres, but the cluster has select/{select_type}: use --gres=gpu"
        raise RequestRefused(GRES_PLUGIN, words, f"request.{asked[0]}")


def parse(request: Request, types: tuple[str, ...] | None) -> list[Gres]:
    """The requested resources, each name and type once (first half of gres_job_state_validate). Raises Refused."""
    found: dict[tuple[str, str | None], Gres] = {}
    cpus, memory = whole(request.cpus_per_gpu) or 0, -(-(whole(request.memory_per_gpu) or 0) // MIB)
    if cpus:
        _entry(found, "gpu", None).cpus_per = cpus
    for scope, text in _texts(request):
        for name, kind, count in items(text, types):
            setattr(_entry(found, name, kind), f"per_{scope}", count)
    if memory:
        _entry(found, "gpu", None).memory_per = memory
    return list(found.values())


def _entry(found: dict[tuple[str, str | None], Gres], name: str, kind: str | None) -> Gres:
    return found.setdefault((name, kind), Gres(name, kind))


def validate(job: SlurmJob, request: Request, client: bool) -> None:
    """The rest of gres_job_state_validate: counts that contradict each other, and counts that follow. Raises Refused.

    `client`: as sbatch does it, which checks one thing more than the controller.
    """
    asked = bool(request.gres) or any(
        getattr(request, name) is not None
        for name in ("gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task", "cpus_per_gpu", "memory_per_gpu")
    )
    if not asked and job.ntasks_per_gpu is None:
        return
    per_task = any(one.per_task for one in job.gres)
    fixed = job.min_nodes is not None and job.min_nodes == job.max_nodes
    if (per_task or job.ntasks_per_gpu is not None) and job.num_tasks is None and fixed:
        _implied_tasks(job)
    has_gpu = any(one.name == "gpu" and _counts(one) for one in job.gres)
    _tasks_per_gpu(job, has_gpu)
    has_gpu = has_gpu or (job.ntasks_per_gpu is not None)
    if not job.gres:
        return
    if request.memory_per_gpu is not None and not has_gpu:
        raise RequestRefused(GRES, "--mem-per-gpu is given but no GPU is requested", "request.memory_per_gpu")
    for one in job.gres:
        one.tasks_per = job.ntasks_per_gpu
        _consistent(one, job, client)
    _merge(job)


def _counts(one: Gres) -> bool:
    return bool(one.per_job or one.per_node or one.per_socket or one.per_task)


def _implied_tasks(job: SlurmJob) -> None:
    assert job.min_nodes is not None
    if job.ntasks_per_gpu is not None:
        job.num_tasks = job.min_nodes * job.ntasks_per_gpu
    elif job.ntasks_per_node is not None:
        job.num_tasks = job.min_nodes * job.ntasks_per_node
    elif job.cpus_per_task is None:
        job.num_tasks = job.min_nodes


def _tasks_per_gpu(job: SlurmJob, has_gpu: bool) -> None:
    """Tasks from GPUs, or GPUs from tasks."""
    each = job.ntasks_per_gpu
    if not each:
        return
    if has_gpu and job.gres:
        gpus = sum(_total(one, job) for one in job.gres if one.name == "gpu")
        if not gpus:
            raise RequestRefused(GRES, "--ntasks-per-gpu is given but no GPU is requested", "request.tasks_per_gpu")
        job.num_tasks = gpus * each
    elif job.num_tasks:
        gpus = job.num_tasks // each
        if gpus:
            entry = next((one for one in job.gres if one.name == "gpu" and one.type is None), None)
            if entry is None:
                entry = Gres("gpu")
                job.gres.append(entry)
            entry.per_job = gpus
            entry.total = max(entry.total, gpus)
    else:
        words = "--ntasks-per-gpu needs a number of GPUs, of tasks or of nodes"
        raise RequestRefused(GRES, words, "request.tasks_per_gpu")


def _total(one: Gres, job: SlurmJob) -> int:
    """total_gres, counted while the options are read."""
    nodes = job.min_nodes
    counts = [one.per_job, one.per_node * (nodes if nodes is not None else 1)]
    socket = one.per_socket
    if nodes is not None and job.sockets_per_node is not None:
        socket *= nodes * job.sockets_per_node
    counts += [socket, one.per_task * (job.num_tasks if job.num_tasks is not None else 1)]
    return max(counts)


def _refuse(words: str, *settings: str) -> RequestRefused:
    return RequestRefused(GRES, words, *settings)


def _consistent(one: Gres, job: SlurmJob, client: bool) -> None:
    """_test_gres_cnt: counts per job, node, socket and task must divide each other; counts that follow are set."""
    what = f"{one.name.upper() if one.name == 'gpu' else one.name}s"
    if one.per_job and max(one.per_node, one.per_task, one.per_socket) > one.per_job:
        raise _refuse(f"the job requests fewer {what} in total than for one node, socket or task", "request.gpus")
    if one.per_node and max(one.per_task, one.per_socket) > one.per_node:
        raise _refuse(f"fewer {what} are requested per node than per socket or task", "request.gpus_per_node")
    if one.per_socket and job.sockets_per_node is None:
        raise _refuse("--gpus-per-socket needs --sockets-per-node", "request.gpus_per_socket")
    if client and one.cpus_per and job.cpus_per_task is not None:
        raise _refuse("--cpus-per-gpu and --cpus-per-task cannot be used together", "request.cpus_per_gpu")
    if one.per_job and one.per_node:
        _nodes_follow(one, job, what)
    if one.per_node and one.per_socket:
        if one.per_node % one.per_socket:
            raise _refuse(f"the {what} per node are not a multiple of the {what} per socket", "request.gpus_per_socket")
        sockets = one.per_node // one.per_socket
        if job.sockets_per_node not in (None, sockets):
            raise _refuse(f"{what} per node and socket need --sockets-per-node={sockets}", "request.sockets_per_node")
        job.sockets_per_node = sockets
    if one.tasks_per and job.num_tasks is not None and job.num_tasks % one.tasks_per:
        raise _refuse("--ntasks is not a multiple of --ntasks-per-gpu", "request.tasks_per_gpu")
    if one.per_task:
        _tasks_follow(one, job, what)
    if one.per_socket and one.per_task:
        if one.per_socket % one.per_task:
            raise _refuse(f"the {what} per socket are not a multiple of the {what} per task", "request.gpus_per_socket")
        tasks = one.per_socket // one.per_task
        if job.ntasks_per_socket not in (None, 0, tasks):
            raise _refuse(f"{what} per socket and task need --ntasks-per-socket={tasks}", "request.tasks_per_socket")
        job.ntasks_per_socket = tasks
    if one.cpus_of_each and one.per_task:
        cpus = one.cpus_of_each * one.per_task
        if job.cpus_per_task not in (None, 0, cpus):
            raise _refuse(f"--cpus-per-gpu and --gpus-per-task need --cpus-per-task={cpus}", "request.cpus_per_task")
        job.cpus_per_task = cpus
    if one.per_job:
        if job.min_nodes is not None and one.per_job < job.min_nodes:
            raise _refuse(f"{one.per_job} {what} are too few for {job.min_nodes} nodes", "request.gpus")
        if job.max_nodes is not None and one.per_job < job.max_nodes:
            job.max_nodes = one.per_job


def _nodes_follow(one: Gres, job: SlurmJob, what: str) -> None:
    nodes, rest = divmod(one.per_job, one.per_node)
    if rest:
        raise _refuse(f"{one.per_job} {what} are not a multiple of {one.per_node} per node", "request.gpus")
    most = job.max_nodes if job.max_nodes is not None else nodes
    if (job.min_nodes is not None and nodes < job.min_nodes) or nodes > most:
        words = f"{one.per_job} {what} at {one.per_node} per node need {nodes} nodes, but --nodes has another number"
        raise _refuse(words, "request.gpus", "request.nodes")
    job.min_nodes = job.max_nodes = nodes


def _tasks_follow(one: Gres, job: SlurmJob, what: str) -> None:
    if one.per_job:
        tasks, rest = divmod(one.per_job, one.per_task)
        if rest:
            raise _refuse(
                f"{one.per_job} {what} are not a multiple of {one.per_task} per task", "request.gpus_per_task"
            )
        if job.num_tasks not in (None, tasks):
            words = (
                f"{one.per_job} {what} at {one.per_task} per task need {tasks} tasks, but the job has {job.num_tasks}"
            )
            raise _refuse(words, "request.gpus_per_task", "request.tasks")
        job.num_tasks = tasks
    elif job.num_tasks is not None:
        one.per_job = job.num_tasks * one.per_task
    else:
        raise _refuse("--gpus-per-task also needs --ntasks, --nodes or --gpus", "request.gpus_per_task")
    if one.per_node:
        tasks, rest = divmod(one.per_node, one.per_task)
        if rest:
            words = f"{one.per_node} {what} per node are not a multiple of {one.per_task} per task"
            raise _refuse(words, "request.gpus_per_task")
        if job.ntasks_per_node not in (None, 0, tasks):
            words = f"{what} per node and per task make {tasks} tasks per node, but the job has {job.ntasks_per_node}"
            raise _refuse(words, "request.gpus_per_task", "request.tasks_per_node")
        job.ntasks_per_node = tasks


def _merge(job: SlurmJob) -> None:
    """_merge_generic_data: an entry without a type that carries CPUs or memory per GPU is spread over the typed."""
    for name in dict.fromkeys(one.name for one in job.gres):
        typed = [one for one in job.gres if one.name == name and one.type is not None]
        plain = next((one for one in job.gres if one.name == name and one.type is None), None)
        if not typed or plain is None:
            continue
        if _counts(plain):
            words = f"{name} is requested both with a type and without one"
            raise RequestRefused(GRES_TYPE, words, "request.gpus_per_node", "request.gpus")
        for one in typed:
            one.cpus_per = one.cpus_per or plain.cpus_per
            one.memory_per = one.memory_per or plain.memory_per
        job.gres.remove(plain)


def check_text(request: Request) -> None:
    """valid_tres_cnt: the last part of an entry, where it starts with a digit, must be a count. Raises Refused."""
    for _, text in _texts(request):
        for part in text.split(","):
            tail = part.rpartition(":")[2]
            if not part or (tail[:1].isdecimal() and number(tail) is None):
                raise _unreadable(TRES, part)
