"""Writes a cluster as a machine file, short enough to read and to commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from preflight.machines.cluster_file import FORMAT, CgroupTable, NodeTable, PartitionTable
from preflight.vocabulary.machine import Cluster, Node, Partition
from preflight.vocabulary.notation import format_size

_SIZES = ("memory", "swap", "shm", "local_disk")
_NODE = ("hosts", "count", "cpus", "sockets", "cores_per_socket", "threads_per_core", "memory", "memory_reserved",
         "swap", "shm", "local_disk", "gpu", "gpus", "gpu_type", "gres", "features")  # fmt: skip
_PARTITION = tuple(name for name in PartitionTable.model_fields if name != "nodes")
assert set(_NODE) == set(NodeTable.model_fields), "a key of the schema would be lost"


def dump_machine(cluster: Cluster) -> str:
    """The text of the machine file: the inverse of `parse_machine`."""
    return "\n".join(_lines(cluster)) + "\n"


def _lines(cluster: Cluster) -> Iterator[str]:
    yield f"format = {FORMAT}"
    yield f"name = {_toml(cluster.name)}"
    if cluster.slurm_version is not None:
        yield f'slurm_version = "{cluster.slurm_version[0]}.{cluster.slurm_version[1]:02d}"'
    if cluster.enforce_part_limits != "NO":
        yield f'enforce_part_limits = "{cluster.enforce_part_limits}"'
    for name in ("gres_types", "select_type", "select_parameters", "max_array_size"):
        value = getattr(cluster, name)
        if value is not None and (value != () or name == "gres_types"):
            yield f"{name} = {_toml(value)}"
    if cluster.licenses is not None:
        pairs = (f"{_key(name)} = {count}" for name, count in cluster.licenses.items())
        yield f"licenses = {{{', '.join(pairs)}}}"
    for title, sizes in (("defaults", cluster.defaults), ("limits", cluster.limits)):
        if sizes:
            yield from ("", f"[{title}]")
            yield from (f"{key} = {_value(key, value)}" for key, value in sizes.items())
    held = {name: getattr(cluster.cgroup, name) for name in CgroupTable.model_fields}
    if any(value is not None for value in held.values()):
        yield from ("", "[cgroup]")
        yield from (f"{name} = {_toml(value)}" for name, value in held.items() if value is not None)
    for node in cluster.nodes:
        yield from ("", f"[node.{_key(node.name)}]", *_entries(node, _NODE))
    for partition in cluster.partitions:
        yield from ("", f"[partition.{_key(partition.name)}]", f"nodes = {_toml(list(partition.nodes))}")
        yield from _entries(partition, _PARTITION)


def _entries(table: Node | Partition, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = getattr(table, name)
        if value is None or value is False or value == () or (name == "count" and value == 1):
            continue
        if name == "gpus" and not value:
            continue
        yield f"{name} = {_value(name, value)}"


def _value(name: str, value: object) -> str:
    if name == "local_disk" and value == 0:
        return "0"
    size = isinstance(value, int) and not isinstance(value, bool) and ("memory" in name or name in _SIZES)
    return f'"{format_size(int(str(value)))}"' if size else _toml(value)


def _toml(value: object) -> str:
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # the only character that JSON writes as it is and TOML forbids


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
