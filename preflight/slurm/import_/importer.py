"""Imports a SLURM cluster as a machine file: from slurm.conf, or from SLURM's commands on a login node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from preflight.machines.gpus import candidates
from preflight.machines.hostlist import expand, fold, natural
from preflight.slurm.import_.ask import ask
from preflight.slurm.import_.conf import cluster_of, read_slurm_conf
from preflight.slurm.import_.json import lines_of
from preflight.slurm.import_.lines import read_text
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.machine import Cluster, Node

TEXT = "give one file with the output of scontrol show config, scontrol show node -o and scontrol show partition -o"


def import_slurm(conf: Path | None = None) -> Cluster:
    """The cluster, with equal nodes joined to one type. Raises MachineError.

    `conf`: a slurm.conf (gres.conf and cgroup.conf in its folder are read, too), or a file with the output of scontrol
    or `sinfo --json`. None: the output of the cluster's commands.
    """
    if conf is None:
        lines, who = ask()
        found = cluster_of(lines, who)
        return by_type(found if who == "scontrol" else nodes_alone(found))
    text = read_text(conf)
    if text.lstrip().startswith("{"):
        return by_type(nodes_alone(_default_known(cluster_of(lines_of(text, str(conf)), str(conf)))))
    gres, cgroup = (conf.parent / name for name in ("gres.conf", "cgroup.conf"))
    return by_type(
        read_slurm_conf(
            text,
            str(conf),
            conf.parent,
            read_text(gres) if gres.is_file() else "",
            read_text(cgroup) if cgroup.is_file() else "",
        )
    )


def nodes_alone(cluster: Cluster) -> Cluster:
    """The cluster without its configuration, of which a list of nodes and partitions says nothing."""
    return replace(cluster, max_array_size=None, gres_types=None, licenses=None)


def _default_known(cluster: Cluster) -> Cluster:
    """The cluster with its default partition, which JSON up to 25.11 does not name. Raises MachineError."""
    if not cluster.partitions:
        raise MachineError(f"{cluster.path}: this JSON lists no partitions: {TEXT}")
    if len(cluster.partitions) == 1:
        return replace(cluster, partitions=(replace(cluster.partitions[0], default=True),))
    if not any(one.default for one in cluster.partitions):
        names = ", ".join(one.name for one in cluster.partitions)
        raise MachineError(f"{cluster.path}: this JSON does not say which of {names} is the default partition: {TEXT}")
    return cluster


def by_type(cluster: Cluster) -> Cluster:
    """The cluster with one type for equal nodes of the same partitions, and with known names of GPUs."""
    member: dict[str, tuple[str, ...]] = {node.name: () for node in cluster.nodes}
    for partition in cluster.partitions:
        for name in partition.nodes:
            member[name] = (*member[name], partition.name)
    groups: dict[tuple[Node, tuple[str, ...]], list[Node]] = {}
    for node in sorted(cluster.nodes, key=lambda node: natural(node.name)):
        groups.setdefault((replace(node, name="", count=1, hosts=None), member[node.name]), []).append(node)
    nodes: list[Node] = []
    of: dict[str, str] = {}
    for ((key, _), alike), name in zip(groups.items(), _type_names(groups.values()), strict=True):
        hosts = [host for node in alike for host in expand(node.hosts or node.name)]
        nodes.append(replace(key, name=name, count=len(hosts), hosts=fold(hosts), gpu=_gpu(key.gpu, key.features)))
        of.update((node.name, name) for node in alike)
    partitions = tuple(
        replace(one, nodes=tuple(dict.fromkeys(sorted(of[node] for node in one.nodes)))) for one in cluster.partitions
    )
    return replace(cluster, nodes=tuple(nodes), partitions=partitions)


def _type_names(groups: Iterable[list[Node]]) -> list[str]:
    """A name for each type: the common start of its nodes' names, else the name of the first node."""
    found: list[str] = []
    for nodes in groups:
        stem = nodes[0].name.rstrip("0123456789").rstrip("-_.") or nodes[0].name
        alike = all(node.name.startswith(stem) for node in nodes)
        name = stem if alike and stem not in found else nodes[0].name
        found.append(name)
    return found


def _gpu(kind: str | None, features: tuple[str, ...]) -> str | None:
    """The GPU of a GRES type. If the type can mean several GPUs ("a100"), a feature ("a100_80gb") decides.

    Without such a feature the type is kept: the file does not say more than the cluster.
    """
    if kind is None:
        return None
    known = candidates(kind)
    for feature in features if len(known) > 1 else ():
        named = candidates(feature)
        if len(named) == 1 and named[0] in known:
            return named[0].name
    return kind if len(known) > 1 else known[0].name if known else None
