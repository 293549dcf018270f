"""Builds a Cluster, node by node, from slurm.conf, gres.conf and cgroup.conf, or from the output of scontrol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from preflight.machines.hostlist import expand
from preflight.slurm.import_.lines import ConfigurationLine, read_lines
from preflight.vocabulary.budgets import HOST_NAMES
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.machine import Cgroup, Cluster, Node, Partition
from preflight.vocabulary.notation import UNLIMITED, major_minor, slurm_minutes

MIB = 2**20
NO_LIMIT = ("UNLIMITED", "INFINITE", "NONE", "0", "")
DEFAULT_ARRAY = 1001
"""MaxArraySize of slurm.conf(5)"""

__all__ = ["expand", "read_slurm_conf"]


def read_slurm_conf(
    text: str, path: str = "slurm.conf", folder: Path | None = None, gres: str = "", cgroup: str = ""
) -> Cluster:
    """The cluster of a slurm.conf, with every node by itself. Raises MachineError with the line of the error.

    `NodeName=DEFAULT` and `PartitionName=DEFAULT` set the defaults of later lines. Included files are relative to
    `folder`. `gres` and `cgroup`: the texts of gres.conf and cgroup.conf.
    """
    cgroup_keys = {k: v for line in read_lines(cgroup, "cgroup.conf") for k, v in line.values.items()}
    return cluster_of(read_lines(text, path, folder), path, tuple(read_lines(gres, "gres.conf")), cgroup_keys)


def cluster_of(
    lines: Iterable[ConfigurationLine],
    path: str,
    gres: Sequence[ConfigurationLine] = (),
    cgroup: Mapping[str, str] | None = None,
) -> Cluster:
    """The cluster of lines of slurm.conf, gres.conf and cgroup.conf. The first description of a node counts.

    Raises MachineError.
    """
    globals_: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    partitions: list[ConfigurationLine] = []
    sets: dict[str, ConfigurationLine] = {}
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in lines:
        kind = line.kind
        if kind == "nodeset":
            sets[line.values[kind]] = line
        if kind not in defaults:
            globals_.update(line.values)  # SLURM takes the last one
            continue
        if line.values[kind].upper() == "DEFAULT":
            defaults[kind].update(line.values)
            continue
        merged = ConfigurationLine(line.path, line.number, {**defaults[kind], **line.values})
        if kind == "partitionname":
            partitions.append(merged)
        else:
            nodes.update((node.name, node) for node in _nodes(merged) if node.name not in nodes)
            if len(nodes) > HOST_NAMES:
                raise line.error(f"there are more than {HOST_NAMES:,} nodes")
    if not nodes:
        raise MachineError(f"{path}: no NodeName line")
    _name_gpus(nodes, gres)
    return Cluster(
        name=globals_.get("clustername", "slurm"),
        nodes=tuple(nodes.values()),
        partitions=tuple(_partition(line, nodes, sets) for line in partitions),
        enforce_part_limits=globals_.get("enforcepartlimits", "NO").upper().replace("YES", "ALL"),
        slurm_version=major_minor(globals_.get("slurm_version")),
        path=path,
        defaults=_defaults(globals_),
        limits=_per_unit(globals_, "maxmemper", ("cpu", "node")),
        gres_types=_gres_types(globals_.get("grestypes"), nodes.values()),
        select_type=globals_.get("selecttype", "").lower().removeprefix("select/") or None,
        select_parameters=_parameters(globals_.get("selecttypeparameters", "")),
        max_array_size=_count(globals_.get("maxarraysize")) or DEFAULT_ARRAY,
        licenses=_licenses(globals_.get("licenses", "")),
        cgroup=_cgroup({**globals_, **(cgroup or {})}),
    )


def _gres_types(text: str | None, nodes: Iterable[Node]) -> tuple[str, ...]:
    """GresTypes; without it, the types of the nodes' resources."""
    if text is not None:
        return tuple(sorted(filter(None, text.split(","))))
    own = {one.split(":")[0] for node in nodes for one in node.gres} | {"gpu" for node in nodes if node.gpus}
    return tuple(sorted(own))


def _parameters(text: str) -> tuple[str, ...]:
    found = [part.upper() for part in text.split(",") if part and part.upper() != "NONE"]
    return tuple(sorted(found))


# --- nodes ----------------------------------------------------------------------------------------------------------

MOST_DIGITS = 18
"""Most digits of a number in slurm.conf: SLURM keeps at most 64 bits."""

_NUMBERS = ("cpus", "realmemory", "sockets", "socketsperboard", "boards", "corespersocket", "threadspercore",
            "memspeclimit", "tmpdisk")  # fmt: skip


def _nodes(line: ConfigurationLine) -> list[Node]:
    values = line.values
    numbers: dict[str, int] = {}
    for key in _NUMBERS:
        if key in values:
            if not values[key].isdecimal() or len(values[key]) > MOST_DIGITS:
                raise line.error(f"{key}={values[key][:MOST_DIGITS]} is not a number")
            numbers[key] = int(values[key])
    names = expand(values["nodename"])
    if not names:
        raise line.error(f"NodeName={values['nodename']} names no node")
    if len(names) > HOST_NAMES:
        raise line.error(f"NodeName={values['nodename'][:60]} names more than {HOST_NAMES:,} nodes")
    sockets, cores, threads, cpus = _layout(numbers)
    kind, gpus, others = _gres(values.get("gres", ""))
    features = tuple(feature for feature in values.get("features", "").split(",") if feature)
    memory = numbers.get("realmemory", 0)
    reserved = numbers.get("memspeclimit", 0)
    return [
        Node(
            name=name,
            memory=memory * MIB if memory > 1 else None,  # 1 is SLURM's default
            cpus=cpus,
            gpus=gpus,
            gpu=kind,
            gpu_type=kind,
            features=features,
            sockets=sockets,
            cores_per_socket=cores,
            threads_per_core=threads,
            gres=others,
            local_disk=numbers.get("tmpdisk", 0) * MIB,
            memory_reserved=reserved * MIB if reserved else None,
            hosts=name,
        )
        for name in names
    ]


def _layout(numbers: Mapping[str, int]) -> tuple[int | None, int | None, int | None, int | None]:
    """Sockets, cores per socket, threads per core (None: only the number of CPUs is known), and CPUs."""
    cores, threads = numbers.get("corespersocket", 1), numbers.get("threadspercore", 1)
    sockets = numbers.get("sockets")
    if sockets is None and "socketsperboard" in numbers:
        sockets = numbers["socketsperboard"] * numbers.get("boards", 1)
    cpus = numbers.get("cpus")
    if sockets is None:
        sockets = max(1, (cpus or 1) // (cores * threads)) if cpus is not None or cores * threads > 1 else None
    if cpus is None and sockets is not None:
        cpus = sockets * cores * threads
    plain = cores == 1 and threads == 1
    return (None, None, None, cpus) if plain else (sockets, cores, threads, cpus)


def _gres(text: str) -> tuple[str | None, int, tuple[str, ...]]:
    """Type and number of the GPUs; and all resources as written, if there are others or several types."""
    gpus: list[tuple[str | None, int]] = []
    parts = [re.sub(r"\([^)]*\)", "", part) for part in re.split(r",(?![^(]*\))", text) if part]
    for part in parts:
        name, *rest = part.split(":")
        if name != "gpu":
            continue
        count = int(rest.pop()) if rest and rest[-1].isdecimal() else 1
        gpus.append((rest[0] if rest and rest[0] != "no_consume" else None, count))
    number = sum(count for _, count in gpus)
    kind = gpus[0][0] if gpus else None
    simple = len(gpus) == len(parts) <= 1
    return kind, number, () if simple else tuple(sorted(parts))


def _name_gpus(nodes: dict[str, Node], lines: Iterable[ConfigurationLine]) -> None:
    """Adds types that only gres.conf names (`NodeName=gpu[1-4] Name=gpu Type=a100 File=...`)."""
    for line in lines:
        values = line.values
        kind = values.get("type")
        if values.get("name") != "gpu" or kind is None:
            continue
        names = expand(values["nodename"]) if "nodename" in values else list(nodes)
        for name in names:
            node = nodes.get(name)
            if node is not None and node.gpus and node.gpu_type is None:
                nodes[name] = replace(node, gpu=kind, gpu_type=kind)


# --- partitions -----------------------------------------------------------------------------------------------------


def _partition(line: ConfigurationLine, nodes: Mapping[str, Node], sets: Mapping[str, ConfigurationLine]) -> Partition:
    values = line.values
    sizes = _per_unit(values, "defmemper", ("cpu", "node", "gpu"))
    jobs = _job_defaults(values.get("jobdefaults", ""))
    most = _per_unit(values, "maxmemper", ("cpu", "node"))
    default_time = _minutes(values.get("defaulttime"))
    return Partition(
        name=values["partitionname"],
        nodes=tuple(_members(values.get("nodes", ""), line, nodes, sets)),
        default=values.get("default", "NO").upper() == "YES",
        max_minutes=_minutes(values.get("maxtime")),
        default_memory_per_cpu=sizes.get("memory_per_cpu"),
        default_memory_per_node=sizes.get("memory_per_node"),
        default_memory_per_gpu=sizes.get("memory_per_gpu", jobs.get("memory_per_gpu")),
        max_memory_per_cpu=most.get("memory_per_cpu"),
        max_memory_per_node=most.get("memory_per_node"),
        default_minutes=default_time,
        default_cpus_per_gpu=_count(values.get("defcpupergpu")) or jobs.get("cpus_per_gpu"),
        min_nodes=_count(values.get("minnodes")),
        max_nodes=_count(values.get("maxnodes")),
        max_cpus_per_node=_count(values.get("maxcpuspernode")),
        exclusive=values.get("oversubscribe", "").upper() == "EXCLUSIVE"
        or values.get("exclusive", "").upper() in ("NODE", "TOPO"),
    )


def _members(
    text: str, line: ConfigurationLine, nodes: Mapping[str, Node], sets: Mapping[str, ConfigurationLine]
) -> list[str]:
    if text.upper() == "ALL":
        return list(nodes)
    found: list[str] = []
    for name in expand(text):
        if name in nodes:
            found.append(name)
        elif name in sets:
            one = sets[name].values
            wanted = set(one.get("features", "").split(","))
            found += expand(one.get("nodes", "")) if one.get("nodes", "").upper() != "ALL" else list(nodes)
            found += [node.name for node in nodes.values() if wanted & set(node.features)]
        else:
            raise line.error(f"partition {line.values['partitionname']}: Nodes={text} names unknown node {name}")
    return [name for name in dict.fromkeys(found) if name in nodes]


# --- globals --------------------------------------------------------------------------------------------------------


def _per_unit(values: Mapping[str, str], prefix: str, units: Sequence[str]) -> dict[str, int]:
    found = {f"memory_per_{unit}": _mib(values.get(f"{prefix}{unit}")) for unit in units}
    return {name: size for name, size in found.items() if size is not None}


def _defaults(values: Mapping[str, str]) -> dict[str, int]:
    jobs = _job_defaults(values.get("jobdefaults", ""))
    cpus = _count(values.get("defcpupergpu"))
    own = {"cpus_per_gpu": cpus} if cpus is not None else {}
    return {**jobs, **own, **_per_unit(values, "defmemper", ("cpu", "node", "gpu"))}


def _licenses(text: str) -> dict[str, int]:
    """`Licenses=matlab:20,ansys`; remote licenses (`name@server`) are in the accounting database."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.partition(":")
        if name and "@" not in name:
            found[name] = found.get(name, 0) + (int(count) if count.isdecimal() else 1)
    return found


def _job_defaults(text: str) -> dict[str, int]:
    """`JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=16000`"""
    found: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.lower() == "defcpupergpu" and value.isdecimal():
            found["cpus_per_gpu"] = int(value)
        elif key.lower() == "defmempergpu" and value.isdecimal():
            found["memory_per_gpu"] = int(value) * MIB
    return found


def _cgroup(values: Mapping[str, str]) -> Cgroup:
    def flag(name: str) -> bool | None:
        text = values.get(name)
        return None if text is None else text.lower() in ("yes", "true", "1")

    def percent(name: str) -> float | None:
        found = re.match(r"(\d+(?:\.\d+)?)", values.get(name, ""))
        return float(found[1]) if found else None

    def unusual(name: str) -> float | None:
        return None if percent(name) in (100.0, 0.0) else percent(name)

    constrained = flag("constrainramspace"), flag("constrainswapspace")
    return Cgroup(*constrained, percent("allowedswapspace"), unusual("allowedramspace"), unusual("maxrampercent"))


def _mib(text: str | None) -> int | None:
    return None if text is None or text.upper() in NO_LIMIT or not text.isdecimal() else int(text) * MIB


def _count(text: str | None) -> int | None:
    return None if text is None or text.upper() in NO_LIMIT or not text.isdecimal() else int(text)


def _minutes(text: str | None) -> int | None:
    found = None if text is None or text.upper() in NO_LIMIT else slurm_minutes(text)
    return None if found == UNLIMITED else found
