"""Machine files: the nodes and partitions that jobs run on, in a small TOML file that a person can write.

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

from msgspec import to_builtins

from preflight.machines.cluster_dump import dump_machine
from preflight.machines.cluster_file import parse_machine
from preflight.system import observed
from preflight.system.files import UnreadableFile, read_text, user_directory
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
    """The folder of machines that are known by name, one TOML file each. Raises MachineError."""
    folder = user_directory("config")
    if folder is None:
        raise MachineError("XDG_CONFIG_HOME is a relative path: it must be absolute")
    return folder / "machines"


def saved_machines() -> list[str]:
    """Names of the machines that were saved, sorted."""
    folder = machines_dir()
    found = observed.names(folder) if observed.is_dir(folder) else []
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def find_machine(name: str, root: Path, may_read: Callable[[Path], bool] | None = None) -> Cluster:
    """The machine of a file (relative to `root`), else of the name (`machines_dir()/NAME.toml`). Raises MachineError.

    `may_read`: the files that a name in a checked tree may lead to; None: any file, because the user named it.
    """
    path, plainly = root / name, os.path.basename(name) == name
    if observed.lexists(path):
        if may_read is not None and not may_read(path):
            raise MachineError(f"{name} is outside the project: it is read only with --trust {path}")
        return load_machine(path)
    kept = machines_dir() / f"{name}.toml"
    if (plainly or may_read is None) and observed.lexists(kept):
        return load_machine(kept)
    known = ", ".join(saved_machines())
    raise MachineError(
        f"no machine {name!r}: there is no such file, and "
        + (f"the machines that are known are {known}" if known else "no cluster is described on this computer")
        + "; preflight machine list shows them, and the GPUs"
    )


def plain(cluster: Cluster) -> dict[str, object]:
    """A cluster as plain data, for `preflight machine show`."""
    data: dict[str, object] = to_builtins(cluster)
    return data
