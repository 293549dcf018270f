"""Which nodes of a cluster a request names by partition, feature or GRES type, and which GPU these nodes have."""

from __future__ import annotations

from preflight.machines.gpus import ambiguity, candidates, find_gpu
from preflight.vocabulary.machine import Cluster, Gpu, Node, Partition
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown, Value


def partitions_of(request: Request, cluster: Cluster) -> list[Partition] | str:
    """The requested partitions, else the default one, else all nodes as one partition; or why there is none."""
    everything = Partition("", tuple(node.name for node in cluster.nodes))
    if not cluster.partitions:
        return [everything]
    if isinstance(request.partition, Unknown):
        return list(cluster.partitions)
    if not isinstance(request.partition, str):
        default = [partition for partition in cluster.partitions if partition.default]
        return default or list(cluster.partitions[:1])
    wanted = request.partition.split(",")
    known = {partition.name: partition for partition in cluster.partitions}
    missing = [name for name in wanted if name not in known]
    if missing:
        return f"there is no partition {missing[0]} ({cluster.name} has {', '.join(known)})"
    return [known[name] for name in wanted]


def nodes_of(partition: Partition, cluster: Cluster) -> list[Node]:
    return [node for name in partition.nodes for node in cluster.nodes if node.name == name]


def meets(constraint: Value, node: Node) -> bool:
    """Whether a node type can meet a constraint of features joined by & and |; anything else passes."""
    if not isinstance(constraint, str) or any(letter in constraint for letter in "[]()*$"):
        return True
    return any(all(_feature(one, node) for one in group.split("&")) for group in constraint.split("|"))


def _feature(name: str, node: Node) -> bool:
    if name in node.features or not name:
        return True
    wanted, own = find_gpu(name), find_gpu(node.gpu) if node.gpu else None
    return not node.features and wanted is not None and own is not None and wanted.name == own.name


def is_type(kind: str, node: Node) -> bool:
    """GRES types are case-sensitive; a cluster file that names only the GPU's model is matched by model."""
    if not node.gpus:
        return False
    if node.gpu_type is not None:
        return kind == node.gpu_type or any(one.startswith(f"gpu:{kind}:") for one in node.gres)
    wanted, own = find_gpu(kind), find_gpu(node.gpu) if node.gpu else None
    return wanted is None or own is None or wanted.name == own.name or ambiguity(kind) is not None


def _features(constraint: Value) -> list[Value]:
    """The features that all nodes must have (none if the constraint has a choice)."""
    if not isinstance(constraint, str) or "|" in constraint:
        return []
    return [part.split("*")[0] for part in constraint.strip("[]()").split("&")]


def named_gpu(request: Request) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs that the request may name by type; without a type, by constraint: the smallest is assumed."""
    names = [request.gpu_type] if request.gpu_type is not None else _features(request.constraint)
    for name in names:
        found = candidates(name) if isinstance(name, str) else ()
        if found:
            doubt = ambiguity(str(name))
            return found, (doubt,) if doubt else ()
    return (), ()


def gpu_of(request: Request, node: Node, gpus: int | None) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    if not gpus or node.gpu is None:
        return named_gpu(request)
    kind = request.gpu_type
    if isinstance(kind, str) and kind != node.gpu_type and any(one.startswith(f"gpu:{kind}:") for one in node.gres):
        return named_gpu(request)  # a node with GPUs of several types
    doubt = ambiguity(node.gpu)
    return candidates(node.gpu), (doubt,) if doubt else ()
