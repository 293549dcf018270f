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

import os
from pathlib import Path

from preflight.machines.cluster_dump import dump_machine
from preflight.machines.cluster_file import parse_machine
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.machine import Cluster

__all__ = ["MachineError", "dump_machine", "find_machine", "load_machine", "machines_dir", "parse_machine", "plain",
           "save_machine"]  # fmt: skip


def load_machine(path: Path) -> Cluster:
    """The cluster a file describes. Raises MachineError with the file, the line and the key at fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse_machine(text, str(path), path.stem)


def save_machine(cluster: Cluster, path: Path) -> None:
    """Write the cluster as a machine file, whole or not at all."""
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
