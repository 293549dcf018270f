"""The configuration of the job that died, named by the user or by the logs, and what `check` finds in it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import CheckOptions, CheckSetup, check, setup
from preflight.engine.files import batches
from preflight.engine.points import job_at
from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.diagnosis import Diagnosis
from preflight.postmortem.evidence import Accounting, Evidence, GpuOom, HostAllocation, Named, Trial, WorkerDied
from preflight.postmortem.trace import library
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.outcome import Report, StudyResult
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Value

SCRIPTS = (".sh", ".slurm", ".sbatch", ".bash", ".zsh", ".job")


class ConfigurationFile(Struct, frozen=True):
    """A study that may be the job that died, with the Job of the combination that failed, or of the worst one."""

    report: Report
    result: StudyResult
    job: Job
    estimates: Estimates
    combination: Mapping[str, Value]
    certain: bool
    """The logs name the combination, or there is only one."""
    estimate: Callable[[Job], Estimates]
    """Estimates any other Job on the same GPU."""
    tracing: Tracing
    """Tracing policy: allowed for models without a shipped law, and with which interpreter."""


def named(found: CollectedEvidence, cwd: Path) -> list[str]:
    """Files under the current directory that the logs name: a job script if there is one, else the program."""
    files = list(dict.fromkeys(_files(found, cwd.resolve())))
    scripts = [path for path in files if path.suffix in SCRIPTS]
    chosen = scripts or files
    return [str(path) for path in chosen[:1]]


def meant(candidates: Sequence[ConfigurationFile], found: CollectedEvidence, cwd: Path) -> list[ConfigurationFile]:
    """Of several studies those whose files the logs name; all of them when the logs name none."""
    here = cwd.resolve()
    files = {here / path for path in _files(found, here)}
    of_log = [one for one in candidates if files & {one.report.project.root / path for path in one.result.study.paths}]
    return of_log or list(candidates)


def _files(found: CollectedEvidence, cwd: Path) -> Iterator[Path]:
    for one in found.evidence:
        for name, folder in _names(one):
            path = _existing(name, folder, cwd)
            if path is not None:
                yield path


def _names(one: Evidence) -> Iterator[tuple[str, str]]:
    if isinstance(one, Named):
        yield one.path, one.folder
    elif isinstance(one, Accounting) and one.submit_line:
        try:
            words = shlex.split(one.submit_line)[1:]
        except ValueError:
            words = one.submit_line.split()[1:]
        yield from ((word, one.folder) for word in words if not word.startswith("-"))
    elif isinstance(one, (GpuOom, WorkerDied, HostAllocation)):
        own = [frame for frame in one.frames if not library(frame)]
        modules = [frame for frame in own if frame.function == "<module>"]
        yield from ((frame.path, "") for frame in (modules or own)[:1])


def _existing(name: str, folder: str, cwd: Path) -> Path | None:
    """The file under `cwd` that a path from another machine means: the longest ending of the path that exists."""
    if not name or len(name) > 4096 or "\0" in name:
        return None
    parts = [part for part in Path(folder, name).parts if part not in ("/", "..", ".")]
    for start in range(max(0, len(parts) - 8), len(parts)):
        path = cwd.joinpath(*parts[start:])
        try:
            if path.is_file() and path.resolve().is_relative_to(cwd):
                return path.relative_to(cwd)
        except OSError:
            return None
    return None


def judge(
    paths: Sequence[str], options: CheckOptions, causes: Sequence[Diagnosis], cwd: Path
) -> tuple[list[Report], list[ConfigurationFile], list[str]]:
    """The check of the files, the studies that may be the job, and notes about values from the logs.

    The logs say the GPU's memory and the memory limit when the files do not. Raises UsageError for a wrong file.
    """
    reports: list[Report] = []
    candidates: list[ConfigurationFile] = []
    notes: list[str] = []
    for batch in batches(paths, cwd, from_hook=False):
        project, asked = setup(batch, options, cwd)
        report = check(project, asked)
        if report.refused:
            raise UsageError(
                f"--config {report.refused[0]} is not recognised as a configuration, job script or program"
            )
        seen, said = _from_logs(report, causes, options)
        if seen:
            notes += said
            project, asked = setup(batch, replace(options, set={**seen, **options.set}), cwd)
            report = check(project, asked)
        reports.append(report)
        candidates += _candidates(report, asked, causes)
    return reports, candidates, list(dict.fromkeys(notes))


def _from_logs(
    report: Report, causes: Sequence[Diagnosis], options: CheckOptions
) -> tuple[dict[str, Value], list[str]]:
    """GPU memory and memory limit that the logs show and the files do not state, with a note on each."""
    jobs = [(result, result.space.worst.job) for result in report.studies]
    capacity = next((c.gpu.capacity for c in causes if c.gpu is not None and c.gpu.capacity is not None), None)
    limit = next((c.host.limit for c in causes if c.host is not None and c.host.limit is not None), None)
    found: dict[str, Value] = {}
    said = []
    if capacity is not None and any(r.gpu is None and job.machine.gpu_memory is None for r, job in jobs):
        found["machine.gpu_memory"] = capacity
        said.append("the files name no GPU: the size of its memory is taken from the log")
    machine_open = [job.machine.memory_limit is None and job.machine.node_memory is None for _, job in jobs]
    if limit is not None and any(machine_open):
        found["machine.memory_limit"] = limit
        said.append("the files state no memory limit: it is taken from the logs")
    return found, said


def _candidates(report: Report, asked: CheckSetup, causes: Sequence[Diagnosis]) -> list[ConfigurationFile]:
    trial = next((cause.trial for cause in causes if cause.trial is not None), None)
    failed, worst = [], []
    for result in report.studies:
        estimate, case = asked.estimator_of(result).full, result.space.worst
        shared = estimate, asked.tracing
        at = at_trial(result, trial) if trial is not None else None
        if at is not None:
            failed.append(ConfigurationFile(report, result, at[0], estimate(at[0]), at[1], True, *shared))
        only_one = not result.study.is_search
        worst.append(ConfigurationFile(report, result, case.job, case.estimates, case.assignment, only_one, *shared))
    return failed or worst


def at_trial(result: StudyResult, trial: Trial) -> tuple[Job, dict[str, Value]] | None:
    """The Job of a trial's parameters; None: they leave out an axis that memory depends on."""
    given = {name: _value(value) for name, value in trial.parameters.items()}
    for box in result.study.boxes:
        if any(name in given and given[name] != value for name, value in box.fixed.items()):
            continue
        axes = [axis.name for axis in box.memory_axes]
        if axes and all(name in given for name in axes):
            values = {name: given[name] for name in axes}
            return job_at(box, values), values
    return None


def _value(value: object) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(_value(one) for one in value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
