"""The machine or GPU of a study: from --machine, else --gpu, else the request of the script, else the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.vocabulary.errors import PreflightError, SettingsError, UsageError
from preflight.vocabulary.machine import Cgroup, Cluster, Gpu, Node
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Source, Study
from preflight.vocabulary.values import Const, Value

if TYPE_CHECKING:
    from preflight.engine.trust import Trust
    from preflight.slurm.allocation import Allocation


class Named(Struct, frozen=True):
    """A name that the user gave, and the option or setting that has it."""

    name: str
    where: str


class Wanted(Struct, frozen=True):
    """The machines that the user named, on the command line and in the settings, looked up once."""

    machine: Cluster | None = None
    gpu: Gpu | None = None
    default_machine: Cluster | None = None
    default_gpu: Gpu | None = None
    notes: tuple[str, ...] = ()


class Target(Struct, frozen=True):
    """The machine or GPU of one study; None if it is not stated."""

    gpu: Gpu | None = None
    cluster: Cluster | None = None
    node: Node | None = None
    allocation: Allocation | None = None
    larger: tuple[str, ...] = ()
    """Larger GPUs that the name in the request may mean as well."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions about it that the user did not replace."""
        if self.allocation is None or self.gpu != self.allocation.gpu:
            return ()
        return (*self.allocation.notes, *(self.allocation.doubts if self.larger else ()))


def wanted(
    machine: str | None, gpu: Named | None, settings: Settings, root: Path, cwd: Path, trust: Trust | None = None
) -> Wanted:
    """The machines and GPUs that are named; those of the settings as far as `trust` goes.

    Raises UsageError or SettingsError for one that is not known.
    """
    notes: list[str] = []
    return Wanted(
        _machine(machine, cwd, "--machine"),
        _gpu(gpu, notes),
        _machine(settings.machine, root, "tool.preflight.machine", trust, SettingsError),
        _gpu(gpu_of_settings(settings), notes, SettingsError),
        tuple(notes),
    )


def gpu_of_settings(settings: Settings) -> Named | None:
    """The GPU that settings name, and the setting that does."""
    if "machine.gpu" in settings.set:
        return Named(str(settings.set["machine.gpu"]), "tool.preflight.set.machine.gpu")
    return Named(settings.gpu, "tool.preflight.gpu") if settings.gpu is not None else None


def _machine(
    name: str | None, folder: Path, where: str, trust: Trust | None = None, error: type[PreflightError] = UsageError
) -> Cluster | None:
    return machine_named(name, folder, where, trust, error) if name is not None else None


def machine_named(
    name: str, folder: Path, where: str = "", trust: Trust | None = None, error: type[PreflightError] = UsageError
) -> Cluster:
    """The machine of that name, as `where` names it. Raises `error`."""
    from preflight.machines.clusters import MachineError, find_machine

    try:
        return find_machine(name, folder, trust.reads if trust is not None else None)
    except MachineError as wrong:
        raise error(f"{where}: {wrong}" if where else str(wrong)) from wrong


def _gpu(named: Named | None, notes: list[str], error: type[PreflightError] = UsageError) -> Gpu | None:
    if named is None:
        return None
    from preflight.machines.gpus import ambiguity

    found = gpu_named(named.name, named.where, error)
    several = ambiguity(named.name)
    if several is not None:
        notes.append(several)
    return found


def gpu_named(name: str, where: str, error: type[PreflightError] = UsageError, more: str = "") -> Gpu:
    """The GPU of that name, as `where` names it. Raises `error` with the names that come close, and `more`."""
    from preflight.machines import gpus

    found = gpus.find_gpu(name)
    if found is None:
        close = gpus.nearest(name)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; preflight machine list shows the known ones"
        raise error(f'{where}: no GPU is known as "{name}"{hint}{more}')
    return found


def choose(study: Study, said: Wanted) -> Target:
    """The target of one study. A partition means something only on a cluster that has it."""
    from preflight.slurm.allocation import resolve

    cluster = said.machine or said.default_machine
    allocation = resolve(study.request, cluster) if study.request is not None else None
    node = allocation.node if allocation is not None else smallest_node(cluster)
    of_node = _known(node.gpu) if node is not None else None
    asked, larger = (allocation.gpu, allocation.larger) if allocation is not None else (None, ())
    if said.default_gpu in larger or (larger and said.default_gpu == asked):
        asked, larger = said.default_gpu, ()  # the settings say which of the GPUs of that name it is
    if said.machine is not None and (asked or of_node) is not None:
        gpu = asked or of_node
    else:
        gpu = said.gpu or asked or _in_files(study) or of_node or said.default_gpu
        larger = larger if said.gpu is None else ()
    return Target(gpu, cluster, node, allocation, tuple(one.name for one in larger) if gpu == asked else ())


def smallest_node(cluster: Cluster | None) -> Node | None:
    """Where a job without a script may land: the node type with the least memory."""
    nodes = cluster.nodes if cluster is not None else ()
    return min(nodes, key=lambda node: (node.memory is None, node.memory or 0), default=None)


def _known(name: str | None) -> Gpu | None:
    if name is None:
        return None
    from preflight.machines.gpus import find_gpu

    return find_gpu(name)


def _in_files(study: Study) -> Gpu | None:
    """The GPU that a setting of the study names as machine.gpu."""
    for box in study.boxes:
        bound = box.fields.get("machine.gpu")
        if bound is not None and isinstance(bound.expr, Const) and isinstance(bound.expr.value, str):
            return _known(bound.expr.value)
    return None


def placed(study: Study, target: Target) -> Study:
    """The study with the machine's figures in the fields that its files leave open."""
    node, allocation = target.node, target.allocation
    values: dict[str, Value] = {}
    if node is not None:
        values |= {"node_memory": node.memory, "swap": node.swap, "shm": node.shm, "cpus": node.cpus}
    if allocation is not None:
        from preflight.vocabulary.machine import usable_memory, usable_swap

        held_to = target.cluster.cgroup if target.cluster is not None else Cgroup()
        memory = allocation.memory_limit if allocation.memory_limit is not None else node.memory if node else None
        values["swap"] = usable_swap(node.swap if node is not None else None, memory, held_to)
        if allocation.memory_limit is not None:
            own = node.memory if node is not None else None
            values["memory_limit"] = usable_memory(allocation.memory_limit, own, held_to)
        values["cpus"] = allocation.cpus_per_node or values.get("cpus")
    if target.gpu is not None:
        values["gpu"] = target.gpu.name
    where = f"{node.name} of {target.cluster.name}" if node and target.cluster else ""
    source = Source.machine if where else Source.target
    fields = {f"machine.{name}": Const(value) for name, value in values.items() if value is not None}
    boxes = []
    for box in study.boxes:
        bounds = {
            name: Bound(name, value, source=source, where=where)
            for name, value in fields.items()
            if _open(box.fields, name)
        }
        bounds |= _named_in_file(box.fields, target.gpu)
        bounds |= _requested(box.fields, fields.get("machine.memory_limit"), target.cluster)
        boxes.append(replace(box, fields={**box.fields, **bounds}))
    return replace(study, boxes=tuple(boxes))


def _named_in_file(fields: Mapping[str, Bound], gpu: Gpu | None) -> dict[str, Bound]:
    """The target's GPU with the place in the file that names it, where one does."""
    name = "machine.gpu"
    bound = fields.get(name)
    value = bound.expr.value if bound is not None and isinstance(bound.expr, Const) else None
    if gpu is None or bound is None or bound.origin is None or not isinstance(value, str) or _known(value) != gpu:
        return {}
    return {name: replace(bound, expr=Const(gpu.name, bound.origin))}


def _requested(fields: Mapping[str, Bound], given: Const | None, cluster: Cluster | None) -> dict[str, Bound]:
    """The memory that the cluster gives for a request. Cores are always allocated whole, nodes sometimes."""
    name = "machine.memory_limit"
    bound = fields.get(name)
    if given is None or cluster is None or bound is None or bound.source is not Source.request:
        return {}
    if not isinstance(bound.expr, Const) or bound.expr.value == given.value:
        return {}
    return {name: replace(bound, expr=Const(given.value, bound.expr.origin))}


def _open(fields: Mapping[str, Bound], name: str) -> bool:
    """Whether nothing but a default speaks of the field; the GPU is the target's in any case."""
    bound = fields.get(name)
    return bound is None or name == "machine.gpu" or (isinstance(bound.expr, Const) and bound.expr.value is None)
