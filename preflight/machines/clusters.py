"""Machine files: the nodes and partitions that jobs run on, as a small TOML file a person can write.

    [node.l40s]                 # a node type; a workstation is one of these and no partition
    memory = "513GB"
    cpus = 128
    gpu = "L40S"
    gpus = 4

    [partition.l40s_public]
    nodes = ["l40s"]
    default = true

Sizes are powers of 1024 and a bare number is MiB, as in slurm.conf.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from preflight.machines.model import Cluster, Node, Partition
from preflight.machines.sizes import format_size, parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


class MachineError(Exception):
    """A machine cannot be found or its file is wrong; the message says where (exit status 2)."""


def _size(value: object) -> object:
    size = parse_size(value) if isinstance(value, (str, int, float)) else None
    if size is None:
        raise ValueError(f'{value!r} is not a size like "513GB"')
    return size


Size = Annotated[int, BeforeValidator(_size), Field(ge=1)]


class _NodeTable(BaseModel):
    """`[node.NAME]`: a node type."""

    model_config = ConfigDict(extra="forbid")
    memory: Size | None = None
    cpus: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    gpu: str | None = None
    gpu_type: str | None = None
    swap: Annotated[int, BeforeValidator(_size), Field(ge=0)] | None = None
    shm: Size | None = None
    count: Annotated[int, Field(ge=1)] = 1
    features: list[str] = []


class _PartitionTable(BaseModel):
    """`[partition.NAME]`: a SLURM partition."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[str]
    default: bool = False
    max_minutes: Annotated[int, Field(ge=1)] | None = None
    default_memory_per_cpu: Size | None = None
    default_memory_per_node: Size | None = None
    default_memory_per_gpu: Size | None = None
    max_memory_per_cpu: Size | None = None
    max_memory_per_node: Size | None = None


class _Defaults(BaseModel):
    """`[defaults]`: what the whole cluster gives a job that asks for no memory."""

    model_config = ConfigDict(extra="forbid")
    memory_per_cpu: Size | None = None
    memory_per_node: Size | None = None
    memory_per_gpu: Size | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    slurm_version: str | None = Field(None, pattern=r"^\d+\.\d+")
    enforce_part_limits: str = Field("NO", pattern="^(NO|ANY|ALL|YES)$")
    node: Annotated[dict[str, _NodeTable], Field(min_length=1)]
    partition: dict[str, _PartitionTable] = {}
    defaults: _Defaults = _Defaults()


def load_machine(path: Path) -> Cluster:
    """The cluster a file describes. Raises MachineError with the file, the line and the key at fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse_machine(text, str(path), path.stem)


def parse_machine(text: str, path: str, name: str) -> Cluster:
    """The cluster that a TOML text describes; `path` is for messages, `name` what it is called unless it says so."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"{path}: not valid TOML: {error}") from error
    try:
        file = _File.model_validate(tables)
    except ValidationError as error:
        raise MachineError("\n".join(_explain(text, path, error))) from error
    for partition, table in file.partition.items():
        for node in table.nodes:
            if node not in file.node:
                line = _line(text, ("partition", partition, "nodes"))
                known = ", ".join(file.node)
                raise MachineError(
                    f"{path}:{line}: partition.{partition}.nodes: no [node.{node}] here (there is {known})"
                )
    return _cluster(file, path, name)


def _cluster(file: _File, path: str, name: str) -> Cluster:
    nodes = []
    for key, table in file.node.items():
        gpus = table.gpus if table.gpus is not None else int(table.gpu is not None)
        values = table.model_dump(exclude={"gpus", "features"})
        nodes.append(Node(name=key, gpus=gpus, features=tuple(table.features), **values))
    partitions = [
        Partition(name=key, nodes=tuple(table.nodes), **table.model_dump(exclude={"nodes"}))
        for key, table in file.partition.items()
    ]
    version = tuple(int(part) for part in file.slurm_version.split(".")[:2]) if file.slurm_version else None
    return Cluster(
        name=file.name or name,
        nodes=tuple(nodes),
        partitions=tuple(partitions),
        enforce_part_limits="ALL" if file.enforce_part_limits == "YES" else file.enforce_part_limits,
        slurm_version=None if version is None else (version[0], version[1]),
        path=path,
        defaults={key: size for key, size in file.defaults.model_dump().items() if size is not None},
    )


def _explain(text: str, path: str, error: ValidationError) -> Iterable[str]:
    for item in error.errors(include_url=False):
        key = tuple(str(part) for part in item["loc"])
        message = "no such key" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        yield f"{path}:{_line(text, key)}: {'.'.join(key)}: {message}"


def _line(text: str, key: tuple[str, ...]) -> int:
    """The line (from 1) where a dotted key of the file is written, its table's where the key itself is not found."""
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


def dump_machine(cluster: Cluster) -> str:
    """The cluster as a machine file, the inverse of `parse_machine`."""
    lines = [f"name = {_toml(cluster.name)}"]
    if cluster.slurm_version is not None:
        lines.append(f'slurm_version = "{cluster.slurm_version[0]}.{cluster.slurm_version[1]:02d}"')
    if cluster.enforce_part_limits != "NO":
        lines.append(f'enforce_part_limits = "{cluster.enforce_part_limits}"')
    if cluster.defaults:
        lines += ["", "[defaults]", *(f'{key} = "{format_size(size)}"' for key, size in cluster.defaults.items())]
    for node in cluster.nodes:
        lines += ["", f"[node.{_key(node.name)}]"]
        lines += _entries(node, ("memory", "swap", "shm"), ("cpus", "gpus", "gpu", "gpu_type", "count", "features"))
    for partition in cluster.partitions:
        lines += ["", f"[partition.{_key(partition.name)}]", f"nodes = {_toml(list(partition.nodes))}"]
        sizes = tuple(name for name in _PartitionTable.model_fields if "memory" in name)
        lines += _entries(partition, sizes, ("default", "max_minutes"))
    return "\n".join(lines) + "\n"


def _entries(table: Node | Partition, sizes: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    lines = []
    for name in (*sizes, *others):
        value = getattr(table, name)
        if value is None or value is False or value == () or (name == "count" and value == 1):
            continue
        lines.append(f"{name} = " + (f'"{format_size(value)}"' if name in sizes else _toml(value)))
    return lines


def _toml(value: object) -> str:
    import json

    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # the one character that JSON writes raw and TOML forbids


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def save_machine(cluster: Cluster, path: Path) -> None:
    """Write the cluster as a machine file, whole or not at all."""
    import os
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(dump_machine(cluster))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}") from error


def machines_dir() -> Path:
    """Where machines known by name are kept: one TOML file each."""
    from platformdirs import user_config_path

    return user_config_path("preflight") / "machines"


def find_machine(name: str, root: Path) -> Cluster:
    """The machine of that name, or the file: relative to `root`, then as given, then `machines_dir()/NAME.toml`."""
    tried = [root / name, Path(name), machines_dir() / f"{name}.toml"]
    for path in tried:
        if path.is_file():
            return load_machine(path)
    known = ", ".join(sorted(path.stem for path in machines_dir().glob("*.toml"))) or "none"
    raise MachineError(f"no machine {name!r}: no such file, and no machine of that name (known: {known})")


def plain(cluster: Cluster) -> dict[str, object]:
    """A cluster as plain data, for `preflight machine show`."""
    from dataclasses import asdict

    return asdict(cluster)
