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
from collections.abc import Callable
from pathlib import Path

from preflight.machines.cluster_dump import dump_machine
from preflight.machines.cluster_file import parse_machine
from preflight.system import observed
from preflight.system.regular import UnreadableFile, read_text
from preflight.system.user_directory import user_directory
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.machine import Cluster

__all__ = ["MachineError", "dump_machine", "find_machine", "load_machine", "machines_dir", "parse_machine", "plain"]


def load_machine(path: Path) -> Cluster:
    """The cluster a file describes. Raises MachineError with the file, the line and the key at fault."""
    try:
        text = read_text(path)
    except UnreadableFile as error:
        raise MachineError(f"{path}: cannot be read: {error}") from error
    return parse_machine(text, str(path), path.stem)


def machines_dir() -> Path:
    """Where machines known by name are kept: one TOML file each."""
    folder = user_directory("config")
    if folder is None:
        raise MachineError("the user's directory is named by a relative path: XDG_CONFIG_HOME has to be absolute")
    return folder / "machines"


def saved_machines() -> list[str]:
    """Names of the machines that were saved, sorted."""
    folder = machines_dir()
    found = observed.names(folder) if observed.is_dir(folder) else []
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def find_machine(name: str, root: Path, may_read: Callable[[Path], bool] | None = None) -> Cluster:
    """The machine of that name, or the file: relative to `root`, then `machines_dir()/NAME.toml`.

    `may_read`: which files a name out of a checked tree may lead to; None: every one, the user named it.
    """
    path, plainly = root / name, os.path.basename(name) == name
    if observed.lexists(path):
        if may_read is not None and not may_read(path):
            raise MachineError(f"{name} lies outside the project: it is not read without --trust {path}")
        return load_machine(path)
    kept = machines_dir() / f"{name}.toml"
    if (plainly or may_read is None) and observed.lexists(kept):
        return load_machine(kept)
    known = ", ".join(saved_machines()) or "none"
    raise MachineError(f"no machine {name!r}: no such file, and no machine of that name (known: {known})")


def plain(cluster: Cluster) -> dict[str, object]:
    """A cluster as plain data, for `preflight machine show`."""
    from dataclasses import asdict

    return asdict(cluster)
