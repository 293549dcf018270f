"""The Python interface: check files, make a Job, estimate it. It writes no file and prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from preflight.system.files import real
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.estimates import Estimates, shown_by
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.outcome import Outcome
from preflight.vocabulary.values import Value, brief


def _page_of_check(found: object) -> str:
    from preflight.reports import html
    from preflight.reports.style import Look

    return html.framed(html.render(found, Look())) if isinstance(found, Outcome) else ""


def _page_of_estimate(found: object) -> str:
    from preflight.reports import html

    return html.framed(html.of_sides(found)) if isinstance(found, Estimates) else ""


shown_by(Outcome, _page_of_check)
shown_by(Estimates, _page_of_estimate)


def check(
    paths: str | Path | Iterable[str | Path],
    *,
    gpu: str | None = None,
    machine: str | None = None,
    set: Mapping[str, Value] | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    trust: Iterable[str] = (),
    cwd: Path | None = None,
) -> Outcome:
    """Runs `preflight check PATHS`: a report for each project, with its findings and studies.

    `paths`: one, or several; relative ones start at `cwd`. `set` gives Job fields by dotted names, as `--set` does.
    Sizes are bytes. Raises PreflightError where the command ends with status 2: an unknown path, GPU, rule or field,
    and broken settings. A mistake in the files is a finding.
    """
    from preflight.engine import check as engine
    from preflight.engine.files import batches

    place = real(cwd or Path.cwd())
    options = engine.CheckOptions(gpu, machine, dict(set or {}), tuple(select), tuple(ignore), tuple(trust))
    several = [paths] if isinstance(paths, (str, Path)) else paths
    found = batches([str(path) for path in several], place, from_hook=False)
    return engine.outcome_of([engine.check(*engine.setup(batch, options, place)) for batch in found], place)


def job_of(fields: Mapping[str, object]) -> Job:
    """A Job of fields by dotted or nested names, in libraries' spellings: {"model": "gpt2", "train.batch_size": 8}.

    Raises UsageError for a field that there is none of, and for a value that does not suit its field.
    """
    from preflight.engine.job_by_hand import dotted

    return checked(dotted(fields))


def checked(fields: dict[str, object]) -> Job:
    """A Job of fields in its own spelling, by dotted names. Raises UsageError."""
    from pydantic import ValidationError

    try:
        return build(fields)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        name = ".".join(map(str, details["loc"]))
        raise UsageError(f"{name} = {brief(details['input'])}: {details['msg']}") from error


def estimate(job: Job, machine: str | None = None) -> Estimates:
    """The memory of one Job, in bytes: on one GPU and on one node.

    `machine` names a GPU; None: the one of `job.machine`, if it states any. A side that cannot be known is None, and
    `reasons` says why. Models without a law that preflight knows are traced where torch is installed. Raises
    PreflightError for an unknown GPU.
    """
    from preflight.engine.estimator import Estimator

    job, gpu = placed(job, machine)
    return Estimator(gpu).full(job)


def placed(job: Job, machine: str | None = None) -> tuple[Job, Gpu | None]:
    """The Job on the GPU that `machine` names, or on its own. Raises PreflightError for an unknown GPU."""
    gpu = _gpu(job, machine)
    if gpu is not None and (machine is not None or job.machine.gpu is None):
        job = with_fields(job, {"machine.gpu": gpu.name})
    return job, gpu


def _gpu(job: Job, machine: str | None) -> Gpu | None:
    from preflight.engine.target import gpu_named
    from preflight.machines.gpus import find_gpu

    if machine is not None:
        return gpu_named(machine, "machine")
    if job.machine.gpu is None or job.machine.gpu_memory is not None:
        return find_gpu(job.machine.gpu) if job.machine.gpu is not None else None
    return gpu_named(job.machine.gpu, "machine.gpu")
