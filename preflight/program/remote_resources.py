"""What a program asks of the cluster for the functions that it runs there -> parallel.*, machine.*.

`@ray.remote(num_gpus=0.25)` and `tune.with_resources(train, {"gpu": 0.5})` let several processes share a GPU;
submitit's `update_parameters(nodes=2, gpus_per_node=8, tasks_per_node=8)` is a request for SLURM; Modal's
`@app.function(gpu="A100-80GB:2")` names the GPU. Where a program asks differently for different functions, which of
them trains is not known.

Sources: Ray 2.40 (fractional resources: as many processes as fit share a GPU), submitit 1.5 (`auto/auto.py`,
`slurm/slurm.py`), Modal 0.70 (GPU acceleration).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from preflight.program.bindings import bind, constant, fold, same
from preflight.python.objects import Abstract, CallRecord, Container, Instance, to_expr
from preflight.vocabulary.caches import regex
from preflight.vocabulary.reading import VISIBLE, Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, unknown

_SUBMITIT = {
    "parallel.nodes": ("nodes", "slurm_nodes"),
    "parallel.gpus_per_node": ("gpus_per_node", "slurm_gpus_per_node"),
    "parallel.ranks_per_node": ("tasks_per_node", "slurm_ntasks_per_node"),
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
        if isinstance(asked, Instance) and asked.made_by.endswith("ScalingConfig"):
            return ()  # the call that makes it says the same
        return _share(_gpu_of(asked))
    if record.method == "ScalingConfig" and record.name.startswith("ray."):
        return _scaled(record)
    if record.method == "update_parameters" and (record.receiver or "").startswith("submitit."):
        return _submitted(record)
    if record.method in ("function", "cls") and (record.receiver or "").startswith("modal."):
        return _rented(record)
    return ()


TRIALS, RANKS, GPU = "parallel.trials_per_gpu", "parallel.ranks_per_node", "machine.gpu"


def _gpu_of(asked: Abstract | None) -> Expr | None:
    """The GPUs of `{"cpu": 4, "gpu": 0.5}`; unknown of anything but such a mapping."""
    if asked is None or (isinstance(asked, Container) and not asked.open):
        gpu = asked.items.get("gpu", asked.items.get("GPU")) if isinstance(asked, Container) else None
        return None if gpu is None else to_expr(gpu)
    return _open(asked.origin if isinstance(asked, (Container, Instance)) else None)


def _open(origin: Origin | None) -> Const:
    return unknown("which GPUs the program asks for is not known", origin, Cause.run_time)


def _share(gpus: Expr | None) -> Iterator[Binding]:
    """A fraction of a GPU, or several GPUs for one process."""
    value = constant(gpus) if gpus is not None else None
    if gpus is None or (not isinstance(value, Unknown) and (not isinstance(value, (int, float)) or value <= 0)):
        return
    shared = Op("int", (Op("+", (Op("/", (Const(1), gpus)), Const(1e-9))),), gpus.origin)
    trials = fold(Op("if", (Op("<", (gpus, Const(1))), shared, Const(1)), gpus.origin))
    yield bind(TRIALS, trials, Rank.read, gpus.origin)
    yield bind(VISIBLE, fold(Op("max", (Const(1), Op("int", (gpus,))), gpus.origin)), Rank.read, gpus.origin)


def _scaled(record: CallRecord) -> Iterator[Binding]:
    """`ScalingConfig(num_workers=4, use_gpu=True)`: Ray places the workers, on one node or on several."""
    workers, uses = record.argument("num_workers", 1), record.argument("use_gpu", 2)
    if uses is None or constant(uses) is False:
        return
    asked = record.object("resources_per_worker", 3)
    share = _share((_gpu_of(asked) if asked is not None else None) or Const(1, uses.origin))
    if workers is None or constant(workers) == 1:
        yield from share
        return
    yield from (one for one in share if one.field != VISIBLE)  # each sees its own
    words = "Ray decides how many of the workers are on a node"
    yield bind(RANKS, unknown(words, workers.origin, Cause.run_time), Rank.read, workers.origin)


def _submitted(record: CallRecord) -> Iterator[Binding]:
    for field, names in _SUBMITIT.items():
        given = _given(record, names)
        if given is not None:
            yield bind(field, given, Rank.read, given.origin)
    cpus, tasks = _given(record, ("cpus_per_task", "slurm_cpus_per_task")), _given(record, _SUBMITIT[RANKS])
    if cpus is not None:  # SLURM gives them to each task
        each = cpus if tasks is None else fold(Op("*", (cpus, tasks), cpus.origin))
        yield bind("machine.cpus", each, Rank.read, cpus.origin)
    memory = record.kwargs.get("mem_gb", record.kwargs.get("slurm_mem_gb"))
    if memory is not None:
        yield bind("machine.memory_limit", Op("*", (memory, Const(2**30)), memory.origin), Rank.read, memory.origin)


def _given(record: CallRecord, names: Sequence[str]) -> Expr | None:
    return next((record.kwargs[name] for name in names if name in record.kwargs), None)


_GPU = regex(r"(?P<name>[A-Za-z][\w-]*)!?(?::(?P<count>\d+))?$")


def _rented(record: CallRecord) -> Iterator[Binding]:
    """`gpu="A100-80GB:2"`, `gpu=modal.gpu.A100(count=2)`; a list of alternatives or `"any"` leaves it open."""
    asked, made = record.kwargs.get("gpu"), record.object("gpu")
    value = constant(asked) if asked is not None else None
    if asked is None or value is None:
        return
    said = _GPU.match(value) if isinstance(value, str) else None
    name: Expr = _open(asked.origin)
    count: Expr = name
    if said is not None:
        name, count = Const(said["name"], asked.origin), Const(int(said["count"] or 1), asked.origin)
    elif isinstance(made, Instance) and made.record is not None and made.made_by.startswith("modal.gpu."):
        kind, size = made.record.method, constant(made.record.argument("size"))
        name = Const(f"{kind}-{size}" if isinstance(size, str) else kind, asked.origin)
        count = made.record.argument("count") or Const(1, asked.origin)
    if isinstance(name, Const) and isinstance(name.value, str) and name.value.lower() == "any":
        name = _open(asked.origin)
    yield bind(GPU, name, Rank.read, asked.origin)
    yield bind(VISIBLE, count, Rank.read, asked.origin)
