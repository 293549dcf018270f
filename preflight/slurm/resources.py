"""Processes, nodes and memory of a launch and its SLURM request, as bindings of Job fields."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.vocabulary.caches import regex
from preflight.vocabulary.notation import allocator_settings
from preflight.vocabulary.reading import GPUS, MEMORY, SHM, Binding, Launch, Rank, Request
from preflight.vocabulary.study import Source
from preflight.vocabulary.values import Const, Expr, Op, Unknown

# These bindings have the rank of what is read from the program's text, so a later Trainer(num_nodes=4) wins. That a
# request names no GPU has the rank of a default: a program that names its accelerator wins.

_GPU = regex(r"gpu|cuda|dgx|tesla|shard|mps|\b(rtx|gtx|[ahlvpt]\d{1,3})", re.IGNORECASE)
"""Names of generic resources, partitions and features that mean GPUs."""

_SOURCES = {
    "nodes": ("nodes", "tasks", "tasks_per_node"),
    "tasks_per_node": ("tasks_per_node", "tasks"),
    "gpus_per_node": ("gpus_per_node", "gpus", "gpus_per_task"),
    "memory_limit": ("memory", "memory_per_cpu", "memory_per_gpu"),
}
"""Field of an allocation -> the options of the request that it comes from, the most direct first."""


def resources(launch: Launch, request: Request | None) -> Iterator[tuple[Binding, Source]]:
    """Bindings of parallel.* and machine.memory_limit, each with its source."""
    asked = _allocation(request) if request is not None else {}
    nodes = launch.nodes if launch.nodes is not None else asked.get("nodes")
    ranks = launch.ranks_per_node
    if ranks is None and launch.total_ranks is not None:
        ranks = launch.total_ranks if nodes is None else Op("//", (launch.total_ranks, nodes))
    if ranks is None and launch.launcher == "srun":
        ranks = asked.get("tasks_per_node")
    gpus = asked.get("gpus_per_node")
    named = {
        "parallel.nodes": (nodes, Source.launch if launch.nodes is not None else Source.request),
        "parallel.ranks_per_node": (ranks, Source.launch),
        "parallel.gpus_per_node": (gpus if gpus is not None else ranks, Source.request if gpus else Source.launch),
        "parallel.trials_per_gpu": (launch.trials_per_gpu, Source.launch),
        "machine.memory_limit": (asked.get("memory_limit"), Source.request),
    }
    for name, (expr, source) in named.items():
        if expr is not None:
            yield Binding(name, expr, Rank.read), source
    if request is not None and GPUS not in launch.environment and _without_gpu(request):
        yield Binding("machine.accelerator", Const("cpu"), Rank.default), Source.request
    elif request is not None:  # what a program does not say
        yield Binding("machine.accelerator", Const("gpu"), Rank.default), Source.request
    yield from _container(launch, "memory_limit" in asked)
    yield from _allocator(launch)


def _without_gpu(request: Request) -> bool:
    """Whether SLURM gives the job no GPU: it requests none, and no whole nodes.

    On clusters that give GPUs with the node, a partition or feature named after GPUs may bring them.
    """
    names = " ".join(str(one) for one in (request.partition, request.constraint) if one is not None)
    asked = (request.gpus_per_node, request.gpus, request.gpus_per_task, request.gpus_per_socket, request.tasks_per_gpu)
    generic = any(_GPU.search(text) for _, text in request.gres)
    if request.components or request.exclusive or generic or any(value is not None for value in asked):
        return False
    return request.memory_per_gpu is None and request.cpus_per_gpu is None and not _GPU.search(names)


def _allocation(request: Request) -> dict[str, Expr]:
    """The resources that a request gets on every cluster. The machine adds those that depend on the cluster."""
    from preflight.slurm.allocation import resolve

    found = resolve(request, None)
    exprs: dict[str, Expr] = {}
    for name, sources in _SOURCES.items():
        value = getattr(found, name)
        source = next((one for one in sources if getattr(request, one) is not None), None)
        if value is not None:
            exprs[name] = Const(value, request.origins.get(source) if source is not None else None)
        elif source is not None and isinstance(getattr(request, source), Unknown):
            exprs[name] = Const(getattr(request, source), request.origins.get(source))
    return exprs


def _container(launch: Launch, asked: bool) -> Iterator[tuple[Binding, Source]]:
    """The resources of the processes in a container; a memory limit of the request overrides the container's."""
    for name, field in ((SHM, "machine.shm"), (MEMORY, "machine.memory_limit")):
        expr = launch.environment.get(name)
        if expr is not None and not (asked and name == MEMORY):
            yield Binding(field, expr, Rank.read), Source.container
    gpus = launch.environment.get(GPUS)
    if isinstance(gpus, Const) and gpus.value == 0:
        yield Binding("machine.accelerator", Const("cpu"), Rank.default), Source.container
    elif isinstance(gpus, Const) and isinstance(gpus.value, int):
        yield Binding("parallel.gpus_per_node", gpus, Rank.read), Source.container


def _allocator(launch: Launch) -> Iterator[tuple[Binding, Source]]:
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        expr = launch.environment.get(variable)
        if isinstance(expr, Const) and isinstance(expr.value, str):
            for name, setting in allocator_settings(expr.value):
                yield Binding(name, Const(setting, expr.origin), Rank.read), Source.environment
