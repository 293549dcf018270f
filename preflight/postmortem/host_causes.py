"""Diagnosis of a kill for host memory: by the kernel (reported by itself, SLURM or a container), or by a daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.postmortem.circumstances import MOST_PLACES, places_of, trial_of, when
from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.diagnosis import Diagnosis, HostFigures, Limit, Misleading
from preflight.postmortem.evidence import (
    Accounting,
    ContainerKilled,
    DaemonKill,
    Evidence,
    KernelKill,
    MemoryExceeded,
    StepKilled,
    WorkerDied,
)
from preflight.postmortem.kernel import owner, page_bytes
from preflight.vocabulary.findings import Confidence
from preflight.vocabulary.words import gib

PROGRAMS = ("python", "pt_", "torchrun", "accelerate", "deepspeed", "ray::", "srun", "pytest")
"""How the names of training processes and their workers start; the log of a node reports any process."""


def memory(found: CollectedEvidence) -> Diagnosis | None:
    """The diagnosis of a kill for memory; None: the logs show no such kill."""
    kill = _kill(found)
    steps, containers, daemons = found.of(StepKilled), found.of(ContainerKilled), found.of(DaemonKill)
    exceeded = found.of(MemoryExceeded)
    rows = _out_of_memory(found)
    told: list[Evidence] = [*([kill] if kill else []), *steps, *rows, *exceeded, *containers, *daemons]
    if not told:
        return None
    limit: Limit
    if kill is not None:
        title, limit, sure = _kernel_title(kill), "cgroup" if kill.scope == "cgroup" else "node", Confidence.high
    elif steps or rows or exceeded:
        title, limit, sure = _slurm_title(found), "cgroup", Confidence.high if exceeded else Confidence.medium
    elif containers:
        size = next((one.limit for one in containers if one.limit is not None), None)
        title = f"the container reached its memory limit{f' of {gib(size)}' if size else ''} and was killed"
        limit, sure = "cgroup", Confidence.high
    else:
        title, limit, sure = _daemon_title(daemons[0]), "node", Confidence.high
    places = places_of(told)
    return Diagnosis(
        limit,
        title,
        sure,
        tuple(places[:MOST_PLACES]),
        max(1, sum(1 for one in found.of(KernelKill) if kill and one.cgroup == kill.cgroup) or len(steps)),
        when(places, found, ()),
        tuple(_memory_notes(found, kill, steps)),
        tuple(_memory_help(found, kill)),
        host=_host_figures(found, kill),
        trial=trial_of(places, found),
    )


def _out_of_memory(found: CollectedEvidence) -> list[Accounting]:
    return [row for row in found.of(Accounting) if row.state == "OUT_OF_MEMORY"]


def _kill(found: CollectedEvidence) -> KernelKill | None:
    """The kill that ended the job: in its own control group, else of a training process, else any."""
    kills = found.of(KernelKill)
    jobs = {one.job for one in found.of(StepKilled)} | {row.job for row in found.of(Accounting)}
    for wanted in (
        [one for one in kills if one.job is not None and one.job in jobs],
        [one for one in kills if one.victim.startswith(PROGRAMS)],
        kills,
    ):
        if wanted:
            return max(wanted, key=lambda one: (one.limit is not None, one.anon_rss or 0))
    return None


def _kernel_title(kill: KernelKill) -> str:
    who = f"{kill.victim} (pid {kill.pid})" if kill.victim else f"process {kill.pid}"
    who = kill.victim if kill.victim and kill.pid is None else who
    if kill.scope == "cgroup":
        room = f" of {gib(kill.limit)}" if kill.limit else ""
        return f"{owner(kill.cgroup)} reached its memory limit{room}: the kernel killed {who}"
    if kill.scope == "policy":
        return f"the memory that a cpuset or NUMA policy allows was full: the kernel killed {who}"
    return f"the node ran out of memory (not a limit of the job): the kernel killed {who}"


def _slurm_title(found: CollectedEvidence) -> str:
    limit = _limit(found)
    room = f" of {gib(limit)} per node" if limit is not None else ""
    count = max((one.count or 0 for one in found.of(StepKilled)), default=0)
    how = "it was killed" if not count else f"{count:,} process{'es were' if count > 1 else ' was'} killed"
    named = [one.job for one in found.of(StepKilled)] + [row.job for row in found.of(Accounting)]
    job = next((f"SLURM job {job}" for job in named if job), "the SLURM job")
    return f"{job} reached its memory limit{room}: {how}"


def _daemon_title(one: DaemonKill) -> str:
    victim = f" {one.victim}" if one.victim else " the process"
    had = f": {gib(one.used)} of {gib(one.total)} was in use" if one.used and one.total else ""
    return f"{one.daemon} killed{victim} because the node had little memory left{had}"


def _limit(found: CollectedEvidence) -> int | None:
    """Bytes per node that accounting, SLURM's message or a container's description gives the job."""
    for one in found.of(MemoryExceeded):
        if one.limit is not None:
            return one.limit
    for row in found.of(Accounting):
        if row.per_node is not None:
            return row.per_node
    return next((one.limit for one in found.of(ContainerKilled) if one.limit is not None), None)


def _host_figures(found: CollectedEvidence, kill: KernelKill | None) -> HostFigures:
    tasks = [row.largest_task for row in found.of(Accounting) if row.largest_task is not None]
    limit = kill.limit if kill is not None and kill.limit else _limit(found)
    if kill is not None and kill.scope != "cgroup":
        page = page_bytes(kill)
        ram = kill.ram_pages * page if kill.ram_pages is not None and page is not None else None
        limit = ram + (kill.swap_total or 0) if ram is not None else None
    used = next((one.used for one in found.of(MemoryExceeded) if one.used is not None), None)
    largest = max(tasks, default=None)
    if kill is None:
        return HostFigures(limit, used, largest_task=largest)
    return HostFigures(limit, kill.usage, kill.anon, kill.shmem, kill.anon_rss, largest)


def _memory_notes(found: CollectedEvidence, kill: KernelKill | None, steps: Sequence[StepKilled]) -> Iterator[str]:
    if kill is not None:
        if kill.usage is not None and kill.limit:
            used = f"memory in use at that moment: {gib(kill.usage)}"
            shared = f"{gib(kill.shmem or 0)} shared, as in /dev/shm"
            yield used if kill.anon is None else f"{used} ({gib(kill.anon)} private, {shared})"
        if kill.anon_rss is not None:
            shared = f", and {gib(kill.shmem_rss)} of shared memory" if kill.shmem_rss else ""
            yield f"the killed process used {gib(kill.anon_rss)}{shared}; other processes of the job used memory, too"
        if kill.swap_total:
            yield f"swap: {gib(kill.swap_free or 0)} of {gib(kill.swap_total)} was free"
        if kill.victim.startswith("pt_data_worker") or kill.victim.startswith("pt_data_pin"):
            yield "the killed process is a DataLoader worker"
        if kill.scope == "node" and (steps or _out_of_memory(found)):
            yield "SLURM reports this kill for the job, but the node was full: another job may have filled it"
    deaths = found.of(WorkerDied)
    if any(one.signal.startswith("Killed") for one in deaths):
        yield f"a DataLoader worker was killed too ({deaths[0].place})"
    if len(steps) > 1:
        named = sorted({f"{one.job}.{one.step}" for one in steps if one.job and one.step})
        if len(named) > 1:
            yield f"killed steps: {', '.join(named[:6])}"


def _memory_help(found: CollectedEvidence, kill: KernelKill | None) -> Iterator[str]:
    if kill is None and not found.of(MemoryExceeded) and (found.of(StepKilled) or _out_of_memory(found)):
        yield (
            "SLURM reports the same when the whole node was full; dmesg -T on the node tells which it was: "
            "CONSTRAINT_MEMCG is the limit of the job, CONSTRAINT_NONE is a full node"
        )


def misleading(found: CollectedEvidence) -> Iterator[Misleading]:
    """Figures of the kernel and of accounting that are easily mistaken for the memory that the job needs."""
    kill = _kill(found)
    if kill is not None:
        yield from _of_kill(kill)
    limit = _limit(found)
    rows = [row for row in found.of(Accounting) if row.largest_task]
    row = max(rows, key=lambda row: row.largest_task or 0, default=None)
    killed = kill is not None or bool(found.of(StepKilled))
    if row is not None and (killed or _out_of_memory(found)):
        yield Misleading(row.place, f"MaxRSS {gib(row.largest_task or 0)}", _max_rss(row, limit))


def _of_kill(kill: KernelKill) -> Iterator[Misleading]:
    if kill.total_vm is not None:
        resident = f"; only {gib(kill.anon_rss)} of it was in memory" if kill.anon_rss is not None else ""
        yield Misleading(
            kill.place,
            f"total-vm {gib(kill.total_vm)}",
            f"this is the address space of one process, most of it never used (CUDA reserves far more than it needs)"
            f"{resident}",
        )
    page = page_bytes(kill)
    if page is not None and len(kill.tasks) > 1:
        total = sum(task.pages for task in kill.tasks) * page
        yield Misleading(
            kill.place,
            f"{gib(total)}, the sum of rss in the table of tasks",
            "memory that processes share (batches in /dev/shm, a forked dataset) is counted once for each of them, and "
            "batches that no process maps at that moment are missing",
        )


def _max_rss(row: Accounting, limit: int | None) -> str:
    """MaxRSS is a sample of one task."""
    text = "SLURM samples it (every 30 s by default) and misses short peaks; it is of the largest task, not of the node"
    if row.tasks and row.nodes and row.tasks > row.nodes and row.largest_task:
        per_node = row.tasks // row.nodes
        text += (
            f": {per_node} tasks ran on each node, and {per_node} x {gib(row.largest_task)} = "
            f"{gib(per_node * row.largest_task)} would count the memory that they share {per_node} times"
        )
    elif limit is not None and row.largest_task and row.largest_task < limit:
        text += f"; so it can be below the limit of {gib(limit)} although the job reached that limit"
    return text
