"""slurm.conf as a Cluster: `preflight machine import slurm`. Only NodeName, PartitionName and a few globals matter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.machines.clusters import MachineError
from preflight.machines.model import Cluster, Node, Partition
from preflight.machines.sizes import slurm_minutes

MIB = 2**20
_UNLIMITED = ("UNLIMITED", "INFINITE", "0")

_SPELLED = {"cputot": "cpus", "availablefeatures": "features", "feature": "features"}
"""What `scontrol show node` calls things, and what slurm.conf does."""


def read_slurm_conf(text: str, path: str = "slurm.conf") -> Cluster:
    """The cluster that a slurm.conf describes. Raises MachineError with the line of what cannot be read.

    `NodeName=DEFAULT` and `PartitionName=DEFAULT` lines set what later lines leave out. Include files are not followed.
    """
    nodes: list[Node] = []
    partitions: list[tuple[int, dict[str, str]]] = []
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    globals_: dict[str, str] = {}
    names: dict[str, str] = {}
    for number, values in _lines(text):
        kind = next(iter(values))
        if kind not in defaults:
            globals_.update(values)
            continue
        if values[kind].upper() == "DEFAULT":
            defaults[kind].update(values)
            continue
        merged = {**defaults[kind], **values}
        if kind == "partitionname":
            partitions.append((number, merged))
            continue
        try:
            nodes.append(_node(merged))
        except ValueError as error:
            raise MachineError(f"{path}:{number}: {error}") from error
        names.update(dict.fromkeys(expand(merged["nodename"]), nodes[-1].name))
    if not nodes:
        raise MachineError(f"{path}: no NodeName line")
    return Cluster(
        name=globals_.get("clustername", "slurm"),
        nodes=tuple(nodes),
        partitions=tuple(_partition(values, names, path, number) for number, values in partitions),
        enforce_part_limits=globals_.get("enforcepartlimits", "NO").upper().replace("YES", "ALL"),
        slurm_version=_version(globals_.get("slurm_version")),
        path=path,
        defaults=_memory_defaults(globals_),
    )


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    number, whole = 1, ""
    for at, raw in enumerate(text.splitlines(), 1):
        number = number if whole else at
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        pairs = re.findall(r'([\w:]+)\s*=\s*("[^"]*"|\S+)', whole + line)
        values = {_SPELLED.get(key.lower(), key.lower()): value.strip('"') for key, value in pairs if value != "(null)"}
        whole = ""
        if values:
            yield number, values


def expand(pattern: str) -> list[str]:
    """The names in a hostlist: "gpu[1-3,7],cpu1" -> gpu1 gpu2 gpu3 gpu7 cpu1 (at most 100,000)."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", pattern):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\]([^\[]*)", part)
        if found is None:
            names.append(part)
            continue
        for piece in found[2].split(","):
            low, _, high = piece.partition("-")
            if not low.isdigit() or (high and not high.isdigit()):
                continue
            last = min(int(high or low), int(low) + 100_000)
            names += [f"{found[1]}{n:0{len(low)}d}{found[3]}" for n in range(int(low), last + 1)]
    return names


def _node(values: dict[str, str]) -> Node:
    name = values["nodename"]
    wanted = ("cpus", "realmemory", "sockets", "corespersocket", "threadspercore")
    numbers = {key: values[key] for key in wanted if key in values}
    for key, value in numbers.items():
        if not value.isdigit():
            raise ValueError(f"{key}={value} is no number")
    cpus = int(numbers["cpus"]) if "cpus" in numbers else None
    if cpus is None and "sockets" in numbers:
        cpus = int(numbers["sockets"]) * int(numbers.get("corespersocket", 1)) * int(numbers.get("threadspercore", 1))
    kind, gpus = _gres(values.get("gres", ""))
    features = values.get("features", "")
    return Node(
        name=name,
        memory=int(numbers["realmemory"]) * MIB if "realmemory" in numbers else None,
        cpus=cpus,
        gpus=gpus,
        gpu=kind,
        gpu_type=kind,
        count=max(1, len(expand(name))),
        features=tuple(feature for feature in features.split(",") if feature),
    )


def _gres(text: str) -> tuple[str | None, int]:
    for part in text.split(","):
        name, *rest = re.sub(r"\(.*\)$", "", part).split(":")
        if name == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
            return (rest[0] if rest and rest[0] != "no_consume" else None), count
    return None, 0


def _partition(values: dict[str, str], names: dict[str, str], path: str, number: int) -> Partition:
    wanted = values.get("nodes", "")
    found = list(names.values()) if wanted.upper() == "ALL" else [names.get(name, "") for name in expand(wanted)]
    if "" in found:
        raise MachineError(f"{path}:{number}: partition {values['partitionname']}: Nodes={wanted} names unknown nodes")
    sizes = _memory_defaults(values)
    return Partition(
        name=values["partitionname"],
        nodes=tuple(dict.fromkeys(found)),
        default=values.get("default", "NO").upper() == "YES",
        max_minutes=_minutes(values.get("maxtime")),
        default_memory_per_cpu=sizes.get("memory_per_cpu"),
        default_memory_per_node=sizes.get("memory_per_node"),
        default_memory_per_gpu=sizes.get("memory_per_gpu"),
        max_memory_per_cpu=_mib(values.get("maxmempercpu")),
        max_memory_per_node=_mib(values.get("maxmempernode")),
    )


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return None if found is None else (int(found[1]), int(found[2]))


def _memory_defaults(values: dict[str, str]) -> dict[str, int]:
    found = {f"memory_per_{unit}": _mib(values.get(f"defmemper{unit}")) for unit in ("cpu", "node", "gpu")}
    return {name: size for name, size in found.items() if size is not None}


def _mib(text: str | None) -> int | None:
    return None if text is None or text.upper() in _UNLIMITED or not text.isdigit() else int(text) * MIB


def _minutes(text: str | None) -> int | None:
    return None if text is None or text.upper() in _UNLIMITED else slurm_minutes(text)
