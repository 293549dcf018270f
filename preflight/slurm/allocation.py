"""The resources of a SLURM request on each node: tasks, CPUs, GPUs, memory; and the nodes that can give them.

The verdict and the counts are those of the controller (preflight.slurm.controller). Where a value or the cluster is not
known, the arithmetic below goes as far as it can. Memory is per node, per allocated CPU or per allocated GPU. A job has
one task, and a task one CPU, unless it asks for more. `--exclusive` gives all CPUs and GPUs of a node, but only the
memory that was requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from preflight.slurm.controller.describe import describe
from preflight.slurm.controller.job import CLIENT, NODE_CONFIG, RequestRefused, whole
from preflight.slurm.placement import gpu_of, is_type, meets, named_gpu, nodes_of, partitions_of
from preflight.vocabulary.machine import Cluster, Gpu, Node, Partition
from preflight.vocabulary.reading import HET_GROUP, Launch, Request
from preflight.vocabulary.values import Unknown, Value, evaluate
from preflight.vocabulary.words import plural

if TYPE_CHECKING:
    from preflight.slurm.controller.share import Share
    from preflight.slurm.controller.verdict import Verdict

MIB = 2**20

_DECISIVE = (
    "nodes", "tasks", "tasks_per_node", "cpus_per_task", "memory", "memory_per_cpu", "memory_per_gpu", "gpus_per_node",
    "gpus", "gpus_per_task", "cpus_per_gpu", "tasks_per_gpu", "partition",
)  # fmt: skip
"""Fields of a request that decide the job's resources on a node."""


class Allocation(Struct, frozen=True):
    """The resources of a job on each of its nodes. None: unknown; `unknown` says why, by the names of these fields.

    `impossible` says why no node can give it (None: some node can, or no cluster is known). `settings` names the fields
    of the request that are the reason, the most direct first. `warnings`: what SLURM accepts but will not start.
    """

    nodes: int | None = None
    tasks_per_node: int | None = None
    cpus_per_node: int | None = None
    gpus_per_node: int | None = None
    memory_limit: int | None = None
    memory_said: str = ""
    """Where memory_limit comes from: "--mem", "--mem-per-cpu x 16 CPUs", "the whole node", ..."""
    node: Node | None = None
    gpu: Gpu | None = None
    larger: tuple[Gpu, ...] = ()
    """Larger GPUs that its name may mean as well."""
    doubts: tuple[str, ...] = ()
    """That its name may mean several."""
    partition: Partition | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    impossible: str | None = None
    answer: str = ""
    """The controller's own message when it refuses; empty where sbatch refuses before it asks the controller."""
    settings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Need(Struct, frozen=True):
    """A request on nodes of one type."""

    nodes: int | None
    tasks_per_node: int | None
    cpus: int | None
    gpus: int | None
    memory: int | None
    said: str


def resolve(request: Request, cluster: Cluster | None) -> Allocation:
    """The allocation that the request leads to; on the first node type of its partitions that can give it."""
    unknown = tuple((name, value.words) for name, value in _values(request) if isinstance(value, Unknown))
    if cluster is None:
        return _anywhere(request, unknown)
    from preflight.slurm.controller.verdict import judge

    verdict = judge(request, cluster)
    partitions = partitions_of(request, cluster)
    if verdict.answer is not None or isinstance(partitions, str):
        return _refusal(request, cluster, verdict, unknown)
    placed = [(verdict.partition, node, share) for node, share in _types(request, cluster, verdict)]
    partition, node, share = placed[0]
    need = _given(request, share, node, partition, cluster)
    if unknown:
        need = _need(request, node, partition, cluster)
    others = tuple(dict.fromkeys(other.name for _, other, _ in placed[1:] if _differs(other, node)))
    notes = (f"nodes of type {', '.join(others)} could run it too; {node.name} is assumed",) if others else ()
    gpus, said = gpu_of(request, node, need.gpus)
    return replace(_allocation(need, node, gpus, partition, unknown, notes), warnings=verdict.over, doubts=said)


def _anywhere(request: Request, unknown: tuple[tuple[str, str], ...]) -> Allocation:
    """Without a cluster: sbatch's own checks, and the arithmetic."""
    try:
        describe(request, None)
    except RequestRefused as refused:
        return Allocation(unknown=unknown, impossible=refused.words, settings=refused.settings)
    gpus, doubts = named_gpu(request)
    return replace(_allocation(_need(request, None, None, None), None, gpus, None, unknown, ()), doubts=doubts)


def _types(request: Request, cluster: Cluster, verdict: Verdict) -> list[tuple[Node, tuple[Share, ...]]]:
    """The node types that can give it alone, in the partition's order; else what the job gets on several types."""
    from preflight.slurm.controller.verdict import on_one_type

    assert verdict.partition is not None
    found = []
    for node in nodes_of(verdict.partition, cluster):
        shares = on_one_type(request, cluster, verdict.partition, node)
        if shares is not None:
            found.append((node, shares))
    if found:
        return found
    least = min(verdict.shares, key=lambda share: share.memory if share.memory is not None else -1)
    return [(least.host.node, verdict.shares)]


def part_of(request: Request, launch: Launch) -> Request:
    """The request with the part of a heterogeneous job that a launch runs in as its first part.

    Without --het-group that is the first part, as for the script's own lines (srun(1)).
    """
    expr = launch.environment.get(HET_GROUP)
    if expr is None:
        return request
    index, parts = evaluate(expr), (request, *request.components)
    if not isinstance(index, int) or not 0 < index < len(parts):
        return request
    others = tuple(replace(one, components=()) for at, one in enumerate(parts) if at != index)
    return replace(parts[index], components=others)


def one_part(request: Request, launch: Launch) -> bool:
    """Whether a launch is known to run in one part of the job, and in which."""
    expr = launch.environment.get(HET_GROUP)
    if not request.components or expr is None:
        return True
    index = evaluate(expr)
    return isinstance(index, int) and 0 <= index <= len(request.components)


def counts_memory(cluster: Cluster) -> bool:
    """Whether the cluster limits a job to the memory that it requests."""
    from preflight.slurm.controller.offer import rules_of

    return rules_of(cluster, Partition("", ())).memory


def _given(
    request: Request, shares: tuple[Share, ...], node: Node, partition: Partition | None, cluster: Cluster
) -> _Need:
    """The resources on the node with the most tasks; among equal ones, on the node with the least memory."""
    busiest = min(shares, key=lambda one: (-one.tasks, -one.gpus, one.memory if one.memory is not None else 0))
    cpus = busiest.cpus if node.cpus is not None else _need(request, node, partition, cluster).cpus
    said = _memory(request, node, partition, cluster, cpus, busiest.gpus)[1]
    if not counts_memory(cluster):
        said = "this cluster does not limit the memory of a job (SelectTypeParameters): the whole node"
    return _Need(len(shares), busiest.tasks, cpus, busiest.gpus, busiest.memory, said)


def _allocation(
    need: _Need,
    node: Node | None,
    gpus: tuple[Gpu, ...],
    partition: Partition | None,
    unknown: tuple[tuple[str, str], ...],
    notes: tuple[str, ...],
) -> Allocation:
    if need.memory is None:
        unknown = (*unknown, ("memory_limit", need.said))
    given = (need.nodes, need.tasks_per_node, need.cpus, need.gpus, need.memory, need.said)
    gpu = gpus[0] if gpus else None
    return Allocation(*given, node, gpu, gpus[1:], partition=partition, unknown=unknown, notes=notes)


def _values(request: Request) -> Iterator[tuple[str, Value]]:
    return ((name, getattr(request, name)) for name in _DECISIVE)


# --- per node -------------------------------------------------------------------------------------------------------


def _need(request: Request, node: Node | None, partition: Partition | None, cluster: Cluster | None) -> _Need:
    nodes = node_count(request, node)
    gpus = _gpus_per_node(request, nodes)
    tasks = tasks_per_node(request, nodes, gpus)
    if gpus is None and request.gpus_per_task is not None and tasks is not None:
        per_task = whole(request.gpus_per_task)
        gpus = None if per_task is None else per_task * tasks
    if gpus is None and not _asks_gpus(request):
        gpus = 0
    cpus = _cpus(request, tasks, gpus)
    if (request.exclusive or (partition is not None and partition.exclusive)) and node is not None:
        cpus, gpus = node.cpus or cpus, node.gpus or gpus
    memory, said = _memory(request, node, partition, cluster, cpus, gpus)
    return _Need(nodes, tasks, cpus, gpus, memory, said)


def _asks_gpus(request: Request) -> bool:
    return any(
        value is not None
        for value in (request.gpus_per_node, request.gpus, request.gpus_per_task, request.tasks_per_gpu)
    )


def node_count(request: Request, node: Node | None) -> int | None:
    """Nodes of the job: as requested, else the fewest that hold its tasks and GPUs; None: not known."""
    if request.nodes is not None:
        return whole(request.nodes)
    counts = [1]
    tasks, per_node = whole(request.tasks), whole(request.tasks_per_node)
    if tasks is not None and per_node:
        counts.append(-(-tasks // per_node))
    gpus = whole(request.gpus)
    if gpus is not None and node is not None and node.gpus:
        counts.append(-(-gpus // node.gpus))
    if isinstance(request.tasks, Unknown):
        return None
    if tasks is not None and not per_node and node is not None:
        cpus = whole(request.cpus_per_task) or 1
        if node.cpus:
            counts.append(-(-tasks * cpus // node.cpus))
        per_task = whole(request.gpus_per_task)
        if per_task and node.gpus:
            counts.append(-(-tasks * per_task // node.gpus))
    return max(counts)


def tasks_per_node(request: Request, nodes: int | None, gpus: int | None = None) -> int | None:
    """The most tasks that one node gets."""
    tasks, per_node = request.tasks, request.tasks_per_node
    if isinstance(tasks, Unknown) or isinstance(per_node, Unknown):
        return None
    total, most = whole(tasks), whole(per_node)
    if total is not None:
        if nodes is None:
            return most
        even = -(-total // nodes)
        return even if most is None else min(even, most)
    if most is not None:
        return most
    if request.tasks_per_gpu is not None:
        each = whole(request.tasks_per_gpu)
        return None if each is None or gpus is None else each * gpus
    per_task, all_gpus = whole(request.gpus_per_task), whole(request.gpus)
    if per_task and all_gpus and nodes:
        return -(-all_gpus // per_task // nodes) or 1
    return 1


def _gpus_per_node(request: Request, nodes: int | None) -> int | None:
    per_node = whole(request.gpus_per_node)
    if per_node is not None:
        return per_node
    total = whole(request.gpus)
    return None if total is None or nodes is None else -(-total // nodes)


def _cpus(request: Request, tasks: int | None, gpus: int | None) -> int | None:
    if request.cpus_per_gpu is not None:
        each = whole(request.cpus_per_gpu)
        return None if each is None or gpus is None else each * gpus
    each = 1 if request.cpus_per_task is None else whole(request.cpus_per_task)
    return None if each is None or tasks is None else each * tasks


def _memory(
    request: Request,
    node: Node | None,
    partition: Partition | None,
    cluster: Cluster | None,
    cpus: int | None,
    gpus: int | None,
) -> tuple[int | None, str]:
    """Bytes per node and where they come from (None, and why they are not known)."""
    if request.memory is not None:
        asked = whole(request.memory)
        return _whole(node, "--mem=0") if asked == 0 else (asked, "--mem" if asked else _why(request.memory))
    for name, value, count in (("cpu", request.memory_per_cpu, cpus), ("gpu", request.memory_per_gpu, gpus)):
        if value is not None:
            each = whole(value)
            if each is None or count is None:
                return None, _why(value) if each is None else f"the number of {name.upper()}s per node is not known"
            return each * count, f"--mem-per-{name} x {count} {name.upper()}{'s' if count != 1 else ''}"
    if cluster is None:
        return None, "no memory is requested, and the default of the cluster is not known"
    for name, count in (("node", 1), ("cpu", cpus), ("gpu", gpus)):
        own = getattr(partition, f"default_memory_per_{name}", None)
        default = own if own is not None else cluster.defaults.get(f"memory_per_{name}")
        if default is None:
            continue
        if count is None:
            return None, f"the default is per {name}, and the number of {name.upper()}s per node is not known"
        return default * count, f"the default per {name}"
    return _whole(node, "no memory is requested, and the cluster has no default")


def _whole(node: Node | None, why: str) -> tuple[int | None, str]:
    if node is None or node.memory is None:
        return None, f"{why}: the memory of the whole node, which is not known"
    return node.memory, f"{why}: the whole node"


def _why(value: Value) -> str:
    return value.words if isinstance(value, Unknown) else "not known"


# --- which nodes ----------------------------------------------------------------------------------------------------


def _refusal(request: Request, cluster: Cluster, verdict: Verdict, unknown: tuple[tuple[str, str], ...]) -> Allocation:
    """Why it is refused, with the limits of the nearest node type: a rule says which request would fit there."""
    said = "" if verdict.answer in (None, CLIENT) else str(verdict.answer)
    plain = Allocation(unknown=unknown, impossible=verdict.words, answer=said, settings=verdict.settings)
    partitions = partitions_of(request, cluster)
    if isinstance(partitions, str):
        return plain
    candidates = [(partition, node) for partition in partitions for node in nodes_of(partition, cluster)]
    if not candidates:
        return replace(plain, impossible="the partition has no nodes", settings=("request.partition",))
    reasons = [
        (_lacking(request, _need(request, node, one, cluster), node, cluster), (one, node)) for one, node in candidates
    ]
    order = ("together", "constraint", "gpu_type", "gpus_per_node", "memory", "cpus_per_task", "nodes")
    ranked = sorted(
        ((reason or _TOGETHER, pair) for reason, pair in reasons),
        key=lambda item: (-order.index(item[0][0]), -item[1][1].gpus, -(item[1][1].memory or 0)),
    )
    (name, text), (partition, node) = ranked[0]
    need = _need(request, node, partition, cluster)
    gpus, _ = gpu_of(request, node, need.gpus)
    found = _allocation(need, node, gpus, partition, unknown, ())
    if verdict.answer != NODE_CONFIG:
        return replace(found, impossible=verdict.words, answer=said, settings=verdict.settings)
    setting = _setting(request, name)
    return replace(found, impossible=text, answer=said, settings=(f"request.{setting}",) if setting else ())


_TOGETHER = ("together", "no set of nodes has everything that the job requests (nodes, tasks, CPUs, memory, GPUs)")


def _setting(request: Request, name: str) -> str:
    """The field of the request that asks for what a node lacks."""
    options = {
        "memory": ("memory", "memory_per_cpu", "memory_per_gpu"),
        "gpus_per_node": ("gpus_per_node", "gpus", "gpus_per_task", "tasks_per_gpu"),
        "cpus_per_task": ("cpus_per_task", "cpus_per_gpu", "tasks_per_node", "tasks"),
        "nodes": ("nodes", "tasks", "gpus"),
    }
    if name == "together":
        return next(
            (one for one in ("nodes", "gpus", "gpus_per_node", "tasks") if getattr(request, one) is not None), ""
        )
    return next((one for one in options.get(name, ()) if getattr(request, one) is not None), name)


def _lacking(request: Request, need: _Need, node: Node, cluster: Cluster) -> tuple[str, str] | None:
    """The missing resource of this node type: (field, words); None if nothing is missing."""
    what = f"a node of type {node.name}"
    if not meets(request.constraint, node):
        return "constraint", f"no node has the feature --constraint={request.constraint}"
    kind = request.gpu_type
    if isinstance(kind, str) and kind and not is_type(kind, node):
        other = node.gpu_type or node.gpu
        return (
            "gpu_type",
            f"GPUs of type {kind} are requested; {what} has {'none' if not node.gpus else other or 'another type'}",
        )
    if need.gpus is not None and need.gpus > node.gpus:
        return "gpus_per_node", f"{_asked(need.gpus, 'GPU')}; {what} has {node.gpus}"
    if need.memory is not None and node.memory is not None and need.memory > node.memory:
        asked = f"{need.said.split(':')[0]} asks for {need.memory // MIB} MiB per node"
        return "memory", f"{asked}; {what} has {node.memory // MIB} MiB"
    if need.cpus is not None and node.cpus is not None and need.cpus > node.cpus:
        return "cpus_per_task", f"{_asked(need.cpus, 'CPU')}; {what} has {node.cpus}"
    counted = any(one.count > 1 for one in cluster.nodes)
    if counted and need.nodes is not None and need.nodes > node.count:
        return "nodes", f"the job needs {plural(need.nodes, 'node')}; there are {node.count} of type {node.name}"
    return None


def _asked(number: int, what: str) -> str:
    return f"{plural(number, what)} per node {'is' if number == 1 else 'are'} requested"


def _differs(one: Node, other: Node) -> bool:
    return (one.memory, one.cpus, one.gpus, one.gpu) != (other.memory, other.cpus, other.gpus, other.gpu)
