"""What could be done about too much host memory: loaders that keep less in flight, at the same run.

Throughput is what workers are for, so no setting is cut further than another before that one was tried: everything is
halved at most once before anything is halved twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Proposal, Safety
from preflight.vocabulary.job import Job
from preflight.vocabulary.rule import Case
from preflight_rules.common import changed, gib, possible, settable, written
from preflight_rules.remedies import accumulation_hazard, changes_of

Changes = Mapping[str, object]

LARGEST_CUT = 10
"""Halvings of one setting that are tried: 1,024 workers become one."""


GIB = 2**30
RESERVED = ((4 * GIB, 0.25), (8 * GIB, 0.20), (16 * GIB, 0.10), (128 * GIB, 0.06), (2**60, 0.02))
EVICTION = 100 * 2**20
"""What a node keeps for its system: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next
112 and 2 % of the rest, and 100 MiB before anything is evicted (Google Kubernetes Engine, "Plan node sizes")."""


def fits(case: Case, changes: Changes, limit: int | None = None) -> bool:
    """Whether the host's whole interval lies below its limit (`limit` in place of the job's) after `changes`."""
    host = host_after(case, changes, limit)
    return host is not None and host.verdict == "fits"


def host_after(case: Case, changes: Changes, limit: int | None = None) -> HostEstimate | None:
    """The host estimate after `changes`."""
    job = changed(case, changes)
    return case.estimate(job if limit is None else with_fields(job, {"machine.memory_limit": limit})).host


def halved(number: int, times: int) -> int:
    """A positive number halved so many times, never below 1."""
    return max(1, number >> times)


def same_batch(case: Case, times: int) -> Changes:
    """The batch halved so many times without changing the run; empty where that cannot be."""
    batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
    if batch is None or accumulation is None or batch % 2**times or not settable(case, "train.batch_size"):
        return {}
    size = batch >> times
    nominal = case.fact("nominal_batch")
    if isinstance(nominal, int):
        return {"train.batch_size": size} if nominal % batch == 0 else {}
    if accumulation_hazard(case) or not settable(case, "train.grad_accum"):
        return {}
    return {"train.batch_size": size, "train.grad_accum": accumulation << times}


def candidates(case: Case) -> Iterator[Changes]:
    """Changes of the loaders that keep the run the same, each with one more setting halved than the one before."""
    state = dict(quiet_changes(case))
    if state:
        yield dict(state)
    shut: set[tuple[str, ...]] = set()
    for times in range(1, LARGEST_CUT + 1):
        for lever in levers(case, times):
            if times == 1 and not possible(case, changes_of(lever)):
                shut.add(tuple(lever))
            if tuple(lever) not in shut and any(state.get(field) != value for field, value in lever.items()):
                state.update(lever)
                yield dict(state)


def levers(case: Case, times: int) -> Iterator[Changes]:
    """Settings halved so many times, the one whose loss costs least first.

    Validation comes first where it is the peak: it runs once per epoch. Settings derived from another's text are left
    to follow it.
    """
    data, host = case.job.data, case.estimates.host
    validation = [
        *_halved(case, "data.validation_workers", data.validation_workers, times, "data.workers"),
        *_halved(case, "validation.batch_size", case.job.validation.batch_size, times, "train.batch_size"),
    ]
    if host is not None and host.peak == "validation":
        yield from validation
    if data.prefetch is not None and data.prefetch > 1 and written(case, "data.prefetch"):
        yield {"data.prefetch": halved(data.prefetch, times)}
    yield from _halved(case, "data.workers", data.workers, times, "")
    batch = same_batch(case, times)
    if batch:
        yield batch
    if host is not None and host.peak != "validation":
        yield from validation


def _halved(case: Case, field: str, value: int | None, times: int, source: str) -> Iterator[Changes]:
    """One setting halved, where it is more than 1, written, and not derived from the text of `source`."""
    if value is None or value < 2 or not settable(case, field):
        return
    if source and case.origin(field) is not None and case.origin(field) == case.origin(source):
        return
    yield {field: halved(value, times)}


def quiet_changes(case: Case) -> Changes:
    """Workers that end with their loader, where they are said to stay."""
    return {"data.persistent_workers": False} if case.job.data.persistent_workers and _persists(case) else {}


def _persists(case: Case) -> bool:
    return written(case, "data.persistent_workers")


def loader_proposals(case: Case) -> tuple[Proposal, ...]:
    """The gentlest change of the loaders that suffices, then a smaller batch, which is another run.

    On a machine of one's own a fix leaves room for everything else that runs there, if it can.
    """
    for room in (unreserved(case), None):
        for changes in candidates(case):
            if fits(case, changes) and below(case, changes, room):
                needed = without_idle(case, changes, room)
                return (Proposal(title(case.job, needed), changes_of(needed), Safety.safe),)
    return tuple(_smaller_batch(case))


def unreserved(case: Case) -> int | None:
    """What a machine without a memory limit for the job has left for it; None where the job has a limit of its own.

    The job shares the memory with the system, and workers that are swapped out load nothing: swap does not count.
    """
    host = case.estimates.host
    memory = case.job.machine.node_memory
    if host is None or memory is None or not host.limited_by.startswith("node_memory"):
        return None
    reserve, below = EVICTION, 0
    for upper, share in RESERVED:
        reserve += int(share * max(0, min(memory, upper) - below))
        below = upper
    return memory - reserve


def below(case: Case, changes: Changes, room: int | None) -> bool:
    """Whether the high end of the need lies below some bytes after `changes`."""
    host = host_after(case, changes)
    return room is None or (host is not None and host.per_node.high <= room)


def without_idle(case: Case, changes: Changes, room: int | None) -> Changes:
    """`changes` without those that are not needed, what costs most left out first."""
    kept = dict(changes)
    for field in reversed([name for name in changes if name != "train.grad_accum"]):
        rest = {name: value for name, value in kept.items() if name != field}
        if field == "train.batch_size":
            rest.pop("train.grad_accum", None)
        if rest and fits(case, rest) and below(case, rest, room):
            kept = rest
    return kept


def _smaller_batch(case: Case) -> Iterator[Proposal]:
    batch, workers = case.job.train.batch_size, case.job.data.workers
    if batch is None or not settable(case, "train.batch_size"):
        return
    for times in range(1, batch.bit_length()):
        changes: dict[str, object] = {"train.batch_size": halved(batch, times)}
        for fewer in (
            {},
            {"data.workers": halved(workers, times)} if workers and written(case, "data.workers") else {},
        ):
            if fits(case, {**fewer, **changes}):
                reason = "the effective batch changes"
                yield Proposal(title(case.job, {**fewer, **changes}), changes_of({**fewer, **changes}), reason=reason)
                return


def title(job: Job, changes: Changes) -> str:
    """ "workers 16 -> 8, batch 64 -> 32"."""
    words = {"data.persistent_workers": "persistent workers", "train.grad_accum": "accumulation"}
    names = {field: words.get(field, field.split(".")[-1].replace("_size", "")) for field in changes}
    return ", ".join(f"{names[field]} {job.get(field)} -> {value}" for field, value in changes.items())


def node_limit(case: Case) -> int | None:
    """The memory that a job may be given on its node, None where nobody said what node it is."""
    known = [case.node.memory if case.node is not None else None, case.job.machine.node_memory]
    request = case.study.request
    asked = request.partition if request is not None else None
    for partition in case.cluster.partitions if case.cluster is not None else ():
        if partition.name == asked or (asked is None and partition.default):
            known.append(partition.max_memory_per_node)
    limits = [size for size in known if size is not None]
    return min(limits) if limits else None


def raised_memory(case: Case, host: HostEstimate) -> Proposal | None:
    """SLURM's memory raised to the need, as far as the node is known to go, and the loaders quieted beside it."""
    from preflight_rules.slurm import memory_change

    found = memory_change(case, host.per_node.high) if node_limit(case) is not None else None
    if found is None or host.limit is None or found[1] <= host.limit:
        return None
    change, memory = found
    for changes in (quiet_changes(case) or fewer_workers(case), {}):
        if fits(case, changes, memory):
            words = f"memory per node {gib(host.limit)} -> {gib(memory)}"
            words += f", {title(case.job, changes)}" if changes else ""
            return Proposal(words, (change, *changes_of(changes)), Safety.safe)
    return None


def fewer_workers(case: Case) -> Changes:
    """Half the workers, where they are written and more than one."""
    workers = case.job.data.workers or 0
    return {"data.workers": halved(workers, 1)} if workers > 1 and written(case, "data.workers") else {}


def sample_threshold(job: Job, training_only: bool = False) -> int | None:
    """The largest `data.sample_bytes` that fits, None where no limit is known or not even empty samples fit.

    `training_only` leaves the validation loader out.
    """
    from preflight.memory.host.estimate import solve_sample_bytes

    return solve_sample_bytes(with_fields(job, {"data.validation_workers": None}) if training_only else job)
