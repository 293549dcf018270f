"""Which nodes a job gets from select/linear, which gives whole nodes.

Follows src/plugins/select/linear/select_linear.c (_job_count_bitmap, _job_test). Only CPUs, memory and generic
resources of a node count. Tasks per socket, CPUs per task and `--exclusive` change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from preflight.slurm.controller.hosts import Host, Shape
from preflight.slurm.controller.job import SlurmJob
from preflight.slurm.controller.offer import Details, Rules, available_gres


class Whole(Struct):
    """The resources that the job still needs while nodes are selected."""

    job: SlurmJob
    details: Details
    nodes: int
    cpus: int
    most: int
    least: int
    wanted: int
    taken: list[Host] = field(default_factory=list)

    def take(self, host: Host) -> None:
        self.taken.append(host)
        self.nodes, self.most, self.cpus = self.nodes - 1, self.most - 1, self.cpus - self.usable(host)

    def usable(self, host: Host) -> int:
        """CPUs that count on a node (_get_avail_cpus)."""
        shape, per_core, each = host.shape, self.details.ntasks_per_core, self.details.cpus_per_task
        cpus = max(shape.total_cores * per_core * each, shape.cpus) if per_core else shape.cpus
        return min(cpus, self.job.ntasks_per_node * each) if self.job.ntasks_per_node else cpus

    @property
    def done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0

    def enough(self, nodes: int) -> bool:
        """_enough_nodes"""
        needed = self.nodes + self.least - self.wanted if self.wanted > self.least else self.nodes
        return nodes >= needed


def serves(job: SlurmJob, shape: Shape, rules: Rules) -> bool:
    """Whether a node has the memory and the generic resources (_job_count_bitmap)."""
    if job.gres and available_gres(job, shape, rules) is None:
        return False
    if not rules.memory or shape.memory is None:
        return True
    asked = job.memory or shape.real_memory or 0
    return (asked if job.memory_per_cpu is None else job.memory_per_cpu * shape.cpus) <= shape.memory


def choose(
    job: SlurmJob, details: Details, hosts: Sequence[Host], least: int, most: int, wanted: int, required: frozenset[str]
) -> list[Host] | None:
    """The job's nodes; None where the search finds none."""
    if len(hosts) < least or not required <= {host.name for host in hosts}:
        return None
    state = Whole(job, details, max(least, wanted), job.min_cpus, most, least, wanted)
    for host in (host for host in hosts if host.name in required):
        state.take(host)
    left = [host for host in hosts if host.name not in required]
    counts = [state.usable(host) for host in hosts]
    if len(set(counts)) > 1 and state.cpus > min(counts) * state.nodes:
        for host in sorted(left, key=lambda host: (-state.usable(host), -host.place)):
            if state.most <= 0 or state.done:
                break
            state.take(host)
    else:
        _fill(state, _runs(left))
    return state.taken if state.cpus <= 0 and state.enough(0) else None


def _runs(hosts: Sequence[Host]) -> list[list[Host]]:
    runs: list[list[Host]] = []
    for host in hosts:
        if not runs or host.place != runs[-1][-1].place + 1:
            runs.append([])
        runs[-1].append(host)
    return runs


def _fill(state: Whole, runs: list[list[Host]]) -> None:
    """Takes runs of neighbouring nodes: the smallest that is enough, else the largest, until the job has enough."""
    while runs and state.most > 0 and not state.done:
        best, best_cpus, best_enough = runs[0], 0, False
        for index, run in enumerate(runs):
            cpus = sum(state.usable(host) for host in run)
            enough = cpus >= state.cpus and state.enough(len(run))
            better = (enough and (not best_enough or cpus < best_cpus)) or (not enough and cpus > best_cpus)
            if index == 0 or better:
                best, best_cpus, best_enough = run, cpus, enough
        if state.job.contiguous and not best_enough:
            return
        for host in best:
            if state.most <= 0 or state.done:
                break
            state.take(host)
        runs = [run for run in runs if run is not best]
