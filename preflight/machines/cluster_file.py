"""Parses a machine file with its schema, and names every error with its line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from preflight.vocabulary.budgets import TOML_DOTS
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.machine import Cgroup, Cluster, Node, Partition
from preflight.vocabulary.notation import major_minor, parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

FORMAT = 1
"""The value of `format` in files of this version; a newer preflight writes a higher number."""


def _size(value: object) -> object:
    size = parse_size(value) if isinstance(value, (str, int, float)) else None
    if size is None:
        raise ValueError(f'{value!r} is not a size like "513GB"')
    return size


Size = Annotated[int, BeforeValidator(_size), Field(ge=1)]
Count = Annotated[int, Field(ge=1)]


class NodeTable(BaseModel):
    """`[node.NAME]`: a node type."""

    model_config = ConfigDict(extra="forbid")
    memory: Size | None = None
    memory_reserved: Size | None = None
    cpus: Count | None = None
    sockets: Count | None = None
    cores_per_socket: Count | None = None
    threads_per_core: Count | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    gpu: str | None = None
    gpu_type: str | None = None
    gres: list[str] = []
    swap: Annotated[int, BeforeValidator(_size), Field(ge=0)] | None = None
    local_disk: Annotated[int, BeforeValidator(_size), Field(ge=0)] | None = None
    shm: Size | None = None
    count: Count = 1
    hosts: str | None = None
    features: list[str] = []


class PartitionTable(BaseModel):
    """`[partition.NAME]`: a SLURM partition."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[str]
    default: bool = False
    max_minutes: Count | None = None
    default_minutes: Count | None = None
    default_memory_per_cpu: Size | None = None
    default_memory_per_node: Size | None = None
    default_memory_per_gpu: Size | None = None
    default_cpus_per_gpu: Count | None = None
    max_memory_per_cpu: Size | None = None
    max_memory_per_node: Size | None = None
    min_nodes: Count | None = None
    max_nodes: Count | None = None
    max_cpus_per_node: Count | None = None
    exclusive: bool = False


class Defaults(BaseModel):
    """`[defaults]`: the memory of a job without a memory request, on the whole cluster."""

    model_config = ConfigDict(extra="forbid")
    memory_per_cpu: Size | None = None
    memory_per_node: Size | None = None
    memory_per_gpu: Size | None = None
    cpus_per_gpu: Count | None = None


class ClusterLimits(BaseModel):
    """`[limits]`: the most that a job of the cluster may request."""

    model_config = ConfigDict(extra="forbid")
    memory_per_cpu: Size | None = None
    memory_per_node: Size | None = None


class CgroupTable(BaseModel):
    """`[cgroup]`: the limits that control groups enforce."""

    model_config = ConfigDict(extra="forbid")
    constrain_memory: bool | None = None
    constrain_swap: bool | None = None
    allowed_swap_percent: Annotated[float, Field(ge=0)] | None = None
    allowed_memory_percent: Annotated[float, Field(gt=0)] | None = None
    max_memory_percent: Annotated[float, Field(gt=0)] | None = None


class MachineFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")
    format: int = FORMAT
    name: str | None = None
    slurm_version: str | None = Field(None, pattern=r"^\d+\.\d+")
    enforce_part_limits: str = Field("NO", pattern="^(NO|ANY|ALL|YES)$")
    gres_types: list[str] | None = None
    select_type: str | None = None
    select_parameters: list[str] = []
    max_array_size: Annotated[int, Field(ge=0)] | None = None
    licenses: dict[str, Annotated[int, Field(ge=0)]] | None = None
    node: Annotated[dict[str, NodeTable], Field(min_length=1)]
    partition: dict[str, PartitionTable] = {}
    defaults: Defaults = Defaults()
    limits: ClusterLimits = ClusterLimits()
    cgroup: CgroupTable = CgroupTable()


def parse_machine(text: str, path: str, name: str) -> Cluster:
    """The cluster that a TOML text describes; `path` is for messages; `name` is its name if the file has none.

    Raises MachineError with the line and the key of every error.
    """
    if any(line.count(".") > TOML_DOTS for line in text.splitlines()):
        raise MachineError(f"{path}: it is {TOML_DOTS.over}")
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:  # tomllib's own, or a number of more digits than Python reads
        raise MachineError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise MachineError(f"{path}: not valid TOML: it is nested too deeply") from error
    _version(tables, text, path)
    _arrays(tables, text, path)
    try:
        file = MachineFile.model_validate(tables)
    except ValidationError as error:
        raise MachineError("\n".join(_explain(text, path, error))) from error
    for partition, table in file.partition.items():
        for node in table.nodes:
            if node not in file.node:
                line = _line(text, ("partition", partition, "nodes"))
                known = ", ".join(file.node)
                raise MachineError(
                    f"{path}:{line}: partition.{partition}.nodes: there is no [node.{node}] (there is {known})"
                )
    return _cluster(file, path, name)


def _version(tables: dict[str, Any], text: str, path: str) -> None:
    found = tables.get("format", FORMAT)
    if isinstance(found, int) and found != FORMAT:
        raise MachineError(
            f"{path}:{_line(text, ('format',))}: this version reads format {FORMAT}, and the file has format {found}: "
            "run preflight machine import slurm again, or use the preflight that wrote the file"
        )


def _arrays(tables: dict[str, Any], text: str, path: str) -> None:
    """`[[node]]` is an array of tables; a node is a table with a name. Raises MachineError."""
    for kind in ("node", "partition"):
        if isinstance(tables.get(kind), list):
            line = next((n for n, one in enumerate(text.splitlines(), 1) if re.match(rf"\s*\[\[\s*{kind}", one)), 1)
            names = [row.get("name") for row in tables[kind] if isinstance(row, dict)]
            name = next((one for one in names if isinstance(one, str)), "NAME")
            raise MachineError(f"{path}:{line}: write [{kind}.{name}] instead of [[{kind}]]: each {kind} has a name")


def _cluster(file: MachineFile, path: str, name: str) -> Cluster:
    nodes = []
    for key, table in file.node.items():
        gpus = table.gpus if table.gpus is not None else int(table.gpu is not None)
        values = table.model_dump(exclude={"gpus", "features", "gres"})
        nodes.append(Node(name=key, gpus=gpus, features=tuple(table.features), gres=tuple(table.gres), **values))
    partitions = [
        Partition(name=key, nodes=tuple(table.nodes), **table.model_dump(exclude={"nodes"}))
        for key, table in file.partition.items()
    ]
    return Cluster(
        name=file.name or name,
        nodes=tuple(nodes),
        partitions=tuple(partitions),
        enforce_part_limits="ALL" if file.enforce_part_limits == "YES" else file.enforce_part_limits,
        slurm_version=major_minor(file.slurm_version),
        path=path,
        defaults={key: size for key, size in file.defaults.model_dump().items() if size is not None},
        limits={key: size for key, size in file.limits.model_dump().items() if size is not None},
        gres_types=None if file.gres_types is None else tuple(file.gres_types),
        select_type=file.select_type,
        select_parameters=tuple(file.select_parameters),
        max_array_size=file.max_array_size,
        licenses=file.licenses,
        cgroup=Cgroup(**file.cgroup.model_dump()),
    )


def _explain(text: str, path: str, error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        key = tuple(str(part) for part in item["loc"])
        message = "no such key" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing" and key == ("node",):
            message = "Field required: describe a node type in a table [node.NAME]"
        yield f"{path}:{_line(text, key)}: {'.'.join(key)}: {message}"


def _line(text: str, key: tuple[str, ...]) -> int:
    """The line (from 1) of a dotted key; if the key is not found, the line of its table."""
    at, header = 1, ""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*\[([^\]]+)\]", line)
        if found:
            header = re.sub(r"[\s\"']", "", found[1])
            at = number if header == ".".join(key[:2]) else at
            continue
        name = line.split("=")[0].strip().strip("\"'")
        if name and ".".join(filter(None, (header, name))) == ".".join(key[:3]):
            return number
    return at
