"""Fixes for too much host memory: loaders that keep fewer samples in flight, with the same run.

Workers are there for throughput, so no setting is cut more than necessary: each is halved once before any is halved
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from preflight.api import (
    GIB,
    SHIPPED_ONLY,
    Case,
    Change,
    HostEstimate,
    Job,
    Proposal,
    Safety,
    Tracing,
    changed,
    gib,
    possible,
    settable,
    solve_sample_bytes,
    with_fields,
    written,
)
from preflight_rules.shared.remedies import Changes, changes_of
from preflight_rules.shared.same_run import accumulation_hazard, statistics_hazard, workers_hazard
from preflight_rules.shared.slurm import memory_change, node_limit

LARGEST_CUT = 10
"""How often one setting is halved at most: 1,024 workers become one."""

TRAINING_WORKERS = {"data.workers", "data.persistent_workers"}
"""Settings that decide the samples of an iterable data set. Prefetch does not: workers deliver batches in turn,
however many wait."""

RESERVED = ((4 * GIB, 0.25), (8 * GIB, 0.20), (16 * GIB, 0.10), (128 * GIB, 0.06), (2**60, 0.02))
EVICTION = 100 * 2**20
"""Memory that a node keeps for its system: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the
next 112 and 2 % of the rest, and 100 MiB before anything is evicted (Google Kubernetes Engine, "Plan node sizes")."""


def fits(case: Case, changes: Changes, limit: int | None = None) -> bool:
    """Whether the host's whole interval is below its limit (`limit` replaces the job's) after `changes`."""
    host = host_after(case, changes, limit)
    return host is not None and host.fitting


def host_after(case: Case, changes: Changes, limit: int | None = None) -> HostEstimate | None:
    """The host estimate after `changes`."""
    job = changed(case, changes)
    return case.estimate(job if limit is None else with_fields(job, {"machine.memory_limit": limit})).host


def halved(number: int, times: int) -> int:
    """A positive number halved so many times, never below 1."""
    return max(1, number >> times)


def same_batch(case: Case, times: int) -> Changes:
    """The batch halved so many times without changing the run; empty if that is impossible."""
    batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
    if batch is None or accumulation is None or batch % 2**times or not settable(case, "train.batch_size"):
        return {}
    size = batch >> times
    nominal = case.fact("nominal_batch")
    if isinstance(nominal, int):
        return {"train.batch_size": size} if nominal % batch == 0 and not statistics_hazard(case) else {}
    if accumulation_hazard(case) or not settable(case, "train.grad_accum"):
        return {}
    return {"train.batch_size": size, "train.grad_accum": accumulation << times}


def candidates(case: Case, workers: bool = True) -> Iterator[Changes]:
    """Changes of the loaders that keep the run the same, each with one more setting halved than the one before. Without
    `workers` those of a training loader stay as they are: `workers_hazard` says whether they must."""
    state = dict(quiet_changes(case)) if workers else {}
    if state:
        yield dict(state)
    shut: set[tuple[str, ...]] = set()
    for times in range(1, LARGEST_CUT + 1):
        for lever in levers(case, times):
            if not workers and TRAINING_WORKERS & set(lever):
                continue
            if times == 1 and not possible(case, changes_of(lever)):
                shut.add(tuple(lever))
            if tuple(lever) not in shut and any(state.get(field) != value for field, value in lever.items()):
                state.update(lever)
                yield dict(state)


def safe_candidates(case: Case) -> Iterator[tuple[Changes, str]]:
    """Candidates that keep the run the same, then those of which that is not known or not so, with the reason."""
    hazard = workers_hazard(case)
    yield from ((changes, "") for changes in candidates(case, workers=not hazard))
    if hazard:
        for changes in candidates(case):
            yield changes, hazard if TRAINING_WORKERS & set(changes) else ""


def solved_loader(case: Case, field: str, value: int) -> Iterator[Proposal]:
    """Other workers, or another prefetch. Samples come in the same order, unless the data set is a stream."""
    if not settable(case, field):
        return
    hazard = workers_hazard(case) if field in TRAINING_WORKERS else ""
    safety = Safety.unsafe if hazard else Safety.safe
    title = f"{field.removeprefix('data.').replace('_', ' ')} {case.job.get(field)} -> {value}"
    yield Proposal(title, changes_of({field: value}), safety, hazard)


def levers(case: Case, times: int) -> Iterator[Changes]:
    """Settings halved so many times, the least costly first.

    Validation comes first if it makes the peak, because it runs once per epoch. A setting that is computed from
    another one follows it.
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
    """One setting halved, if it is above 1, written, and not computed from the text of `source`."""
    if value is None or value < 2 or not settable(case, field):
        return
    if source and case.origin(field) is not None and case.origin(field) == case.origin(source):
        return
    yield {field: halved(value, times)}


def quiet_changes(case: Case) -> Changes:
    """Workers that end with their loader, if they are set to persist."""
    return {"data.persistent_workers": False} if case.job.data.persistent_workers and _persists(case) else {}


def _persists(case: Case) -> bool:
    return written(case, "data.persistent_workers")


def loader_proposals(case: Case) -> tuple[Proposal, ...]:
    """The smallest change of the loaders after which the job fits, else a smaller batch, which is another run.

    On a machine without a memory limit for the job, a fix leaves memory for the system if it can.
    """
    for same, room in product((True, False), (unreserved(case), None)):
        for changes, hazard in safe_candidates(case):
            if (not hazard) is same and fits(case, changes) and below(case, changes, room):
                needed = without_idle(case, changes, room)
                return (proposed(case, title(case.job, needed), changes_of(needed), hazard),)
    return tuple(_smaller_batch(case))


def proposed(case: Case, words: str, changes: tuple[Change, ...], hazard: str) -> Proposal:
    """A proposal that is safe without a hazard, or if it does not change the training workers."""
    hazard = hazard if any(change.field in TRAINING_WORKERS for change in changes) else ""
    return Proposal(words, changes, Safety.unsafe if hazard else Safety.safe, hazard)


def unreserved(case: Case) -> int | None:
    """The memory of a machine for a job without a memory limit; None if the job has a limit.

    The job shares the memory with the system, and workers that are swapped out load nothing: swap does not count.
    """
    host = case.estimates.host
    memory = case.job.machine.node_memory
    if host is None or memory is None or not host.limited_by_node:
        return None
    reserve, below = EVICTION, 0
    for upper, share in RESERVED:
        reserve += int(share * max(0, min(memory, upper) - below))
        below = upper
    return memory - reserve


def below(case: Case, changes: Changes, room: int | None) -> bool:
    """Whether the high end of the need is below some bytes after `changes`."""
    host = host_after(case, changes)
    return room is None or (host is not None and host.per_node.high <= room)


def without_idle(case: Case, changes: Changes, room: int | None) -> Changes:
    """`changes` without those that are not needed; the most costly ones are left out first."""
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


def raised_memory(case: Case, host: HostEstimate) -> Proposal | None:
    """The SLURM memory raised to the need, at most to the memory of the node, with quieter loaders."""
    found = memory_change(case, host.per_node.high) if node_limit(case) is not None else None
    if found is None or host.limit is None or found[1] <= host.limit:
        return None
    change, memory = found
    for changes in (quiet_changes(case) or fewer_workers(case), {}):
        if fits(case, changes, memory):
            words = f"memory per node {gib(host.limit)} -> {gib(memory)}"
            words += f", {title(case.job, changes)}" if changes else ""
            return proposed(case, words, (change, *changes_of(changes)), workers_hazard(case) if changes else "")
    return None


def fewer_workers(case: Case) -> Changes:
    """Half of the workers, if the setting is written and above one."""
    workers = case.job.data.workers or 0
    return {"data.workers": halved(workers, 1)} if workers > 1 and written(case, "data.workers") else {}


def sample_threshold(job: Job, tracing: Tracing = SHIPPED_ONLY, training_only: bool = False) -> int | None:
    """The largest `data.sample_bytes` that fits; None if no limit is known, or not even empty samples fit.

    `training_only` leaves the validation loader out.
    """
    asked = with_fields(job, {"data.validation_workers": None}) if training_only else job
    return solve_sample_bytes(asked, tracing=tracing)
