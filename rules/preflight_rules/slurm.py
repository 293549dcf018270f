"""Rules about what SLURM is asked for: memory that is too little or malformed, shapes no node has, directives lost."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.slurm.allocation import Allocation, resolve
from preflight.slurm.controller.answers import NODE_CONFIG
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.values import Origin
from preflight_rules import loaders, slurm_examples
from preflight_rules.common import (
    bounds,
    count,
    describe_loaders,
    from_problems,
    gib,
    host_of,
    model_name,
    parts_of,
    severity_of,
    sum_of,
)
from preflight_rules.host import spikes
from preflight_rules.shared import ConcurrentLaunchesExceed
from preflight_rules.slurm_ignored import SlurmDirectiveIgnored
from preflight_rules.slurm_over import SlurmOverRequest
from preflight_rules.tasks import mismatches

GIB = 2**30


def allocation_of(case: Case) -> Allocation | None:
    """What the request gets on the case's cluster; None where nothing is requested."""
    request = case.study.request
    return None if request is None else resolve(request, case.cluster)


def place(request: Request, *names: str) -> Origin | None:
    """Where the first of the request's fields that is given stands; else where a directive could be added."""
    for name in names:
        if name in request.origins:
            return request.origins[name]
    return request.directives[-1][2] if request.directives else request.insert_at


def whole_gib(size: int) -> int:
    """Bytes rounded up to whole GiB, as a person would write them."""
    return -(-size // GIB) * GIB


def memory_change(case: Case, need: int) -> tuple[Change, int] | None:
    """The change that gives a node `need` bytes (all it has, where that is less), and the bytes it then gives."""
    request, found = case.study.request, allocation_of(case)
    if request is None or found is None:
        return None
    node = loaders.node_limit(case)
    memory = whole_gib(need) if node is None else min(whole_gib(need), node // GIB * GIB)
    for name, units in (("memory_per_cpu", found.cpus_per_node), ("memory_per_gpu", found.gpus_per_node)):
        if getattr(request, name) is not None:
            if not units:
                return None
            each = memory // units // 2**20 * 2**20
            return Change(f"request.{name}", each), each * units
    return Change("request.memory", memory), memory


class SlurmMemoryTooLow(Rule):
    """SLURM is asked for less host memory than the job needs on a node, and the node has more.

    Every rank loads its own checkpoint, keeps its own workers and queues its own batches, and all of it counts against
    `--mem` (or `--mem-per-cpu`, `--mem-per-gpu`, or the cluster's default where nothing is asked for). SLURM's
    `MaxRSS` is sampled and does not show short peaks, so it is no guide to what to ask for.

    It matters because the job is killed when it crosses the line, often at the end of the first epoch, after hours in
    the queue.

    The fix raises the request to the need, rounded up to whole GiB, and never above what the node is known to have. The
    run stays the same. Where nobody said what the node has, the fix is unsafe: the scheduler may refuse the job.
    """

    name = "slurm-memory-too-low"
    summary = "The requested memory is less than the job needs on a node"
    examples = slurm_examples.TOO_LOW

    def check(self, case: Case) -> Iterator[Finding]:
        host, request, found = host_of(case), case.study.request, allocation_of(case)
        if host is None or request is None or found is None or host.limited_by != "memory_limit":
            return
        worth = severity_of(host.per_node, host.limit)
        node = loaders.node_limit(case)
        if worth is None or host.limit is None or spikes(case, host) or (node is not None and node <= host.limit):
            return
        origin = place(request, "memory", "memory_per_cpu", "memory_per_gpu")
        said = found.memory_said or "the request"
        room = "" if node is None else f"; a node has {gib(node)}"
        yield Finding(
            rule=self.name,
            severity=worth[0],
            confidence=worth[1],
            message=(
                f"{said} gives {gib(host.limit)} per node, and the job needs {gib(host.per_node.expected)} "
                f"({gib(host.per_node.low)} to {gib(host.per_node.high)}): {_doing(case, host)}{room}"
            ),
            origin=origin,
            settings=("request.memory",),
            label=f"{gib(host.limit)} per node",
            notes=(f"the parts: {sum_of(host.breakdown, limit=12)}", *host.notes),
            help=(f"ask for at least {gib(whole_gib(host.per_node.high))} per node",),
            parts=parts_of(host.breakdown),
            interval=bounds(host.per_node),
            capacity=host.limit,
            tier="host",
            proposals=tuple(self._raise(case, host, node)),
        )

    def _raise(self, case: Case, host: HostEstimate, node: int | None) -> Iterator[Proposal]:
        change = memory_change(case, host.per_node.high)
        if change is None or not loaders.fits(case, {}, change[1]):
            return
        title = f"{change[0].field.removeprefix('request.').replace('_', ' ')} -> {gib(int(str(change[0].value)))}"
        if node is not None:
            yield Proposal(title, (change[0],), Safety.safe)
        else:
            yield Proposal(title, (change[0],), reason="nobody said how much memory the nodes have")


def _doing(case: Case, host: HostEstimate) -> str:
    """What the job does when it needs most, in words."""
    if host.peak != "load":
        return describe_loaders(case.job)
    ranks = case.job.parallel.ranks_per_node or 1
    load = "loads" if ranks == 1 else "load"
    return f"{count(ranks, 'rank')} per node {load} the weights of {model_name(case.job)}"


class UnstatedOptions(Options):
    largest: int = Field(
        4 * GIB, ge=0, description="No finding where the job needs no more host memory per node than this (bytes)."
    )


class SlurmMemoryUnstated(Rule):
    """The script asks for no memory: what the job gets is the cluster's default, which is nowhere in the files.

    About half of public job scripts say nothing. Then `DefMemPerNode`, `DefMemPerCPU` or `DefMemPerGPU` of the cluster
    or the partition decides, or the whole node where none is set; `--exclusive` gives all CPUs and GPUs of a node but
    not its memory.

    It matters because the same script is killed on one cluster and runs on another.

    The fix writes a `--mem` directive with what the job needs. It is unsafe unless the node is known to have that much.
    """

    name = "slurm-memory-unstated"
    summary = "No memory is requested, so the cluster's default decides"
    options = UnstatedOptions
    examples = slurm_examples.UNSTATED

    def check(self, case: Case) -> Iterator[Finding]:
        host, request, found = host_of(case), case.study.request, allocation_of(case)
        options = case.options if isinstance(case.options, UnstatedOptions) else UnstatedOptions()  # type: ignore[call-arg]
        if host is None or request is None or found is None or host.per_node.expected <= options.largest:
            return
        stated = any(name in request.origins for name in ("memory", "memory_per_cpu", "memory_per_gpu"))
        if stated or found.memory_limit is not None or host.limited_by == "memory_limit":
            return
        need = whole_gib(host.per_node.high)
        node = loaders.node_limit(case)
        known = node is not None and need <= node
        yield Finding(
            rule=self.name,
            severity=Severity.info,
            confidence=Confidence.medium,
            message=(
                f"no memory is requested: the cluster's default decides, and the job needs about "
                f"{gib(host.per_node.expected)} per node ({_doing(case, host)})"
            ),
            origin=place(request),
            settings=("request.memory",),
            help=(f"add #SBATCH --mem={need // GIB}G",),
            parts=parts_of(host.breakdown),
            interval=bounds(host.per_node),
            tier="host",
            proposals=(
                Proposal(
                    f"--mem={need // GIB}G",
                    (Change("request.memory", need),),
                    Safety.safe if known else Safety.unsafe,
                    "" if known else "nobody said how much memory the nodes have",
                ),
            ),
        )


class SlurmRequestImpossible(Rule):
    """No node of the cluster can give what is asked for, or sbatch refuses the combination of options.

    Sizes are powers of 1024: `--mem=256G` is 262144 MiB and does not fit a node with `RealMemory=256000`. GRES types
    are case-sensitive. `--mem-per-cpu` counts for every CPU of the node's tasks. What is only over a partition's limits
    (`MaxTime`, `MaxMemPerNode`) is accepted by most clusters and then never starts: that is a warning.

    It matters because the job is refused at submission or, worse, waits in the queue for ever.

    The fix lowers the memory or the CPUs to what the node has, where the job is known to need no more.
    """

    name = "slurm-request-impossible"
    summary = "No node can give what is requested"
    examples = slurm_examples.IMPOSSIBLE

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)
        request, found = case.study.request, allocation_of(case)
        if request is None or found is None:
            return
        where = f" on {case.cluster.name}" if case.cluster is not None else ""
        if found.impossible is not None:
            names = tuple(name.removeprefix("request.") for name in found.settings)
            yield Finding(
                rule=self.name,
                severity=Severity.error,
                confidence=Confidence.high,
                message=self._message(found, where),
                origin=place(request, *names),
                settings=found.settings,
                related=self._related(request, names),
                label="more than a node has" if where and found.answer in ("", NODE_CONFIG) else "",
                notes=(f"sbatch answers: {found.answer}",) if found.answer else (),
                proposals=tuple(self._fixes(case, request, found)),
            )
        for text in found.warnings:
            name = "time_minutes" if text.startswith("--time") else "memory"
            yield Finding(
                rule=self.name,
                severity=Severity.warning,
                confidence=Confidence.high,
                message=f"the job would be accepted and never start: {text}",
                origin=place(request, name, "memory_per_cpu", "memory_per_gpu"),
                settings=(f"request.{name}",),
            )

    def _message(self, found: Allocation, where: str) -> str:
        words = found.impossible or ""
        if found.answer == NODE_CONFIG:
            return f"no node{where} can run the job: {words}"
        return f"sbatch refuses the job{where}: {words}" if where else words

    def _related(self, request: Request, names: tuple[str, ...]) -> tuple[tuple[Origin, str], ...]:
        origin = request.origins.get("partition")
        return () if origin is None or "partition" in names else ((origin, f"partition {request.partition}"),)

    def _fixes(self, case: Case, request: Request, found: Allocation) -> Iterator[Proposal]:
        node, setting = found.node, found.settings[0].removeprefix("request.") if found.settings else ""
        if node is None:
            return
        if setting.startswith("memory") and node.memory is not None:
            change = memory_change(case, node.memory // GIB * GIB)
            host = host_of(case)
            enough = change is not None and host is not None and host.per_node.high <= change[1]
            if change is not None and change[1] > 0:
                reason = "" if enough else "the job is not known to need no more"
                title = f"ask for what the node has ({gib(change[1])})"
                yield Proposal(title, (change[0],), Safety.safe if enough else Safety.unsafe, reason)
        if setting == "cpus_per_task" and node.cpus is not None and found.tasks_per_node:
            fewer = node.cpus // found.tasks_per_node
            if fewer:
                yield Proposal(f"CPUs per task -> {fewer}", (Change("request.cpus_per_task", fewer),), Safety.safe)


class SlurmMemoryInvalid(Rule):
    """sbatch refuses the memory that is written, or reads it as something else than was meant.

    A size is an integer, bare in MiB or with K, M, G or T and an optional B: `1.5G`, `64GiB`, `0.5T`, `200 G` and
    `${MEM}` are refused, and of `--mem`, `--mem-per-cpu` and `--mem-per-gpu` there may be only one, whatever the number
    of directives. `--mem=64` asks for 64 MiB.

    It matters because the job is refused at submission, or killed within seconds of starting.

    The fix writes the same size in a way that sbatch takes. Where the unit was forgotten, adding one is unsafe.
    """

    name = "slurm-memory-invalid"
    summary = "The memory is written in a way that sbatch refuses or misreads"
    examples = slurm_examples.INVALID

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)


class SlurmTasksMismatch(Rule):
    """Tasks, processes and GPUs do not add up: more processes than GPUs, idle nodes, or a launcher started twice.

    `srun` starts one process per task, `torchrun` one per `--nproc_per_node` in each place it is started, `accelerate
    launch --num_processes` counts all machines together, and a script's own lines run on the first node alone. Eight
    tasks that each start a torchrun of eight are 64 processes on eight GPUs. And srun of SLURM 22.05 and 23.02 does not
    inherit `--cpus-per-task`: every task of its step gets one CPU.

    It matters because two processes on one GPU need twice the memory, and idle nodes are paid for.

    The fix, where there is one, gives torchrun one task per node. It is unsafe: the number of processes changes.
    """

    name = "slurm-tasks-mismatch"
    summary = "Tasks, processes and GPUs do not add up"
    examples = slurm_examples.MISMATCH

    def check(self, case: Case) -> Iterator[Finding]:
        request, found = case.study.request, allocation_of(case)
        if request is None or found is None:
            return
        for mismatch in mismatches(case, request, found):
            origin = mismatch.origin or place(request, *(name for name, _ in mismatch.related))
            related = tuple(
                (request.origins[name], words) for name, words in mismatch.related if name in request.origins
            )
            yield Finding(
                rule=self.name,
                severity=mismatch.severity,
                confidence=Confidence.medium,
                message=mismatch.message,
                origin=origin,
                settings=("parallel.ranks_per_node", "request.tasks_per_node"),
                related=tuple(pair for pair in related if pair[0] != origin),
                proposals=mismatch.proposals,
            )


RULES: tuple[type[Rule], ...] = (
    SlurmMemoryTooLow,
    SlurmMemoryUnstated,
    SlurmRequestImpossible,
    SlurmMemoryInvalid,
    SlurmTasksMismatch,
    SlurmDirectiveIgnored,
    SlurmOverRequest,
    ConcurrentLaunchesExceed,
)
