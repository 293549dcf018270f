"""`preflight estimate`: one job's memory, from a configuration, a Job, or a model's name."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.model import unknown_model
from preflight.commands.options import parse_bytes, parse_set, set_option, show_tracing
from preflight.engine.estimator import Estimator, tracing_of
from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.records import dataclass
from preflight.vocabulary.values import Value

if TYPE_CHECKING:
    from pydantic import ValidationError

    from preflight.vocabulary.estimates import Moment


@dataclass(frozen=True)
class Subject:
    """The job that was asked about, where it runs, and what is estimated of it."""

    job: Job
    gpu: Gpu | None
    estimator: Estimator
    note: str = ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target")
@set_option
@click.option("--gpu", metavar="NAME", help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.')
@click.option("--measured", metavar="BYTES", help="What nvidia-smi showed, as in 7.9GiB: which term differs?")
@click.option("--plot", type=click.Path(), metavar="FILE", help="Draw memory through a step: an .svg or .png.")
@click.option("--map", "with_map", is_flag=True, help="What fits by batch and length (or image size).")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    target: str, assignments: tuple[str, ...], gpu: str | None, measured: str | None, plot: str | None,
    with_map: bool, output_format: str,
) -> None:  # fmt: skip
    """The memory of one job: phases, parts, the largest batch that fits.

    TARGET is a configuration (of a search: its worst combination), a Job as JSON or YAML, or a model's name.
    """
    show_tracing()
    overrides = parse_set(assignments)
    size = parse_bytes(measured) if measured is not None else None
    subject = _subject(target, overrides, gpu)
    found = subject.estimator.full(subject.job)
    if plot is not None:
        _plot(Path(plot), subject, found)
    from preflight.engine.batch_by_length import frontier
    from preflight.engine.explain_measured import compare
    from preflight.reports import estimate as texts
    from preflight.reports import plain
    from preflight.reports.style import look_for

    compared = None
    if size is not None:
        if found.device is None:
            raise UsageError(f"--measured: the GPU memory is unknown: {found.reasons.get('device', '')}")
        compared = compare(size, subject.job, found.device, subject.estimator.full)
    if output_format == "json":
        sides = (plain.device(found.device), plain.host(found.host))
        data = texts.document(plain.job(subject.job), *sides, found.unknown, compared, _notes(subject, found))
        click.echo(json.dumps(data, indent=2, allow_nan=False))
        return
    rows = frontier(subject.job, subject.estimator.full) if found.device is None else []
    smallest = _smallest(found)
    name = subject.gpu.name if subject.gpu is not None else ""
    look = look_for(sys.stdout)
    text = texts.render(subject.job, found, name, smallest, rows, compared, look, _moments(subject, found))
    click.echo(text, nl=False, color=True)
    if with_map:
        from preflight.reports.map import drawn_map

        click.echo("\n" + "\n".join(drawn_map(subject.job, subject.estimator.full, name, look)), color=True)
    if subject.note:
        click.echo(f"note: {subject.note}")


def _notes(subject: Subject, found: Estimates) -> tuple[str, ...]:
    """What the figures do not say of themselves."""
    if found.device is None:
        reason = found.reasons.get("device", "")
        notes: tuple[str, ...] = (f"device: {reason}",) if reason else ()
    else:
        notes = found.device.notes
    return (*notes, subject.note) if subject.note else notes


def _moments(subject: Subject, found: Estimates) -> tuple[Moment, ...]:
    """The step that the estimate replayed; empty where there was none."""
    if found.device is None or found.device.lower_bound:
        return ()
    from preflight.memory.device.estimate import timeline

    return timeline(subject.job, subject.gpu)


def _plot(path: Path, subject: Subject, found: Estimates) -> None:
    """Write the figure. Raises UsageError."""
    from preflight.engine.baseline import replace_file
    from preflight.reports.estimate import heading
    from preflight.reports.plot import figure, format_of
    from preflight.vocabulary.estimates import ALL_PARTS

    kind = format_of(path)
    moments = _moments(subject, found)
    if found.device is None or not moments:
        raise UsageError(f"--plot: there is no step to draw: {found.reasons.get('device', 'only a bound is known')}")
    context = found.device.breakdown["context"]
    drawing = figure(heading(subject.job), ALL_PARTS, moments, context, found.device.capacity, found.device.where, kind)
    replace_file(path, drawing)


def _smallest(found: Estimates) -> str:
    from preflight.engine.check import smallest

    gpu = smallest(found.device)
    return gpu.name if gpu is not None else ""


def _subject(target: str, overrides: dict[str, Value], gpu: str | None) -> Subject:
    """What TARGET means. Raises UsageError."""
    path = Path(target)
    if path.is_dir():
        if (path / "config.json").is_file():  # a model as transformers saves it
            return _of_values({"model.path": target, **overrides}, gpu, Path.cwd())
        raise UsageError(f"{target} is a directory; name one configuration, or use preflight check")
    if not path.exists():
        return _model(target, overrides, gpu)
    job = _as_job(path)
    if job is not None:
        return _of_values({**job, **overrides}, gpu, Path.cwd())
    return _configuration(path, overrides, gpu)


def _as_job(path: Path) -> dict[str, object] | None:
    """The dotted fields of a file that holds a Job; None where it holds something else."""
    if path.suffix.lower() not in (".json", ".yaml", ".yml"):
        return None
    from preflight.documents.json import parse_json
    from preflight.documents.yaml import parse_yaml
    from preflight.vocabulary.project import Project, UnreadableFile
    from preflight.vocabulary.settings import Settings
    from preflight.vocabulary.text import DocumentError

    project = Project(path.resolve().parent, Settings())
    try:
        source = project.source(path.name)
        data = (parse_json(source) if path.suffix.lower() == ".json" else parse_yaml(source, "1.2")).value()
    except UnreadableFile as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except DocumentError as error:
        place = project.source(path.name).place(error.span)
        raise UsageError(f"{path}:{place.line}:{place.column}: {error.message}") from error
    if not isinstance(data, Mapping) or not data:
        return None
    from preflight.engine.job_by_hand import dotted, is_job, strays

    ours = data.get("job")  # as `--output-format json` wrote it
    whole: Mapping[str, object] = ours if isinstance(ours, Mapping) and "model" in ours else data
    if is_job(whole):
        return dotted(whole)
    if path.suffix.lower() == ".json" and (stray := strays(whole)):
        from preflight.vocabulary.job import Job

        raise UsageError(f"{path}: {stray[0]} is not a Job field{suggestion(stray[0], tuple(Job.model_fields))}")
    return None


def _model(name: str, overrides: dict[str, Value], gpu: str | None) -> Subject:
    from preflight.memory.device.law import catalogue
    from preflight.memory.device.workloads import registry

    target = registry.target_of(name)
    if target is not None:
        return _of_values({"model.target": target, "task": "other", **overrides}, gpu, Path.cwd())
    model = catalogue.find(name)
    if model is None and "/" not in name:
        raise UsageError(f"{name}: there is no such file, and {unknown_model(name)}")
    task = {"task": model.task} if model is not None else {}
    return _of_values({"model.name": name, **task, **overrides}, gpu, Path.cwd())


def _of_values(values: dict[str, object], gpu: str | None, folder: Path) -> Subject:
    """A subject of plain Job fields. Raises UsageError for a value that does not suit its field."""
    from pydantic import ValidationError

    from preflight.engine.job_by_hand import completed
    from preflight.engine.settings import load

    settings, _ = load(folder)
    try:
        job = build(completed({**settings.set, **values}))
    except ValidationError as error:
        raise UsageError(_words(error)) from error
    found = _gpu(gpu, job, settings.gpu)
    if found is not None and job.machine.gpu is None:
        job = job.model_copy(update={"machine": job.machine.model_copy(update={"gpu": found.name})})
    return Subject(job, found, Estimator(found, tracing_of(settings, folder, ())[0]))


def _words(error: ValidationError) -> str:
    """The first thing that is wrong with a Job: a field that there is not, or a value that does not suit it."""
    from preflight.vocabulary.job import fields

    details = error.errors(include_url=False)[0]
    name = ".".join(map(str, details["loc"]))
    if details["type"] == "extra_forbidden":
        return f"{name} is not a Job field{suggestion(name, fields())}"
    message = details["msg"]
    return f"{name} = {details['input']!r}: {message[:1].lower()}{message[1:]}"


def _gpu(named: str | None, job: Job, default: str | None) -> Gpu | None:
    """The GPU of the command line, the Job or the settings. One that nobody knows needs its memory stated."""
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


def _configuration(path: Path, overrides: dict[str, Value], gpu: str | None) -> Subject:
    """The worst combination of the study that a configuration starts."""
    from preflight.engine.check import Options, analyse, setup
    from preflight.engine.files import batches

    batch = batches([str(path)], Path.cwd(), from_hook=False)[0]
    project, asked = setup(batch, Options(gpu=gpu, set=overrides), Path.cwd(), rules=False)
    found = analyse(project, asked)
    if not found.studies:
        problems = [finding.message for finding in found.findings] or [one.reason for one in found.skipped]
        raise UsageError(f"{path}: nothing to estimate: {'; '.join(problems) or 'nothing in it trains a model'}")
    result = found.studies[0]
    note = ""
    if len(found.studies) > 1:
        note = f"the first of {len(found.studies)} launches; preflight check judges all of them"
    elif result.study.is_search:
        combination = ", ".join(f"{name}={value}" for name, value in result.space.worst.assignment.items())
        note = f"the worst combination of the search: {combination}"
    return Subject(result.space.worst.job, result.gpu, asked.estimators[result.gpu], note)
