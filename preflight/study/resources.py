"""What the launch and SLURM's request say about processes, nodes and memory, as bindings of the lowest rank but one."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.dialects.reading import Binding, Launch, Request
from preflight.values import Const, Expr, Op, Origin, Unknown, Value

RANK = 2


def resources(launch: Launch, request: Request | None) -> Iterator[tuple[Binding, str]]:
    """Bindings of parallel.* and machine.*, each with where it comes from in words."""
    nodes = launch.nodes or _const(request, "nodes")
    ranks = launch.ranks_per_node
    if ranks is None and launch.total_ranks is not None:
        ranks = launch.total_ranks if nodes is None else Op("//", (launch.total_ranks, nodes))
    if ranks is None and request is not None and launch.launcher == "srun":
        ranks = _tasks_per_node(request, nodes)
    gpus = _const(request, "gpus_per_node")
    if gpus is None and request is not None and isinstance(request.gpus, int) and nodes is not None:
        gpus = Op("//", (Const(request.gpus, request.origins.get("gpus")), nodes))
    if gpus is None:
        gpus = ranks
    named = {
        "parallel.nodes": nodes, "parallel.ranks_per_node": ranks, "parallel.gpus_per_node": gpus,
        "parallel.trials_per_gpu": launch.trials_per_gpu,
    }  # fmt: skip
    for name, expr in named.items():
        if expr is not None:
            yield Binding(name, expr, RANK), "the launch"
    memory = _const(request, "memory")
    if memory is not None and not (isinstance(memory, Const) and memory.value == 0):
        yield Binding("machine.memory_limit", memory, RANK), "the request"


def _const(request: Request | None, name: str) -> Expr | None:
    if request is None:
        return None
    value: Value = getattr(request, name)
    origin: Origin | None = request.origins.get(name)
    return None if value is None else Const(value, origin)


def _tasks_per_node(request: Request, nodes: Expr | None) -> Expr | None:
    per_node = _const(request, "tasks_per_node")
    if per_node is not None:
        return per_node
    tasks = _const(request, "tasks")
    if tasks is None or isinstance(request.tasks, Unknown):
        return tasks
    return tasks if nodes is None else Op("//", (tasks, nodes))
