"""The nodes of a cluster one by one, as the controller keeps them.

Follows src/common/node_conf.c (_init_node_record) and src/common/gres.c (_get_gres_cnt).
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from preflight.machines.hostlist import expand, natural
from preflight.slurm.controller.gres import number
from preflight.vocabulary.budgets import CLUSTER_HOSTS
from preflight.vocabulary.machine import Cluster, Node, Partition

MIB = 2**20


class Shape(Struct, frozen=True):
    """The resources of a node. None: not known, so no request is refused for it. Memory in MiB."""

    cpus: int
    sockets: int
    cores: int
    """per socket"""
    threads: int
    """ThreadsPerCore"""
    tpc: int
    """CPUs that SLURM counts per core"""
    memory: int | None
    """for jobs"""
    real_memory: int | None
    gres: tuple[tuple[str, str | None, int], ...]
    local_disk: int | None
    any_type: bool
    """The GRES type of the GPUs is not known: every type matches."""

    @property
    def total_cores(self) -> int:
        return self.sockets * self.cores


class Host(Struct, frozen=True):
    name: str
    node: Node
    shape: Shape
    place: int = 0
    """The position in the controller's list of nodes; it decides which nodes are neighbours."""


MANY = 1 << 20
"""CPUs of a node whose number of CPUs is not known."""


@lru_cache(maxsize=256)
def shape_of(node: Node) -> Shape:
    """Sockets, cores and threads: as stated, else one core per CPU (_init_node_record)."""
    cpus = node.cpus if node.cpus is not None else MANY
    threads = node.threads_per_core or 1
    cores = node.cores_per_socket or (1 if node.cpus is not None else MANY)
    sockets = node.sockets or max(1, cpus // (cores * threads))
    total = sockets * cores
    tpc = threads if cpus >= total * threads else max(1, cpus // total)
    memory = None if node.memory is None else (node.memory - (node.memory_reserved or 0)) // MIB
    gres, any_type = _gres(node)
    real = None if node.memory is None else node.memory // MIB
    disk = None if node.local_disk is None else node.local_disk // MIB
    return Shape(cpus, sockets, cores, threads, tpc, memory, real, gres, disk, any_type)


def _gres(node: Node) -> tuple[tuple[tuple[str, str | None, int], ...], bool]:
    found = [_entry(text) for text in node.gres]
    if node.gpus and not any(name == "gpu" for name, _, _ in found):
        found.append(("gpu", node.gpu_type, node.gpus))
        return tuple(found), node.gpu_type is None and not node.gres
    return tuple(found), False


def _entry(text: str) -> tuple[str, str | None, int]:
    """`gpu:a100:4`, `gpu:4`, `nvme:1T` or `gpu` of a node (_get_gres_cnt, src/common/gres.c)."""
    name, *rest = re.sub(r"\(.*\)$", "", text).split(":")
    rest = [one for one in rest if one != "no_consume"]
    count = number(rest[-1]) if rest and rest[-1][:1].isdecimal() else None
    if count is None:
        return name, (rest[0] if rest else None), 1
    return name, (rest[0] if len(rest) > 1 else None), count


@lru_cache(maxsize=64)
def _hosts(nodes: tuple[Node, ...], counted: bool, at_least: int) -> tuple[Host, ...]:
    found = []
    for node in nodes:
        names = expand(node.hosts) if node.hosts else []
        count = len(names) or (node.count if counted else max(node.count, at_least))
        for index in range(min(count, CLUSTER_HOSTS)):
            name = names[index] if index < len(names) else f"{node.name}#{index}"
            found.append(Host(name, node, shape_of(node)))
    if all(node.hosts for node in nodes):
        found.sort(key=lambda host: natural(host.name))
    return tuple(Host(one.name, one.node, one.shape, place) for place, one in enumerate(found[:CLUSTER_HOSTS]))


def hosts_of(cluster: Cluster, at_least: int) -> tuple[Host, ...]:
    """Every node, in the controller's order (by name). If the file counts no nodes, each type has `at_least`."""
    return _hosts(cluster.nodes, counts_nodes(cluster), max(1, at_least))


def counts_nodes(cluster: Cluster) -> bool:
    """Whether the cluster's description says how many nodes of a type there are."""
    return any(node.count > 1 or node.hosts for node in cluster.nodes)


def in_partition(hosts: tuple[Host, ...], partition: Partition) -> list[Host]:
    names = set(partition.nodes)
    return [host for host in hosts if host.node.name in names]
