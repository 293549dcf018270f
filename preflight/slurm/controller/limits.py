"""Checks of the controller before it looks at nodes: array, partitions and their limits, default memory.

Follows src/slurmctld/job_mgr.c (_job_create, _valid_job_part, _part_access_check, _validate_job_desc,
_valid_pn_min_mem), src/slurmctld/licenses.c and src/slurmctld/job_scheduler.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy

from preflight.machines.hostlist import expand
from preflight.slurm.controller.hosts import MIB, Host, counts_nodes, in_partition
from preflight.slurm.controller.job import (
    ARRAY,
    CPUS,
    DEPENDENCY,
    LICENSE,
    NO_DEFAULT,
    NODE_COUNT,
    NODE_NAME,
    NOT_IN_PARTITION,
    PARTITION,
    TASK_MEMORY,
    TIME_LIMIT,
    TIME_MIN,
    RequestRefused,
    SlurmJob,
)
from preflight.vocabulary.machine import Cluster, Partition

UNLIMITED = 2**32 - 1


def check_array(job: SlurmJob, cluster: Cluster) -> None:
    """_valid_array_inx and _parse_array_tok (src/slurmctld/job_mgr.c). Raises Refused."""
    if not job.array:
        return
    if job.later_part:
        raise RequestRefused(ARRAY, "a heterogeneous job cannot be an array", "request.array")
    most = cluster.max_array_size if cluster.max_array_size is not None else UNLIMITED
    for token in filter(None, job.array.split(",")):
        if not _array_token(token.removeprefix("["), most):
            words = f"--array={job.array} is not a list of array indices below {most} (MaxArraySize)"
            raise RequestRefused(ARRAY, words, "request.array")


def _array_token(token: str, most: int) -> bool:
    found = re.match(r"\s*([+-]?\d+)?\]?(?:-\s*([+-]?\d+)?\]?(?::\s*([+-]?\d+)?\]?)?)?(?=%|$)", token)
    if found is None:
        return False
    first, last = int(found[1] or 0), found[2]
    ranged = "-" in token[len(found[1] or "") :].split("%")[0]
    end = int(last or 0) if ranged else first
    stepped = ":" in token.split("%")[0]
    step = int(found[3] or 0) if stepped else 1
    return first >= 0 and end >= first and 0 < step < most and end < most


def check_licenses(job: SlurmJob, cluster: Cluster) -> None:
    """license_validate (src/slurmctld/licenses.c). Raises Refused."""
    if not job.licenses or cluster.licenses is None:
        return
    asked: dict[str, int] = {}
    for token in filter(None, re.split(r"[,;]", job.licenses)):
        name, colon, count = token.partition(":")
        if re.search(r"\s", name) or not re.fullmatch(r"\s*\+?\d*", count):
            raise RequestRefused(LICENSE, f"--licenses={job.licenses} cannot be read", "request.licenses")
        asked[name] = asked.get(name, 0) + (int(count or 0) if colon else 1)
    for name, number in asked.items():
        if "@" not in name and number > cluster.licenses.get(name, -1):
            known = ", ".join(f"{one}:{count}" for one, count in cluster.licenses.items()) or "none"
            raise RequestRefused(LICENSE, f"--licenses={job.licenses}: the cluster has {known}", "request.licenses")


_AFTER = r"(?:after(?:notok|corr|any|ok|burstbuffer)?|expand):"
_JOB = r"\s*\+?0*[1-9]\d*(?:_(?:\d+|\*))?"
_LATER = rf"{_JOB}(?:\+\d+)?(?:\(\w+\))?"
_DEPENDENCY = re.compile(rf"(?:singleton|{_AFTER}{_LATER}(?::{_LATER})*|{_JOB}(?!.*:))", re.IGNORECASE)
"""One of the dependencies of a job (update_job_dependency, src/slurmctld/job_scheduler.c)."""


def check_dependency(job: SlurmJob) -> None:
    """Checks how dependencies are written; which jobs exist is not known here. Raises Refused."""
    if not job.dependency or job.dependency == "0":
        return
    at, text = 0, job.dependency
    while True:
        found = _DEPENDENCY.match(text, at)
        if found is None or text[found.end() : found.end() + 1] not in ("", ",", "?"):
            raise RequestRefused(DEPENDENCY, f"--dependency={text} cannot be read", "request.dependency")
        if found.end() == len(text):
            return
        at = found.end() + 1


def check_named(job: SlurmJob, hosts: Sequence[Host], cluster: Cluster) -> frozenset[str] | None:
    """The nodes of --nodelist (None: not given); the job gets at least as many nodes. Raises Refused."""
    if job.node_list is None or not all(node.hosts for node in cluster.nodes):
        return None
    named = frozenset(expand(job.node_list))
    _all_known(job.node_list, hosts, "nodelist", "node_list")
    least = len(named)
    if job.min_nodes is None or job.min_nodes < least:
        job.min_nodes = least
    job.min_cpus = max(job.min_cpus, least)
    if job.max_nodes is not None and job.min_nodes > job.max_nodes:
        words = f"the job needs at least {job.min_nodes} nodes, but --nodes allows at most {job.max_nodes}"
        raise RequestRefused(NODE_COUNT, words, "request.nodes")
    return named


def check_excluded(job: SlurmJob, hosts: Sequence[Host], cluster: Cluster) -> frozenset[str]:
    """The nodes of --exclude. Raises Refused."""
    if job.exclude is None or not all(node.hosts for node in cluster.nodes):
        return frozenset()
    _all_known(job.exclude, hosts, "exclude", "exclude")
    excluded = frozenset(expand(job.exclude))
    if job.node_list is not None and excluded & set(expand(job.node_list)):
        raise RequestRefused(NODE_NAME, "--nodelist and --exclude name the same node", "request.exclude")
    return excluded


def _all_known(text: str, hosts: Sequence[Host], option: str, setting: str) -> None:
    known = {host.name for host in hosts}
    missing = [name for name in expand(text) if name not in known]
    if missing:
        raise RequestRefused(NODE_NAME, f"--{option}: the cluster has no node {missing[0]}", f"request.{setting}")


def partitions(job: SlurmJob, cluster: Cluster) -> list[Partition]:
    """The requested partitions, else the default one (_get_job_parts). Raises Refused."""
    if not cluster.partitions:
        return [Partition("", tuple(node.name for node in cluster.nodes), default=True)]
    known = {partition.name: partition for partition in cluster.partitions}
    if job.partition is None:
        default = [partition for partition in cluster.partitions if partition.default]
        if not default and counts_nodes(cluster):
            words = f"no partition is requested, and {cluster.name} has no default partition ({', '.join(known)})"
            raise RequestRefused(NO_DEFAULT, words, "request.partition")
        return default[-1:] or list(cluster.partitions[:1])
    wanted = [name for name in job.partition.split(",") if name]
    missing = [name for name in wanted if name not in known]
    if missing or not wanted:
        name = missing[0] if missing else job.partition
        words = f"there is no partition {name} ({cluster.name} has {', '.join(known)})"
        raise RequestRefused(PARTITION, words, "request.partition")
    return [known[name] for name in dict.fromkeys(wanted)]


def check_partitions(
    job: SlurmJob, wanted: Sequence[Partition], hosts: tuple[Host, ...], cluster: Cluster, named: frozenset[str] | None
) -> list[str]:
    """_valid_job_part: checks the limits that are enforced, and returns what exceeds the others. Raises Refused.

    Also sets the number of nodes.
    """
    enforced = cluster.enforce_part_limits
    over = [_over(job, one, in_partition(hosts, one), cluster, named) for one in wanted]
    problems = [one for one in over if one is not None]
    if problems and (enforced == "ALL" or (enforced == "ANY" and len(problems) == len(over))):
        raise problems[-1] if enforced == "ANY" else problems[0]
    least = min((one.min_nodes or 0) for one in wanted)
    most = max(UNLIMITED if one.max_nodes is None else one.max_nodes for one in wanted)
    longest = max(UNLIMITED if one.max_minutes is None else one.max_minutes for one in wanted)
    _node_count(job, least, most, enforced != "NO")
    _times(job, wanted[0], longest, enforced != "NO")
    return [problem.words for problem in problems] if len(problems) == len(over) else []


def _over(
    job: SlurmJob, partition: Partition, hosts: list[Host], cluster: Cluster, named: frozenset[str] | None
) -> RequestRefused | None:
    """The parts of the job that exceed the limits of one partition (_part_access_check)."""
    name = f"partition {partition.name}"
    if counts_nodes(cluster):
        cpus = sum(host.shape.cpus for host in hosts)
        if job.min_cpus > cpus:
            return RequestRefused(CPUS, f"the job needs {job.min_cpus} CPUs, but {name} has {cpus}", "request.tasks")
        each = partition.max_cpus_per_node
        if each is not None and job.min_cpus > each * len(hosts):
            words = f"the job needs {job.min_cpus} CPUs, but {name} gives at most {each} per node"
            return RequestRefused(CPUS, words, "request.tasks")
        if job.min_nodes is not None and job.min_nodes > len(hosts):
            words = f"the job needs {job.min_nodes} nodes, but {name} has {len(hosts)}"
            return RequestRefused(NODE_COUNT, words, "request.nodes")
    if named is not None and not named <= {host.name for host in hosts}:
        return RequestRefused(NOT_IN_PARTITION, f"--nodelist names nodes that are not in {name}", "request.node_list")
    if job.min_nodes is not None and partition.min_nodes is not None and job.min_nodes < partition.min_nodes:
        words = f"{job.min_nodes} nodes are fewer than {name}'s MinNodes of {partition.min_nodes}"
        return RequestRefused(NODE_COUNT, words, "request.nodes")
    if job.max_nodes is not None and partition.max_nodes is not None and job.max_nodes > partition.max_nodes:
        words = f"{job.max_nodes} nodes are more than {name}'s MaxNodes of {partition.max_nodes}"
        return RequestRefused(NODE_COUNT, words, "request.nodes")
    if job.time_limit is not None and partition.max_minutes is not None and job.time_limit > partition.max_minutes:
        asked = "unlimited" if job.time_limit >= UNLIMITED else f"of {job.time_limit} minutes"
        words = f"--time {asked} is more than {partition.name}'s MaxTime of {partition.max_minutes}"
        return RequestRefused(TIME_LIMIT, words, "request.time_minutes")
    return None


def _node_count(job: SlurmJob, least: int, most: int, enforced: bool) -> None:
    if job.min_nodes is None:
        job.min_nodes = least or 1
    elif job.min_nodes > most and enforced:
        words = f"{job.min_nodes} nodes are more than the partition's MaxNodes of {most}"
        raise RequestRefused(NODE_COUNT, words, "request.nodes")
    elif job.min_nodes < least and (job.max_nodes is None or job.max_nodes >= least):
        job.min_nodes = least
    if job.max_nodes is not None and enforced and job.max_nodes < least:
        words = f"{job.max_nodes} nodes are fewer than the partition's MinNodes of {least}"
        raise RequestRefused(NODE_COUNT, words, "request.nodes")
    if job.min_nodes == 0 and (job.array or job.later_part):
        raise RequestRefused(
            NODE_COUNT, "an array, or a later part of a heterogeneous job, needs at least one node", "request.nodes"
        )


def _times(job: SlurmJob, first: Partition, longest: int, enforced: bool) -> None:
    if job.time_limit is None:
        job.time_limit = first.default_minutes
    if job.time_min is not None:
        if job.time_min > longest:
            words = f"--time-min of {job.time_min} minutes is more than MaxTime of {longest}"
            raise RequestRefused(TIME_MIN, words, "request.time_min_minutes")
        if job.time_limit is not None and job.time_min > job.time_limit:
            raise RequestRefused(TIME_MIN, "--time-min is more than --time", "request.time_min_minutes")
    elif job.time_limit is not None and job.time_limit > longest and enforced:
        words = f"--time of {job.time_limit} minutes is more than MaxTime of {longest}"
        raise RequestRefused(TIME_LIMIT, words, "request.time_minutes")


# --- memory ---------------------------------------------------------------------------------------------------------


def settle_memory(
    job: SlurmJob, wanted: Sequence[Partition], hosts: tuple[Host, ...], cluster: Cluster
) -> list[tuple[str, Partition]]:
    """Sets the default memory if none is requested (_validate_job_desc); checks enforced limits. Raises Refused.

    Returns what exceeds a limit that is not enforced, with the partition.
    """
    if not job.memory_stated:
        _default_memory(job, wanted[0], cluster)
        return []
    over, kept = [], (job.memory, job.memory_per_cpu, job.cpus_per_task, job.min_cpus, job.cpus_per_node)
    enforced = cluster.enforce_part_limits
    for partition in wanted:
        words = _over_memory(job, partition, in_partition(hosts, partition), cluster)
        if words is not None:
            over.append((words, partition))
        job.memory, job.memory_per_cpu, job.cpus_per_task, job.min_cpus, job.cpus_per_node = kept
        if words is None and enforced == "ANY":
            over.clear()
            break
    if over and (enforced == "ALL" or (enforced == "ANY" and len(over) == len(wanted))):
        raise RequestRefused(TASK_MEMORY, over[0][0], "request.memory")
    if job.memory_per_cpu == 0:
        job.memory, job.memory_per_cpu = 0, None
    return over if len(over) == len(wanted) else []


def default_of(partition: Partition | None, cluster: Cluster, unit: str) -> int | None:
    """DefMemPerNode, DefMemPerCPU or DefMemPerGPU, the partition's before the cluster's: bytes."""
    own = getattr(partition, f"default_memory_per_{unit}", None)
    return own if own is not None else cluster.defaults.get(f"memory_per_{unit}")


def with_more_cpus(job: SlurmJob, partition: Partition, hosts: Sequence[Host], cluster: Cluster) -> SlurmJob | None:
    """The job with the CPUs that MaxMemPerCPU adds at its start (job_limits_check); None: it adds none."""
    if not job.memory_stated:
        return None
    more = deepcopy(job)
    _over_memory(more, partition, in_partition(tuple(hosts), partition), cluster)
    changed = (more.cpus_per_task, more.cpus_per_node, more.memory_per_cpu)
    return more if changed != (job.cpus_per_task, job.cpus_per_node, job.memory_per_cpu) else None


def _default_memory(job: SlurmJob, partition: Partition, cluster: Cluster) -> None:
    """Sets the partition's default per CPU or node, else the cluster's, else no limit (0)."""
    for per_cpu, per_node in (
        (partition.default_memory_per_cpu, partition.default_memory_per_node),
        (cluster.defaults.get("memory_per_cpu"), cluster.defaults.get("memory_per_node")),
    ):
        if per_cpu is not None:
            job.memory_per_cpu = per_cpu // MIB
            return
        if per_node is not None:
            job.memory = per_node // MIB
            return
    job.memory = 0


def _over_memory(job: SlurmJob, partition: Partition, hosts: list[Host], cluster: Cluster) -> str | None:
    """_valid_pn_min_mem: how the memory exceeds MaxMemPerNode or MaxMemPerCPU; adds CPUs if the memory then fits."""
    per_node, per_cpu = partition.max_memory_per_node, partition.max_memory_per_cpu
    if per_node is None and per_cpu is None:
        per_node, per_cpu = cluster.limits.get("memory_per_node"), cluster.limits.get("memory_per_cpu")
    if per_node is not None:
        most = per_node // MIB
        memory = job.memory
        if job.memory_per_cpu is not None:
            memory = job.memory_per_cpu * _cpus_per_node(job, partition, hosts)
        elif memory == 0 and hosts:
            memory = hosts[0].shape.memory
        if memory is None or memory <= most:
            return None
        return f"{memory} MiB per node is more than {partition.name}'s MaxMemPerNode of {most} MiB"
    if per_cpu is None:
        return None
    most = per_cpu // MIB
    if job.memory_per_cpu is not None:
        if job.memory_per_cpu > most:
            _more_cpus(job, most)
        return None
    memory = job.memory if job.memory else (hosts[0].shape.memory if hosts else None)
    if memory is None:
        return None
    needed = -(-memory // most)
    cpus = _cpus_per_node(job, partition, hosts)
    if job.cpus_per_node is None or job.cpus_per_node < needed:
        job.cpus_per_node = needed
        cpus = max(cpus, needed)
        tasks = job.ntasks_per_node if job.ntasks_per_node is not None else 65534  # NO_VAL16, which it divides by
        if tasks:
            job.cpus_per_task = -(-needed // tasks)
    if memory <= most * cpus:
        return None
    return f"{memory} MiB per node is more than {partition.name}'s MaxMemPerCPU of {most} MiB x {cpus} CPUs"


def _more_cpus(job: SlurmJob, most: int) -> None:
    assert job.memory_per_cpu is not None
    ratio = -(-job.memory_per_cpu // most)
    job.cpus_per_task = ratio * (job.cpus_per_task or 1) if job.cpus_per_task is not None else ratio
    job.memory_per_cpu = -(-job.memory_per_cpu // ratio)
    if job.num_tasks:
        job.min_cpus = job.num_tasks * job.cpus_per_task
    else:
        job.cpus_per_node = job.cpus_per_task


def _cpus_per_node(job: SlurmJob, partition: Partition, hosts: list[Host]) -> int:
    if (partition.exclusive or job.exclusive) and hosts:
        return hosts[0].shape.cpus
    cpus = job.ntasks_per_node or 1
    if job.num_tasks and job.max_nodes:
        cpus = max(cpus, -(-job.num_tasks // job.max_nodes))
    cpus *= job.cpus_per_task or 1
    return max(cpus, job.cpus_per_node or 0)
