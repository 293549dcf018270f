"""`preflight estimate`: the memory of one job, from a job file, a Job, or the name of a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.model import unknown_model
from preflight.commands.options import (
    STATED,
    parse_bytes,
    parse_set,
    progress_of,
    set_option,
    time_options,
    trust_option,
)
from preflight.engine.certainty import Certainty
from preflight.engine.estimator import Estimator, tracing_of
from preflight.engine.standings import by_hand
from preflight.engine.trust import laws_of, named_by_user, trust_in
from preflight.reports import streams
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.progress import Progress
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Value, brief

if TYPE_CHECKING:
    from pydantic import ValidationError

    from preflight.vocabulary.estimates import StepMoment


@dataclass(frozen=True)
class Subject:
    """The job, its GPU, and the function that estimates it."""

    job: Job
    gpu: Gpu | None
    estimate: Callable[[Job], Estimates]
    tracing: Tracing
    note: str = ""
    standings: Mapping[str, Standing] = field(default_factory=dict)


@dataclass(frozen=True)
class EstimateRequest:
    """The options about the job on the command line."""

    overrides: dict[str, Value]
    gpu: str | None
    trust: tuple[str, ...]
    progress: Progress


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", type=STATED)
@set_option
@click.option("--gpu", type=STATED, metavar="NAME", help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.')
@click.option(
    "--measured",
    type=STATED,
    metavar="BYTES",
    help="The figure of nvidia-smi, as in 7.9GiB: say which setting would explain it.",
)
@click.option("--plot", type=STATED, metavar="FILE", help="Draw the memory during a step to an .svg or .png file.")
@click.option(
    "--map", "with_map", is_flag=True, help="Show the memory by batch and length, or by batch and image size."
)
@trust_option
@time_options
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    target: str,
    assignments: tuple[str, ...],
    gpu: str | None,
    measured: str | None,
    plot: str | None,
    with_map: bool,
    trust: tuple[str, ...],
    time_limit: float | None,
    quiet: bool,
    output_format: str,
) -> None:
    """Estimate the memory of one job: phases, parts, and the largest batch that fits.

    TARGET is a job file (of a search, its worst combination), a Job as JSON or YAML, or the name of a model.
    """
    overrides = parse_set(assignments)
    size = parse_bytes(measured) if measured is not None else None
    if size == 0:
        raise UsageError("--measured: no process takes 0 bytes")
    progress = progress_of(time_limit, quiet)
    with progress.shown(f"estimating {target}"):
        subject = _subject(target, EstimateRequest(overrides, gpu, trust, progress))
        found = subject.estimate(subject.job)
    if plot is not None:
        _plot(Path(plot), subject, found)
    from preflight.engine.what_if import compare, frontier
    from preflight.reports import estimate as texts
    from preflight.reports import plain
    from preflight.reports.style import look_for

    compared = None
    if size is not None:
        if found.device is None:
            raise UsageError(f"--measured: the GPU memory is unknown: {found.reasons.get('device', '')}")
        compared = compare(size, subject.job, found.device, subject.estimate)
    if output_format == "json":
        known = {**plain.estimates(found), **plain.certainty(found, subject.standings)}
        data = texts.document(plain.job(subject.job), known, compared, _notes(subject, found))
        streams.show(plain.written(data), "json")
        return
    rows = frontier(subject.job, subject.estimate) if found.device is None else []
    smallest = _smallest(found, subject.job)
    name = subject.gpu.name if subject.gpu is not None else ""
    look = look_for(sys.stdout)
    text = texts.render(subject.job, found, name, smallest, rows, compared, look, _moments(subject, found))
    streams.show(text)
    if with_map:
        from preflight.reports.map import drawn_map

        streams.show("\n" + "\n".join(drawn_map(subject.job, subject.estimate, name, look)) + "\n")
    if subject.note:
        streams.show(f"note: {streams.clean(subject.note)}\n")


def _notes(subject: Subject, found: Estimates) -> tuple[str, ...]:
    """Notes for the JSON: memory that the figures do not include."""
    if found.device is None:
        reason = found.reasons.get("device", "")
        notes: tuple[str, ...] = (f"device: {reason}",) if reason else ()
    else:
        notes = found.device.notes
    return (*notes, subject.note) if subject.note else notes


def _moments(subject: Subject, found: Estimates) -> tuple[StepMoment, ...]:
    """The moments of the step that the estimate replayed; empty if it replayed none."""
    if found.device is None or found.device.lower_bound:
        return ()
    from preflight.memory.device.estimate import timeline

    return timeline(subject.job, subject.gpu, subject.tracing)


def _plot(path: Path, subject: Subject, found: Estimates) -> None:
    """Write the figure. Raises UsageError."""
    from preflight.reports.estimate import heading
    from preflight.reports.outputs import write_output
    from preflight.reports.plot import figure, format_of
    from preflight.vocabulary.estimates import ALL_PARTS

    kind = format_of(path)
    moments = _moments(subject, found)
    if found.device is None or not moments:
        raise UsageError(f"--plot: there is no step to draw: {found.reasons.get('device', 'only a bound is known')}")
    context = found.device.breakdown["context"]
    drawing = figure(heading(subject.job), ALL_PARTS, moments, context, found.device.capacity, found.device.where, kind)
    write_output(path, drawing)


def _smallest(found: Estimates, job: Job) -> str:
    from preflight.engine.check import smallest

    gpu = smallest(found.device, job)
    return gpu.name if gpu is not None else ""


def _subject(target: str, asked: EstimateRequest) -> Subject:
    """The job that TARGET names. Raises UsageError."""
    path = Path(target)
    if path.is_dir():
        if (path / "config.json").is_file():  # a model as transformers saves it
            return _of_values({"model.path": target, **asked.overrides}, asked, path)
        raise UsageError(f"{target} is a directory; name one configuration, or use preflight check")
    if not path.exists():
        return _model(target, asked)
    from preflight.engine.job_by_hand import in_file

    job = in_file(path)
    if job is not None:
        return _of_values({**job, **asked.overrides}, asked, path)
    return _configuration(path, asked)


def _model(name: str, asked: EstimateRequest) -> Subject:
    from preflight.memory.device.law import catalogue
    from preflight.memory.device.resolve import target_of

    model = catalogue.find(name)
    target = target_of(name) if model is None else None
    if target is not None:  # all models of timm classify images; the other libraries' names are those of detectors
        task = "image-classification" if target.startswith("timm:") else "other"
        return _of_values({"model.target": target, "task": task, **asked.overrides}, asked, Path.cwd())
    if model is None and "/" not in name:
        raise UsageError(f"{name}: there is no such file, and {unknown_model(name)}")
    known = {"task": model.task} if model is not None else {}
    return _of_values({"model.name": name, **known, **asked.overrides}, asked, Path.cwd())


def _of_values(values: dict[str, object], asked: EstimateRequest, source: Path) -> Subject:
    """The subject of Job fields that `source` states, under the settings of the current directory.

    Raises UsageError for a value that its field does not accept.
    """
    from pydantic import ValidationError

    from preflight.engine.job_by_hand import completed
    from preflight.engine.settings import load

    settings, file = load(Path.cwd())
    try:
        job = build(completed({**settings.set, **values}))
    except ValidationError as error:
        raise UsageError(_words(error)) from error
    found = _gpu(asked.gpu, job, settings.gpu)
    if found is not None and job.machine.gpu is None:
        job = with_fields(job, {"machine.gpu": found.name})
    named = [*named_by_user(asked.trust), *laws_of(asked.overrides)]
    trust = trust_in(source if source.is_dir() else source.parent, named)
    tracing, notes = tracing_of(settings, file.parent if file is not None else Path.cwd(), trust)
    tracing = replace(tracing, progress=asked.progress)
    folder = source if source.is_dir() else source.parent
    held = by_hand(job, values.keys() | settings.set.keys(), lambda path: trust.accepts(folder / path))
    estimate = Certainty(held, Estimator(found, tracing)).estimate
    known = {name: one.standing for name, one in held.items()}
    return Subject(job, found, estimate, tracing, "; ".join(notes), known)


def _words(error: ValidationError) -> str:
    """The first error of a Job: a field that does not exist, or a value that its field does not accept."""
    from preflight.vocabulary.job import fields

    details = error.errors(include_url=False)[0]
    name = ".".join(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return f"{name} is not a Job field{suggestion(name, fields())}"
    message = details["msg"]
    return f"{name} = {brief(details['input'])}: {message[:1].lower()}{message[1:]}"


def _gpu(named: str | None, job: Job, default: str | None) -> Gpu | None:
    """The GPU of the command line, the Job or the settings. An unknown GPU needs `machine.gpu_memory`."""
    from preflight.engine.target import gpu_named
    from preflight.machines.gpus import find_gpu

    if named is not None:
        return gpu_named(named, "--gpu")
    if job.machine.gpu is not None:
        if job.machine.gpu_memory is not None:
            return find_gpu(job.machine.gpu)
        try:
            return gpu_named(job.machine.gpu, "--gpu")
        except UsageError as error:
            hint = ", or state machine.gpu_memory" if default is None else ""
            raise UsageError(f"machine.gpu{str(error).removeprefix('--gpu')}{hint}") from error
    return gpu_named(default, "tool.preflight.gpu") if default is not None else None


def _configuration(path: Path, asked: EstimateRequest) -> Subject:
    """The worst combination of the study of a job file."""
    from preflight.engine.check import CheckOptions, analyse, setup
    from preflight.engine.files import batches

    batch = batches([str(path)], Path.cwd(), from_hook=False)[0]
    options = CheckOptions(gpu=asked.gpu, set=asked.overrides, trust=asked.trust, progress=asked.progress)
    project, question = setup(batch, options, Path.cwd(), rules=False)
    found = analyse(project, question)
    if not found.studies:
        problems = [finding.message for finding in found.findings] or [one.reason for one in found.skipped]
        raise UsageError(f"{path}: nothing to estimate: {'; '.join(problems) or 'nothing in it trains a model'}")
    result = found.studies[0]
    note = ""
    if len(found.studies) > 1:
        note = f"the first of {len(found.studies)} launches; preflight check judges all of them"
    elif result.study.is_search and result.space.worst.assignment:
        combination = ", ".join(f"{name}={value}" for name, value in result.space.worst.assignment.items())
        note = f"the worst combination of the search: {combination}"
    estimate = result.estimate or question.estimators[result.gpu].full
    return Subject(result.space.worst.job, result.gpu, estimate, question.tracing, note, result.standings)
