"""A SLURM cluster as a machine file: from slurm.conf, or from what `scontrol` says on a login node."""

from __future__ import annotations

import subprocess
from pathlib import Path

from preflight.machines.clusters import MachineError
from preflight.machines.gpus import find_gpu
from preflight.machines.model import Cluster, Node
from preflight.machines.slurm_conf import read_slurm_conf
from preflight.records import replace

SECONDS = 30
"""How long scontrol may take: it asks the controller and nothing else."""


def import_slurm(conf: Path | None = None) -> Cluster:
    """The cluster, with equal nodes counted as one type. Raises MachineError."""
    if conf is None:
        text, path = "\n".join(_ask(what) for what in ("config", "node", "partition")), "scontrol"
    else:
        path = str(conf)
        try:
            text = conf.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MachineError(f"{conf}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return by_type(read_slurm_conf(text, path))


def _ask(what: str) -> str:
    command = ["scontrol", "show", what, "-o"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise MachineError("scontrol is not here: run this on a login node, or give slurm.conf with --conf") from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"{' '.join(command)} did not answer within {SECONDS} s") from None
    if found.returncode:
        raise MachineError(f"{' '.join(command)} failed: {found.stderr.strip()}")
    return found.stdout


def by_type(cluster: Cluster) -> Cluster:
    """The cluster with nodes that do not differ merged, named after the first of them; GPUs by their known names."""
    types: dict[Node, str] = {}
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for node in cluster.nodes:
        key = replace(node, name="", count=1)
        name = types.setdefault(key, node.name)
        names[node.name] = name
        counts[name] = counts.get(name, 0) + node.count
    merged = tuple(replace(key, name=name, count=counts[name], gpu=_gpu(key.gpu)) for key, name in types.items())
    partitions = tuple(
        replace(one, nodes=tuple(dict.fromkeys(names[node] for node in one.nodes))) for one in cluster.partitions
    )
    return replace(cluster, nodes=merged, partitions=partitions)


def _gpu(kind: str | None) -> str | None:
    """The GRES type as a GPU's name; left out where it names none (the user fills it in)."""
    found = find_gpu(kind) if kind is not None else None
    return found.name if found is not None else None
