"""Recorded runs of this user in an estimate. A store that cannot be used changes nothing, and says so."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from preflight.store import database
from preflight.system import observed
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.watched import MeasuredPeak, MeasuredRun
from preflight.vocabulary.words import gib, plural

if TYPE_CHECKING:
    from preflight.store.calibrate import Learnt
    from preflight.store.records import KeptRun

MOST_RUNS = 5000
"""The newest runs that are looked at."""
SHOWN = 5
"""The newest runs of a job that a report shows beside its estimate."""


def with_recorded(job: Job, found: DeviceEstimate, gpu: Gpu) -> DeviceEstimate:
    """The estimate with what recorded runs on this GPU say of it."""
    path = _store()
    if path is None:
        return found
    from preflight.store.calibrate import calibrated

    try:
        learnt = _learnt(job, gpu, _runs(path, database.stamp(path)))
    except (database.StoreError, OSError) as error:
        return replace(found, recorded=(*found.recorded, _unused(error)))
    varies = job.train.seq_len is not None and job.train.sequences not in ("exact", "packed")
    known, left = calibrated(found, learnt, varies), _brought_in(path, database.stamp(path))[1]
    if left:
        words = f"left out of the folder of runs: {plural(left, 'file')} (preflight runs names them)"
        return replace(known, recorded=(*known.recorded, words))
    return known


def recorded_runs() -> tuple[KeptRun, ...]:
    """All recorded runs of this user; none where the store cannot be used."""
    path = _store()
    try:
        return () if path is None else _runs(path, database.stamp(path))
    except (database.StoreError, OSError):  # an estimate says so
        return ()


def said_of(job: Job, found: DeviceEstimate | None) -> tuple[str, ...]:
    """What recorded runs changed in an estimate, or say of a job that has none for a GPU."""
    if found is not None and (found.recorded or found.capacity is not None):
        return found.recorded
    said = words_of(job)
    return (said,) if said else ()


def words_of(job: Job) -> str:
    """What recorded runs of the job say where it has no estimate for a GPU; "" if nothing is known of it."""
    path = _store()
    if path is None:
        return ""
    from preflight.store.calibrate import told

    try:
        return told(_runs_of(job, path))
    except (database.StoreError, OSError) as error:
        return _unused(error)


def measured_of(job: Job, gpu: Gpu | None) -> tuple[MeasuredRun, ...]:
    """The recorded runs of a job on this GPU (None: on any), newest first; none where the store cannot be used."""
    path = _store()
    if path is None:
        return ()
    from preflight.machines.gpus import find_gpu

    try:
        same = _runs_of(job, path)
    except (database.StoreError, OSError):  # an estimate says so
        return ()
    here = [one for one in same if gpu is None or find_gpu(one.machine.gpu) == gpu]
    return tuple(map(measured_run, here[:SHOWN]))


def _store() -> str | None:
    """The store of this user, if it is there. A run that is added later changes the result of a check."""
    path = database.place()
    if path is None:
        return None
    observed.depends_on(path)
    return path if database.exists() else None


def _unused(error: Exception) -> str:
    return f"recorded runs are not used: {error}"


def _runs_of(job: Job, path: str) -> list[KeptRun]:
    """The runs of a job. Any other job of which as little is known would be the same as one without model or batch."""
    from preflight.store.records import canonical, hash_of

    fields = canonical(job)
    if not fields["model"] or job.train.batch_size is None:
        return []
    digest = hash_of(fields)
    return [one for one in _runs(path, database.stamp(path)) if one.job_hash == digest]


def measured_run(run: KeptRun) -> MeasuredRun:
    """A recorded run as reports show it."""
    from preflight.store.records import PHASES
    from preflight.store.text import describe

    most: dict[tuple[str, str], int] = {}
    for one in sorted(run.peaks, key=lambda one: PHASES.index(one.phase)):
        most[one.tier, one.phase] = max(most.get((one.tier, one.phase), 0), one.bytes)
    laws = {one.tier: Interval(*one.law) for one in run.peaks if one.law is not None}
    of = run.machine
    machine = (of.gpu, f"torch {of.torch}" if of.torch else "", f"CUDA {of.cuda}" if of.cuda else "")
    asked = f", at a request of {gib(run.oom_request)}" if run.oom_request else ""
    return MeasuredRun(
        run.id[:8], run.started[:16].replace("T", " "), run.outcome, describe(run.job),
        ", ".join(word for word in machine if word), run.steps, run.seconds,
        tuple(MeasuredPeak(tier, phase, size) for (tier, phase), size in most.items()), laws, dict(run.host),
        f"memory ran out in {run.oom_phase}{asked}" if run.oom_phase else "", run.law_version,
    )  # fmt: skip


def _learnt(job: Job, gpu: Gpu, runs: tuple[KeptRun, ...]) -> Learnt:
    """The runs on GPUs of this name and size: those of the job, and the others."""
    from preflight.machines.gpus import find_gpu
    from preflight.store.calibrate import Learnt
    from preflight.store.records import canonical, hash_of

    here = [one for one in runs if one.machine.gpu and find_gpu(one.machine.gpu) == gpu]
    digest = hash_of(canonical(job)) if here else ""
    same = tuple(one for one in here if one.job_hash == digest)
    return Learnt(same, tuple(one for one in here if one.job_hash != digest), job.software.get("torch", ""))


def _runs(path: str, stamp: object) -> tuple[KeptRun, ...]:
    return _brought_in(path, stamp)[0]


@lru_cache(maxsize=4)
def _brought_in(path: str, stamp: object) -> tuple[tuple[KeptRun, ...], int]:
    """The recorded runs, and how many files of a shared folder are none; `stamp` is another one when a run was
    added."""
    from preflight.store.runs import runs

    left_out: list[str] = []
    return tuple(runs(MOST_RUNS, left_out)), len(left_out)
