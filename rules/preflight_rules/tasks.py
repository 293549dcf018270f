"""How SLURM's tasks, a launcher's processes and the GPUs of a node fit together."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.slurm.allocation import Allocation
from preflight.vocabulary.findings import Change, Proposal, Severity
from preflight.vocabulary.reading import Request
from preflight.vocabulary.records import dataclass
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Expr, Origin, evaluate, origins
from preflight_rules.common import worst_box
from preflight_rules.steps import STEP, cpus_lost, export

LAUNCHERS = ("torchrun", "deepspeed")
"""Launchers that start a number of processes of their own in every place they are started."""


@dataclass(frozen=True)
class Mismatch:
    """One thing that does not add up; `related` names fields of the request, with words."""

    message: str
    origin: Origin | None
    severity: Severity = Severity.warning
    related: tuple[tuple[str, str], ...] = ()
    proposals: tuple[Proposal, ...] = ()


def mismatches(case: Case, request: Request, found: Allocation) -> Iterator[Mismatch]:
    """Everything about one launch that does not add up."""
    doubled = _launcher_per_task(case, found)
    if doubled is not None:
        yield doubled
    else:
        yield from _processes_and_gpus(case, request, found)
    lost = cpus_lost(case, request)
    if lost is not None:
        yield Mismatch(lost, None, Severity.warning, (("cpus_per_task", "asked for here"),), export(request))
    yield from _nodes(case, found)
    yield from _lightning(case, request, found)


def _known(expr: Expr | None) -> int | None:
    value = None if expr is None else evaluate(expr)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _origin(expr: Expr | None) -> Origin | None:
    return None if expr is None else next(origins(expr), None)


def _in_step(case: Case) -> bool:
    return STEP in case.study.launch.environment


def _launcher_per_task(case: Case, found: Allocation) -> Mismatch | None:
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
    return Mismatch(message, None, Severity.error, where, tuple(_one_task(case, found, tasks)))


def _one_task(case: Case, found: Allocation, tasks: int) -> Iterator[Proposal]:
    """One task per node that has all the CPUs of the tasks it replaces."""
    request = case.study.request
    if request is None or request.tasks is not None or "tasks_per_node" not in request.origins:
        return
    changes = [Change("request.tasks_per_node", 1)]
    if request.cpus_per_gpu is None and found.cpus_per_node is not None and not request.exclusive:
        changes.append(Change("request.cpus_per_task", found.cpus_per_node))
    yield Proposal("one task per node", tuple(changes), reason="the number of processes changes")


def _processes_and_gpus(case: Case, request: Request, found: Allocation) -> Iterator[Mismatch]:
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
    if ranks > gpus:
        message = f"{_processes(ranks)} per node on {_gpus(gpus)}: several share one GPU, each with its own memory"
        yield Mismatch(message, _origin(said), Severity.error, where)
    elif ranks > 1 or launch.launcher in (*LAUNCHERS, "accelerate") or _one_gpu_each(case):
        message = f"{_processes(ranks)} per node on {_gpus(gpus)}: {_gpus(gpus - ranks)} of each node idle"
        yield Mismatch(message, _origin(said), Severity.warning, where)


def _one_gpu_each(case: Case) -> bool:
    """Whether the program is known to use one GPU per process."""
    return case.job.parallel.strategy in ("ddp", "fsdp", "zero1", "zero2", "zero3")


def _processes(number: int) -> str:
    return f"{number} process" if number == 1 else f"{number} processes"


def _gpus(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"


def _nodes(case: Case, found: Allocation) -> Iterator[Mismatch]:
    """Nodes that are asked for and nodes that the launch uses."""
    launch, nodes = case.study.launch, found.nodes
    if nodes is None:
        return
    said = _known(launch.nodes)
    where = (("nodes", f"{nodes} nodes"), ("tasks", f"{nodes} nodes"))
    if said is not None and said != nodes and launch.launcher in (*LAUNCHERS, "accelerate"):
        message = f"{launch.launcher} is told of {said} node{'s' * (said != 1)}, and {nodes} are requested"
        yield Mismatch(message, _origin(launch.nodes), Severity.error, where)
    elif nodes > 1 and not _in_step(case) and launch.launcher in ("python", "torchrun"):
        message = (
            f"{nodes} nodes are requested, but the script's own lines run on the first one alone: "
            f"start {launch.launcher} with srun"
        )
        yield Mismatch(message, None, Severity.warning, where)


def _lightning(case: Case, request: Request, found: Allocation) -> Iterator[Mismatch]:
    """Lightning expects one task per device on each of its Trainer's nodes, and stops where srun starts others."""
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
        message = f"Trainer({setting}={value}) needs {value} {what}, and srun has {has}"
        yield Mismatch(message, origin, Severity.error, ((name, f"{has} {what}"),))


def _said(case: Case, request: Request, setting: str, field: str) -> tuple[int, Origin] | None:
    """What the Trainer is told, and where: by the program, or by a setting of that name."""
    bound = case.bound(field)
    exprs = [] if bound is None else [bound.expr]
    exprs += [expr for key, expr in worst_box(case).constants.items() if key.rpartition(".")[2] == setting]
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
