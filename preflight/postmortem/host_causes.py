"""Killed for host memory: by the kernel, as SLURM or a container runtime counted it, or by a daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.postmortem.circumstances import MOST_PLACES, places_of, trial_of, when
from preflight.postmortem.collect import Found
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
from preflight.vocabulary.words import gib, plural

PROGRAMS = ("python", "pt_", "torchrun", "accelerate", "deepspeed", "ray::", "srun", "pytest")
"""Names under which training processes and their workers run; a node's log tells of any process."""


def memory(found: Found) -> Diagnosis | None:
    """Killed for memory: by the kernel, as SLURM or a container runtime counted it, or by a daemon."""
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
        title = "the container was killed at its memory limit" + (f" of {gib(size)}" if size else "")
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


def _out_of_memory(found: Found) -> list[Accounting]:
    return [row for row in found.of(Accounting) if row.state == "OUT_OF_MEMORY"]


def _kill(found: Found) -> KernelKill | None:
    """The kill that the job died of: of its own cgroup, else of a training process, else the last."""
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
    if kill.scope == "cgroup":
        room = f" of {gib(kill.limit)}" if kill.limit else ""
        return f"the memory limit{room} of {owner(kill.cgroup)} was reached: the kernel killed {who}"
    if kill.scope == "policy":
        return f"the memory that a cpuset or NUMA policy allows was used up: the kernel killed {who}"
    return f"the node itself ran out of memory (no limit of the job's own): the kernel killed {who}"


def _slurm_title(found: Found) -> str:
    limit = _limit(found)
    room = f" of {gib(limit)} per node" if limit is not None else ""
    count = max((one.count or 0 for one in found.of(StepKilled)), default=0)
    how = f" ({plural(count, 'process').replace('processs', 'processes')})" if count else ""
    named = [one.job for one in found.of(StepKilled)] + [row.job for row in found.of(Accounting)]
    job = next((job for job in named if job), None)
    return f"SLURM job {job or ''} was killed at its memory limit{room}{how}".replace("job  was", "job was")


def _daemon_title(one: DaemonKill) -> str:
    victim = f" {one.victim}" if one.victim else " the process"
    had = f", at {gib(one.used)} of {gib(one.total)}" if one.used and one.total else ""
    return f"{one.daemon} killed{victim} because the node was short of memory{had}"


def _limit(found: Found) -> int | None:
    """Bytes per node that accounting, SLURM's message or a container's description gives the job."""
    for one in found.of(MemoryExceeded):
        if one.limit is not None:
            return one.limit
    for row in found.of(Accounting):
        if row.per_node is not None:
            return row.per_node
    return next((one.limit for one in found.of(ContainerKilled) if one.limit is not None), None)


def _host_figures(found: Found, kill: KernelKill | None) -> HostFigures:
    tasks = [row.largest_task for row in found.of(Accounting) if row.largest_task is not None]
    limit = kill.limit if kill is not None and kill.limit else _limit(found)
    if kill is not None and kill.scope != "cgroup":
        page = page_bytes(kill)
        ram = kill.ram_pages * page if kill.ram_pages is not None and page is not None else None
        limit = ram + (kill.swap_total or 0) if ram is not None else None
    used = next((one.used for one in found.of(MemoryExceeded) if one.used is not None), None)
    return HostFigures(
        limit,
        kill.usage if kill is not None else used,
        kill.anon if kill is not None else None,
        kill.shmem if kill is not None else None,
        kill.anon_rss if kill is not None else None,
        max(tasks, default=None),
    )


def _memory_notes(found: Found, kill: KernelKill | None, steps: Sequence[StepKilled]) -> Iterator[str]:
    if kill is not None:
        if kill.usage is not None and kill.limit:
            parts = f" (anonymous {gib(kill.anon)}, shared {gib(kill.shmem or 0)})" if kill.anon is not None else ""
            yield f"the control group used {gib(kill.usage)}{parts}"
        if kill.anon_rss is not None:
            shared = f" and {gib(kill.shmem_rss)} shared" if kill.shmem_rss else ""
            yield f"the killed process held {gib(kill.anon_rss)}{shared}; the others of the job come on top"
        if kill.swap_total:
            yield f"of {gib(kill.swap_total)} swap {gib(kill.swap_free or 0)} were free"
        if kill.victim.startswith("pt_data_worker") or kill.victim.startswith("pt_data_pin"):
            yield "the killed process is a worker of a DataLoader"
        if kill.scope == "node" and (steps or _out_of_memory(found)):
            yield "SLURM counts this kill as the job's own, but the node was full: another job may have filled it"
    deaths = found.of(WorkerDied)
    if any(one.signal.startswith("Killed") for one in deaths):
        yield f"a DataLoader worker was killed with it ({deaths[0].place})"
    if len(steps) > 1:
        named = sorted({f"{one.job}.{one.step}" for one in steps if one.job and one.step})
        if len(named) > 1:
            yield f"steps that were hit: {', '.join(named[:6])}"


def _memory_help(found: Found, kill: KernelKill | None) -> Iterator[str]:
    if kill is None and not found.of(MemoryExceeded) and (found.of(StepKilled) or _out_of_memory(found)):
        yield (
            "SLURM counts a kill of either kind here: dmesg on the node tells the job's limit (CONSTRAINT_MEMCG) from "
            "a node that was full (CONSTRAINT_NONE)"
        )


def misleading(found: Found) -> Iterator[Misleading]:
    """Figures of kernel and accounting that people take for the need."""
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
        beside = f"; {gib(kill.anon_rss)} of it was resident" if kill.anon_rss is not None else ""
        yield Misleading(
            kill.place,
            f"total-vm {gib(kill.total_vm)}",
            f"address space of one process, reserved and mostly never touched (CUDA alone maps far more than it uses)"
            f"{beside}",
        )
    page = page_bytes(kill)
    if page is not None and len(kill.tasks) > 1:
        total = sum(task.pages for task in kill.tasks) * page
        yield Misleading(
            kill.place,
            f"the task table's rss, {gib(total)} together",
            "pages that processes share (batches in /dev/shm, a forked data set) are counted once for each of them, "
            "and batches that no process maps at the moment are missing",
        )


def _max_rss(row: Accounting, limit: int | None) -> str:
    """MaxRSS is a sample of one task."""
    text = "sampled (every 30 s by default), so it misses a spike; and it is the largest single task, not the node"
    if row.tasks and row.nodes and row.tasks > row.nodes and row.largest_task:
        per_node = row.tasks // row.nodes
        text += (
            f": {per_node} tasks ran on each node, and {per_node} x {gib(row.largest_task)} = "
            f"{gib(per_node * row.largest_task)} would count what they share {per_node} times"
        )
    elif limit is not None and row.largest_task and row.largest_task < limit:
        text += f": that it is below the limit of {gib(limit)} proves nothing"
    return text
