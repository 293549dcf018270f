from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from preflight.api import (
    Allocation,
    Case,
    Change,
    Confidence,
    Edit,
    Example,
    Expr,
    Finding,
    Origin,
    Proposal,
    Request,
    Rule,
    Severity,
    evaluate,
    origins,
    plural,
)
from preflight_rules.shared.programs import DISTRIBUTED, TRAIN, job
from preflight_rules.shared.slurm import allocation_of, place
from preflight_rules.shared.texts import text_of

TORCHRUN = "srun torchrun --nproc_per_node=4 --nnodes=1 train.py --batch_size 64"
NESTED = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8 --mem=64G", line=TORCHRUN)
EIGHT_CPUS_EACH = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", "--mem=256G")
TWO_GPUS = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:2", "--mem=64G")
ONCE = NESTED.replace("--ntasks-per-node=4", "--ntasks-per-node=1").replace("task=8", "task=32")
LAUNCHERS = ("torchrun", "deepspeed")
"""Launchers that start several processes each time they are started."""
STEP = "SLURM_STEP_ID"
"""A variable that only processes started by srun have (srun(1), OUTPUT ENVIRONMENT VARIABLES)."""
STEP_CPUS = "SRUN_CPUS_PER_TASK"
STARTERS = re.compile(
    r"(?<![\w.-])(?:srun|mpirun|mpiexec|orterun|prterun|jsrun|aprun|ibrun|horovodrun|pdsh|clush|pssh|parallel-ssh|"
    r"parallel|ssh|ray|dask|dask_mpi|mpi4py|submitit|parsl|flux|sbatch|deepspeed|colossalai|pytorchjob)(?![\w-])"
)
"""What starts processes on other nodes, as a command or as a package of Python."""
SHARES_OUT = re.compile(
    r"CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|\bvllm\b|\bsglang\b|tensor_parallel"
)
"""Words of a job that keeps GPUs for something else than the processes of its launcher."""
SEVERAL_NODES = re.compile(r"--(?:nnodes|num_machines|num_nodes)\b")
NOT_INHERITED = ((22, 5), (23, 11))
"""Versions, the last one excluded, whose srun reads SRUN_CPUS_PER_TASK and not the SLURM_CPUS_PER_TASK that sbatch sets
(src/srun/libsrun/opt.c of 22.05 and 23.02; SLURM_CPUS_PER_TASK again in 23.11)."""


class SlurmTasksMismatch(Rule):
    """The numbers of tasks, processes and GPUs do not agree.

    There are more processes than GPUs, or idle nodes, or a launcher that is started several times. `srun` starts one
    process per task. `torchrun` starts `--nproc_per_node` processes each time it is started. `accelerate launch
    --num_processes` counts the processes of all machines together. Lines of the script without srun run on the first
    node only. So eight tasks that each start a torchrun of eight make 64 processes on eight GPUs. In SLURM 22.05 to
    23.02 srun does not inherit `--cpus-per-task`: every task of its step gets one CPU.

    Two processes on one GPU need twice the memory, and idle nodes cost as much as busy ones.

    There is a finding only if it is certain. Processes are compared with GPUs if a launcher starts them, or if the
    program is known to use one GPU per process (DDP, FSDP, ZeRO): other tasks may share a GPU, or use several, on
    purpose. Nodes are idle only if nothing in the scripts and the program can start a process on them: no `srun`,
    `mpirun`, `ssh`, Ray, and nothing of that kind.

    The fix, if there is one, gives torchrun one task per node. It is unsafe, because the number of processes changes.
    """

    name = "slurm-tasks-mismatch"
    summary = "The numbers of tasks, processes and GPUs do not agree"
    tags = ("slurm", "distributed")
    examples = (
        Example(
            "A torchrun of four in each of four tasks",
            {"train.sbatch": NESTED, "train.py": TRAIN},
            fixed={"train.sbatch": ONCE},
            unsafe=True,
            says=("16 processes on 4 GPUs",),
        ),
        Example("One torchrun per node", {"train.sbatch": ONCE, "train.py": TRAIN}, finds=0),
        Example(
            "More processes than GPUs",
            {"train.sbatch": TWO_GPUS, "train.py": DISTRIBUTED},
            says=("4 processes per node on 2 GPUs",),
        ),
        Example(
            "Tasks that share a GPU and know nothing of each other", {"s.sbatch": TWO_GPUS, "train.py": TRAIN}, finds=0
        ),
        Example("One task per GPU", {"train.sbatch": EIGHT_CPUS_EACH, "train.py": TRAIN}, finds=0),
        Example(
            "Two nodes, and a launch line that runs on the first alone",
            {"train.sbatch": ONCE.replace("--nodes=1", "--nodes=2").replace("srun ", ""), "train.py": TRAIN},
            finds=1,
            says=("1 node, and 2 are requested",),
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        request, found = case.study.request, allocation_of(case)
        if request is None or found is None:
            return
        for mismatch in mismatches(case, request, found):
            origin = mismatch.origin or place(request, *(name for name, _ in mismatch.related))
            related = tuple(
                (request.origins[name], words) for name, words in mismatch.related if name in request.origins
            )
            yield self.finding(
                mismatch.message,
                origin,
                mismatch.severity,
                Confidence.medium,
                settings=("parallel.ranks_per_node", "request.tasks_per_node"),
                related=tuple(pair for pair in related if pair[0] != origin),
                proposals=mismatch.proposals,
            )


class TasksMismatch(Struct, frozen=True):
    """One contradiction. `related`: fields of the request, with a text for each."""

    message: str
    origin: Origin | None
    severity: Severity = Severity.warning
    related: tuple[tuple[str, str], ...] = ()
    proposals: tuple[Proposal, ...] = ()


def mismatches(case: Case, request: Request, found: Allocation) -> Iterator[TasksMismatch]:
    """Every contradiction in one launch."""
    doubled = _launcher_per_task(case, found)
    if doubled is not None:
        yield doubled
    else:
        yield from _processes_and_gpus(case, request, found)
    lost = cpus_lost(case, request)
    if lost is not None:
        yield TasksMismatch(lost, None, Severity.warning, (("cpus_per_task", "asked for here"),), export(request))
    yield from _nodes(case, found)
    yield from _lightning(case, request, found)


def _known(expr: Expr | None) -> int | None:
    value = None if expr is None else evaluate(expr)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _origin(expr: Expr | None) -> Origin | None:
    return None if expr is None else next(origins(expr), None)


def _in_step(case: Case) -> bool:
    return STEP in case.study.launch.environment


def _launcher_per_task(case: Case, found: Allocation) -> TasksMismatch | None:
    """srun starts torchrun once per task: with several tasks per node every one of them starts a node's processes."""
    launch, tasks = case.study.launch, found.tasks_per_node
    if not _in_step(case) or launch.launcher not in LAUNCHERS or tasks is None or tasks < 2:
        return None
    ranks = _known(launch.ranks_per_node)
    each = ranks // tasks if ranks is not None and ranks % tasks == 0 else None
    if each is None or each < 2:
        return None
    gpus = f" on {found.gpus_per_node} GPUs" if found.gpus_per_node else ""
    message = (
        f"srun starts {launch.launcher} in each of the {tasks} tasks of a node, and each starts {each} processes: "
        f"{tasks * each} processes{gpus}; one task per node is enough"
    )
    where = (("tasks_per_node", f"{tasks} tasks per node"), ("tasks", f"{tasks} tasks per node"))
    return TasksMismatch(message, None, Severity.error, where, tuple(_one_task(case, found, tasks)))


def _one_task(case: Case, found: Allocation, tasks: int) -> Iterator[Proposal]:
    """One task per node, with the CPUs of all tasks that it replaces."""
    request = case.study.request
    if request is None or request.tasks is not None or "tasks_per_node" not in request.origins:
        return
    changes = [Change("request.tasks_per_node", 1)]
    if request.cpus_per_gpu is None and found.cpus_per_node is not None and not request.exclusive:
        changes.append(Change("request.cpus_per_task", found.cpus_per_node))
    yield Proposal("one task per node", tuple(changes), reason="the number of processes changes")


def _processes_and_gpus(case: Case, request: Request, found: Allocation) -> Iterator[TasksMismatch]:
    """Processes of a node against its GPUs, where the launch line says how many there are."""
    launch, gpus = case.study.launch, found.gpus_per_node
    said = launch.ranks_per_node if launch.ranks_per_node is not None else launch.total_ranks
    ranks = _known(launch.ranks_per_node)
    if ranks is None and launch.total_ranks is not None:
        nodes, total = _known(launch.nodes) or found.nodes, _known(launch.total_ranks)
        ranks = None if total is None or not nodes else -(-total // nodes)
    if ranks is None and launch.launcher == "srun":
        ranks = found.tasks_per_node
    if not gpus or ranks is None or ranks == gpus or case.job.parallel.trials_per_gpu not in (1, None):
        return
    where = (
        ("gpus_per_node", f"{gpus} GPUs per node"),
        ("gpus", f"{gpus} GPUs per node"),
        ("tasks_per_node", f"{found.tasks_per_node} tasks per node"),
    )
    counted = f"{plural(ranks, 'process')} per node on {plural(gpus, 'GPU')}"
    if launch.launcher not in (*LAUNCHERS, "accelerate") and not _one_gpu_each(case):
        return
    if ranks > gpus:
        message = f"{counted}: several processes share one GPU, and each needs its own memory"
        yield TasksMismatch(message, _origin(said), Severity.error, where)
    elif SHARES_OUT.search(text_of(case)) is None:
        message = f"{counted}: {plural(gpus - ranks, 'GPU')} of each node stay idle"
        yield TasksMismatch(message, _origin(said), Severity.warning, where)


def _one_gpu_each(case: Case) -> bool:
    """Whether the program is known to use one GPU per process."""
    return case.job.parallel.strategy in ("ddp", "fsdp", "zero1", "zero2", "zero3")


def _nodes(case: Case, found: Allocation) -> Iterator[TasksMismatch]:
    """The requested nodes and the nodes that the launch uses."""
    launch, nodes = case.study.launch, found.nodes
    if nodes is None:
        return
    said = _known(launch.nodes)
    where = (("nodes", f"{nodes} nodes"), ("tasks", f"{nodes} nodes"))
    if said is not None and said != nodes and launch.launcher in (*LAUNCHERS, "accelerate"):
        message = f"{launch.launcher} is set to {said} node{'s' * (said != 1)}, and {nodes} are requested"
        yield TasksMismatch(message, _origin(launch.nodes), Severity.error, where)
    elif nodes > 1 and launch.launcher in ("python", "torchrun") and _stays_on_its_node(case):
        message = (
            f"{nodes} nodes are requested, but lines without srun run on the first node only: "
            f"start {launch.launcher} with srun"
        )
        yield TasksMismatch(message, None, Severity.warning, where)


def _stays_on_its_node(case: Case) -> bool:
    """Whether nothing that is read can start a process on another node, and all that matters is read."""
    text = text_of(case)
    known = case.study.program is not None or SEVERAL_NODES.search(text) is not None
    return known and not _in_step(case) and STARTERS.search(text) is None


def _lightning(case: Case, request: Request, found: Allocation) -> Iterator[TasksMismatch]:
    """Lightning expects one task per device on each node of its Trainer, and stops if srun starts another number."""
    if case.fact("framework") != "lightning" or not _in_step(case):
        return
    for setting, field, has, name in (
        ("devices", "parallel.ranks_per_node", found.tasks_per_node, "tasks_per_node"),
        ("num_nodes", "parallel.nodes", found.nodes, "nodes"),
    ):
        said = _said(case, request, setting, field)
        if said is None or has is None or said[0] == has:
            continue
        value, origin = said
        what = "tasks per node" if setting == "devices" else "nodes"
        message = f"Trainer({setting}={value}) needs {value} {what}, and srun starts {has}"
        yield TasksMismatch(message, origin, Severity.error, ((name, f"{has} {what}"),))


def _said(case: Case, request: Request, setting: str, field: str) -> tuple[int, Origin] | None:
    """The value that the Trainer gets, and its place: in the program, or in a setting of that name."""
    bound = case.bound(field)
    exprs = [] if bound is None else [bound.expr]
    exprs += [expr for key, expr in case.worst_box.constants.items() if key.rpartition(".")[2] == setting]
    places = set(request.origins.values())
    for expr in exprs:
        value, origin = _whole(expr), _origin(expr)
        if value is not None and origin is not None and origin not in places:
            return value, origin
    return None


def _whole(expr: Expr) -> int | None:
    value = evaluate(expr)
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def cpus_lost(case: Case, request: Request) -> str | None:
    """A text if the tasks of the step get one CPU although the job asks for more; None if they do not, or may not."""
    version = case.cluster.slurm_version if case.cluster is not None else None
    each, environment = request.cpus_per_task, case.study.launch.environment
    if version is None or not NOT_INHERITED[0] <= version < NOT_INHERITED[1]:
        return None
    if STEP not in environment or STEP_CPUS in environment or not isinstance(each, int) or each < 2:
        return None
    said = f"srun of SLURM {version[0]}.{version[1]:02d} does not inherit --cpus-per-task={each}"
    return f"{said}: every task of the step gets one CPU; give srun -c {each}, or export {STEP_CPUS}"


def export(request: Request) -> tuple[Proposal, ...]:
    """Export the variable after the directives."""
    if request.insert_at is None:
        return ()
    edit = Edit(request.insert_at.path, request.insert_at.span, f'export {STEP_CPUS}="$SLURM_CPUS_PER_TASK"\n')
    return (Proposal(f"export {STEP_CPUS}", edits=(edit,), reason="the step gets more CPUs than before"),)
