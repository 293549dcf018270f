"""What a program asks of the cluster for the functions that it runs there -> parallel.*, machine.*.

`@ray.remote(num_gpus=0.25)` and `tune.with_resources(train, {"gpu": 0.5})` let several processes share a GPU;
submitit's `update_parameters(nodes=2, gpus_per_node=8, tasks_per_node=8)` is a request for SLURM; Modal's
`@app.function(gpu="A100-80GB:2")` names the GPU. Where a program asks differently for different functions, which of
them trains is not known.

Sources: Ray 2.40 (fractional resources: as many processes as fit share a GPU), submitit 1.5 (`auto/auto.py`,
`slurm/slurm.py`), Modal 0.70 (GPU acceleration).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from preflight.program.bindings import bind, constant, same
from preflight.python.objects import CallRecord, Container, to_expr
from preflight.vocabulary.reading import VISIBLE, Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_SUBMITIT = {
    "parallel.nodes": ("nodes", "slurm_nodes"),
    "parallel.gpus_per_node": ("gpus_per_node", "slurm_gpus_per_node"),
    "parallel.ranks_per_node": ("tasks_per_node", "slurm_ntasks_per_node"),
    "machine.cpus": ("cpus_per_task", "slurm_cpus_per_task"),
}
"""Job field -> the arguments of `update_parameters` that give it."""


def resource_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """The bindings of all requests; a field that they give differently is unknown."""
    found: dict[str, list[Binding]] = {}
    for record in records:
        for binding in _of_record(record):
            found.setdefault(binding.field, []).append(binding)
    return [_agreed(each) for each in found.values()]


def _agreed(each: Sequence[Binding]) -> Binding:
    first = each[0]
    if all(same(first.expr, other.expr) for other in each):
        return first
    words = "the program asks for it differently for several functions, and which of them trains is not known"
    return bind(first.field, Const(Unknown(words, Cause.not_modelled), first.origin), first.rank, first.origin)


def _of_record(record: CallRecord) -> Iterable[Binding]:
    if record.name == "ray.remote" or (record.method == "options" and "num_gpus" in record.kwargs):
        return _share(record.argument("num_gpus"))
    if record.name in ("ray.tune.with_resources", "ray.tune.run"):
        asked = record.object("resources", 1) if record.method == "with_resources" else None
        asked = asked or record.object("resources_per_trial")
        gpu = asked.items.get("gpu", asked.items.get("GPU")) if isinstance(asked, Container) else None
        return _share(None if gpu is None else to_expr(gpu))
    if record.method == "update_parameters" and (record.receiver or "").startswith("submitit."):
        return _submitted(record)
    if record.method in ("function", "cls") and (record.receiver or "").startswith("modal."):
        return _rented(record)
    return ()


def _share(gpus: Expr | None) -> Iterator[Binding]:
    """A fraction of a GPU, or several GPUs for one process."""
    value = constant(gpus) if gpus is not None else None
    if gpus is None or not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        return
    if value < 1:
        yield bind("parallel.trials_per_gpu", Const(int(1 / value + 1e-9), gpus.origin), Rank.read, gpus.origin)
    elif value > 1:
        yield bind(VISIBLE, Const(int(value), gpus.origin), Rank.read, gpus.origin)


def _submitted(record: CallRecord) -> Iterator[Binding]:
    for field, names in _SUBMITIT.items():
        given = next((record.kwargs[name] for name in names if name in record.kwargs), None)
        if given is not None:
            yield bind(field, given, Rank.read, given.origin)
    memory = record.kwargs.get("mem_gb", record.kwargs.get("slurm_mem_gb"))
    if memory is not None:
        yield bind("machine.memory_limit", Op("*", (memory, Const(2**30)), memory.origin), Rank.read, memory.origin)


_GPU = re.compile(r"(?P<name>[A-Za-z][\w-]*)!?(?::(?P<count>\d+))?$")


def _rented(record: CallRecord) -> Iterator[Binding]:
    """`gpu="A100-80GB:2"`; a list of alternatives leaves it open."""
    asked = record.kwargs.get("gpu")
    value = constant(asked) if asked is not None else None
    said = _GPU.match(value) if isinstance(value, str) else None
    if asked is None or said is None or said["name"].lower() == "any":
        return
    yield bind("machine.gpu", Const(said["name"], asked.origin), Rank.read, asked.origin)
    if said["count"] is not None and int(said["count"]) > 1:
        yield bind(VISIBLE, Const(int(said["count"]), asked.origin), Rank.read, asked.origin)
