"""Where a study will run: --machine, then --gpu, then what the script asks for, then the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from preflight.errors import SettingsError, UsageError
from preflight.machines.model import Cluster, Gpu, Node
from preflight.settings import Settings
from preflight.study.model import Bound, Study
from preflight.values import Const


@dataclass(frozen=True)
class Wanted:
    """What the user said about machines, looked up once: on the command line, and in the settings."""

    machine: Cluster | None = None
    gpu: Gpu | None = None
    default_machine: Cluster | None = None
    default_gpu: Gpu | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """Where one study runs; None where nobody said."""

    gpu: Gpu | None = None
    cluster: Cluster | None = None
    node: Node | None = None


def wanted(machine: str | None, gpu: str | None, settings: Settings, root: Path, cwd: Path) -> Wanted:
    """The machines and GPUs that are named. Raises UsageError or SettingsError for one that is not known."""
    notes: list[str] = []
    stated_gpu = settings.set.get("machine.gpu", settings.gpu)
    return Wanted(
        _machine(machine, cwd, "--machine"),
        _gpu(gpu, "--gpu", notes),
        _machine(settings.machine, root, "tool.preflight.machine"),
        _gpu(str(stated_gpu) if stated_gpu is not None else None, "tool.preflight.gpu", notes),
        tuple(notes),
    )


def _machine(name: str | None, folder: Path, where: str) -> Cluster | None:
    if name is None:
        return None
    from preflight.machines.clusters import MachineError, find_machine

    try:
        return find_machine(name, folder)
    except MachineError as error:
        raise (UsageError if where.startswith("--") else SettingsError)(f"{where}: {error}") from error


def _gpu(name: str | None, where: str, notes: list[str]) -> Gpu | None:
    if name is None:
        return None
    from preflight.machines import gpus

    found = gpus.find_gpu(name)
    if found is None:
        close = gpus.nearest(name)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; preflight machine list shows the known ones"
        raise (UsageError if where.startswith("--") else SettingsError)(f'{where}: no GPU is known as "{name}"{hint}')
    several = gpus.ambiguity(name)
    if several is not None:
        notes.append(several)
    return found


def choose(study: Study, said: Wanted) -> Target:
    """The target of one study. A partition means something only on a cluster that has it."""
    cluster = said.machine or said.default_machine
    node = _node(cluster, study) if cluster is not None else None
    of_node = _known(node.gpu) if node is not None else None
    if said.machine is not None and of_node is not None:
        gpu: Gpu | None = of_node
    elif said.gpu is not None:
        gpu = said.gpu
    else:
        gpu = of_node if _asked(cluster, study) else None
        gpu = gpu or _requested(study) or _in_files(study) or of_node or said.default_gpu
    return Target(gpu, cluster, node)


def _known(name: str | None) -> Gpu | None:
    if name is None:
        return None
    from preflight.machines.gpus import find_gpu

    return find_gpu(name)


def _requested(study: Study) -> Gpu | None:
    """The GPU that `--gres=gpu:a100:2` or `--constraint` names, where that is a known one."""
    request = study.request
    if request is None:
        return None
    names = [value for value in (request.gpu_type, request.constraint) if isinstance(value, str)]
    return next((found for name in names if (found := _known(name)) is not None), None)


def _in_files(study: Study) -> Gpu | None:
    """The GPU that a setting of the study names as machine.gpu."""
    for box in study.boxes:
        bound = box.fields.get("machine.gpu")
        if bound is not None and isinstance(bound.expr, Const) and isinstance(bound.expr.value, str):
            return _known(bound.expr.value)
    return None


def _asked(cluster: Cluster | None, study: Study) -> bool:
    """Whether the script chooses among the cluster's nodes."""
    request = study.request
    return (
        cluster is not None and request is not None and (request.partition is not None or request.gpu_type is not None)
    )


def _node(cluster: Cluster, study: Study) -> Node | None:
    """The node type that the script gets: of its partition (else the default one), with its GPU type and features.

    Where several remain the one with the least memory: a job may land there.
    """
    request = study.request
    nodes = {node.name: node for node in cluster.nodes}
    partition = request.partition if request is not None else None
    chosen = [p for p in cluster.partitions if (p.name in str(partition).split(",") if partition else p.default)]
    names = [name for p in chosen for name in p.nodes if name in nodes] or list(nodes)
    possible = [nodes[name] for name in dict.fromkeys(names)]
    kind = request.gpu_type if request is not None else None
    if isinstance(kind, str):
        possible = [node for node in possible if _is(node, kind)] or possible
    feature = request.constraint if request is not None else None
    if isinstance(feature, str):
        possible = [node for node in possible if feature in node.features] or possible
    return min(possible, key=lambda node: (node.memory is None, node.memory or 0), default=None)


def _is(node: Node, kind: str) -> bool:
    if node.gpu_type is not None and node.gpu_type.lower() == kind.lower():
        return True
    wanted, had = _known(kind), _known(node.gpu)
    return wanted is not None and wanted == had


def placed(study: Study, target: Target) -> Study:
    """The study with the machine's figures in the fields that its files leave open."""
    values: dict[str, object] = {}
    if target.node is not None:
        node = target.node
        values = {"node_memory": node.memory, "swap": node.swap, "shm": node.shm, "cpus": node.cpus}
        source = f"node type {node.name} of {target.cluster.name}" if target.cluster else f"node type {node.name}"
    else:
        source = "the GPU named"
    if target.gpu is not None:
        values["gpu"] = target.gpu.name
    fields = {f"machine.{name}": value for name, value in values.items() if value is not None}
    if not fields:
        return study
    boxes = []
    for box in study.boxes:
        open_fields = {name: value for name, value in fields.items() if _open(box.fields, name)}
        bounds = {name: Bound(name, Const(value), source=source) for name, value in open_fields.items()}  # type: ignore[arg-type]
        boxes.append(replace(box, fields={**box.fields, **bounds}))
    return replace(study, boxes=tuple(boxes))


def _open(fields: Mapping[str, Bound], name: str) -> bool:
    """Whether nothing but a default speaks of the field; the GPU is the target's in any case."""
    bound = fields.get(name)
    return bound is None or bound.default or name == "machine.gpu"
