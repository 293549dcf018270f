"""The controller's verdict on a request: accepted, with the resources on each node; or refused, with the reason.

Follows src/slurmctld/job_mgr.c (_job_create), src/slurmctld/node_scheduler.c (_resolve_shared_status,
job_req_node_filter), src/slurmctld/job_scheduler.c (job_start_data) and src/plugins/select/cons_common/job_test.c
(_job_test, _verify_node_state, _set_gpu_defaults).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from msgspec import Struct
from msgspec.structs import replace

from preflight.slurm.controller import features, limits, linear
from preflight.slurm.controller.choose import Search
from preflight.slurm.controller.describe import describe
from preflight.slurm.controller.gres import check_text, validate
from preflight.slurm.controller.hosts import MIB, Host, Shape, hosts_of, in_partition
from preflight.slurm.controller.job import NODE_CONFIG, NODE_COUNT, RequestRefused, SlurmJob, asked
from preflight.slurm.controller.offer import Details, Offer, Rules, details_of, offer, rules_of
from preflight.slurm.controller.share import Share, shares, whole_shares
from preflight.vocabulary.machine import Cluster, Node, Partition
from preflight.vocabulary.reading import Request
from preflight.vocabulary.values import Unknown

MAX_NODES = 500_000
"""A job takes no more nodes (job_start_data)."""


class Verdict(Struct, frozen=True):
    """`answer`: None if the request is accepted; `over`: exceeded limits that are not enforced."""

    answer: str | None = None
    words: str = ""
    settings: tuple[str, ...] = ()
    partition: Partition | None = None
    shares: tuple[Share, ...] = ()
    over: tuple[str, ...] = ()


def judge(request: Request, cluster: Cluster) -> Verdict:
    """The answer of `sbatch --test-only` on the idle cluster; of a heterogeneous job, for each part."""
    if isinstance(request.partition, Unknown) and cluster.partitions:
        return _anywhere(request, cluster)
    parts = (request, *request.components)
    try:
        for part in parts:
            describe(part, cluster.gres_types, cluster.select_type)  # sbatch checks every part before it asks
        first, *_ = [_judge(part, cluster, index > 0) for index, part in enumerate(parts)]
    except RequestRefused as refused:
        return Verdict(refused.answer, refused.words, refused.settings)
    return first


def _anywhere(request: Request, cluster: Cluster) -> Verdict:
    """If the partition is not known: the verdict of the first partition that accepts the job, else of the last."""
    verdicts = (judge(replace(request, partition=one.name), cluster) for one in cluster.partitions)
    found = Verdict()
    for found in verdicts:
        if found.answer is None:
            return found
    return found


def admitted(
    request: Request, cluster: Cluster, later: bool = False
) -> tuple[SlurmJob, list[Partition], tuple[Host, ...], frozenset[str] | None, list[str]]:
    """All checks before nodes are chosen (_job_create). Raises Refused."""
    job = describe(request, cluster.gres_types, cluster.select_type)
    job.later_part = later
    limits.check_array(job, cluster)
    if job.ntasks_per_node is not None and job.min_nodes is not None and job.num_tasks is None:
        job.num_tasks = job.ntasks_per_node * job.min_nodes
    if not job.overcommit and job.num_tasks is not None and job.num_tasks > job.min_cpus:
        job.min_cpus = job.num_tasks * (job.cpus_per_task or 1)
    hosts = hosts_of(cluster, max(job.min_nodes or 1, job.num_tasks or 1, *(one.per_job for one in job.gres), 1))
    named = limits.check_named(job, hosts, cluster)
    wanted = limits.partitions(job, cluster)
    over = limits.check_partitions(job, wanted, hosts, cluster, named)
    over += [words for words, _ in limits.settle_memory(job, wanted, hosts, cluster)]
    limits.check_licenses(job, cluster)
    validate(job, request, client=False)
    check_text(request)
    return job, wanted, hosts, named, over


def _judge(request: Request, cluster: Cluster, later: bool) -> Verdict:
    job, wanted, hosts, named, over = admitted(request, cluster, later)
    excluded = limits.check_excluded(job, hosts, cluster)
    if job.max_nodes is not None and job.min_nodes is not None and job.max_nodes < job.min_nodes:
        words = f"the job needs at least {job.min_nodes} nodes, but --nodes allows at most {job.max_nodes}"
        raise RequestRefused(NODE_COUNT, words, "request.nodes")
    limits.check_dependency(job)
    known = frozenset(one for node in cluster.nodes for one in node.features)
    wanted_features = features.terms(job.features, known) if job.features else []
    if job.prefer:
        features.check_preferred(job.prefer, known)
    for partition in wanted:
        own = [host for host in in_partition(hosts, partition) if host.name not in excluded]
        if named is not None:
            own = [host for host in own if host.name in named]
        own = [
            host
            for host in own
            if not wanted_features or features.meets(wanted_features, frozenset(host.node.features))
        ]
        found = place(job, own, partition, cluster, named or frozenset(), wanted[0])
        if found is not None:
            more = limits.with_more_cpus(job, partition, hosts, cluster)
            raised = None if more is None else place(more, own, partition, cluster, named or frozenset())
            if more is not None and raised is None:
                over.append(f"MaxMemPerCPU of {partition.name} raises the CPUs of the job above what a node has")
            return Verdict(None, "", (), partition, raised or found, tuple(over))
    raise RequestRefused(NODE_CONFIG, "no node has everything that the job requests")


def on_one_type(request: Request, cluster: Cluster, partition: Partition, node: Node) -> tuple[Share, ...] | None:
    """The resources of an accepted job on nodes of one type; None: there are too few of them."""
    try:
        job, wanted, hosts, named, _ = admitted(request, cluster)
    except RequestRefused:
        return None
    if named is not None:
        return None
    found = features.terms(job.features, None) if job.features else []
    if found and not features.meets(found, frozenset(node.features)):
        return None
    own = [host for host in hosts if host.node == node]
    given = place(job, own, partition, cluster, frozenset(), wanted[0])
    more = limits.with_more_cpus(job, partition, hosts, cluster)
    return given if given is None or more is None else place(more, own, partition, cluster) or given


def place(
    job: SlurmJob,
    hosts: Sequence[Host],
    partition: Partition,
    cluster: Cluster,
    named: frozenset[str] = frozenset(),
    first: Partition | None = None,
) -> tuple[Share, ...] | None:
    """The nodes that the job gets in a partition (job_start_data and _job_test); None: none.

    `first`: the partition that is named first; its defaults and its limit of CPUs hold for all of them.
    """
    first = first or partition
    if first.exclusive and partition.exclusive:  # _resolve_shared_status, src/slurmctld/node_scheduler.c
        job = copy(job)
        job.exclusive, job.shared_with = True, None
    rules = rules_of(cluster, first)
    details = details_of(job, rules)
    _gpu_defaults(job, details, first, cluster)
    _gpu_cpus(job, details)
    least = max(details.min_nodes, partition.min_nodes or 0)
    most = MAX_NODES if partition.max_nodes is None else min(partition.max_nodes, MAX_NODES)
    most = min(details.max_nodes, most) if details.max_nodes else most
    wanted = most if details.max_nodes else least
    if rules.whole_nodes:
        shapes = {host.shape for host in hosts}
        fit = {one for one in shapes if _passes(job, details, one, rules) and linear.serves(job, one, rules)}
        own = [host for host in hosts if host.shape in fit]
        whole = linear.choose(job, details, own, least, most, wanted, named)
        return None if whole is None else whole_shares(job, details, rules, whole)
    cache: dict[Shape, Offer | None] = {}
    usable, offers = [], {}
    for host in hosts:
        if host.shape not in cache:
            cache[host.shape] = (
                offer(job, details, host.shape, rules) if _passes(job, details, host.shape, rules) else None
            )
        found = cache[host.shape]
        if found is not None:
            usable.append(host)
            offers[host.name] = found
    search = Search(job, details, rules, offers, named)
    taken = search.choose(usable, least, most, wanted)
    return None if taken is None else shares(job, details, rules, taken)


def _gpu_defaults(job: SlurmJob, details: Details, partition: Partition, cluster: Cluster) -> None:
    """_set_gpu_defaults: DefCpuPerGPU if no CPUs per task are requested, and DefMemPerGPU."""
    cpus = partition.default_cpus_per_gpu
    cpus = cpus if cpus is not None else cluster.defaults.get("cpus_per_gpu")
    if job.cpus_per_task is not None:
        cpus = None
    memory = limits.default_of(partition, cluster, "gpu")
    for one in job.gres:
        if one.name == "gpu":
            one.default_cpus_per = cpus or 0
            one.default_memory_per = (memory or 0) // MIB
            if cpus and one.per_task:
                details.cpus_per_task = max(details.cpus_per_task, one.per_task * cpus)
    if not job.memory_stated and any(one.memory_per for one in job.gres):
        job.memory, job.memory_per_cpu = 0, None  # what is asked per GPU replaces the default per CPU or node


def _gpu_cpus(job: SlurmJob, details: Details) -> None:
    """CPUs that --cpus-per-gpu or its default asks for, per node and for the job (gres_select_util.c)."""
    sockets = job.sockets_per_node or 1
    nodes = details.min_nodes
    tasks = max(job.ntasks_per_node or 0, 1) * nodes
    for name in {one.name for one in job.gres}:
        own = [one for one in job.gres if one.name == name]
        cpus = own[0].cpus_of_each
        if not cpus:
            continue
        per_job, per_node, per_socket, per_task = asked(own)
        of_node = per_node or per_socket * sockets or (per_task * (job.ntasks_per_node or 0) if per_task else 1)
        of_job = per_job or per_node * nodes or per_socket * nodes * sockets or per_task * tasks
        details.min_gres_cpus = max(details.min_gres_cpus, cpus * of_node)
        details.min_job_gres_cpus = max(details.min_job_gres_cpus, cpus * of_job)


def _passes(job: SlurmJob, details: Details, shape: Shape, rules: Rules) -> bool:
    """job_req_node_filter and the memory check of _verify_node_state."""
    if details.cpus_per_node > shape.cpus:
        return False
    if job.sockets_per_node is not None and job.sockets_per_node > shape.sockets:
        return False
    if job.cores_per_socket is not None and job.cores_per_socket > shape.cores:
        return False
    if job.threads_per_core is not None and job.threads_per_core > shape.threads:
        return False
    if job.local_disk is not None and shape.local_disk is not None and job.local_disk > shape.local_disk:
        return False
    if shape.memory is None or shape.real_memory is None:
        return True
    if job.memory_per_cpu is None:
        return (job.memory or 0) <= (shape.memory if rules.memory else shape.real_memory)
    if job.memory_per_cpu * details.cpus_per_node > shape.real_memory:
        return False
    cpus = max(job.ntasks_per_node or 0, details.cpus_per_node, details.cpus_per_task)
    return not rules.memory or job.memory_per_cpu * max(cpus, 1) <= shape.memory
