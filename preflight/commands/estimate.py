"""`preflight estimate`: the memory of one job, from a job file, a Job, or the name of a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import (
    STATED,
    calibration_option,
    format_option,
    page_file,
    parse_at,
    parse_bytes,
    parse_set,
    progress_of,
    set_option,
    time_options,
    trust_option,
)
from preflight.commands.subject import EstimateRequest, Subject, subject_of
from preflight.reports import streams
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.estimates import Estimates

if TYPE_CHECKING:
    from preflight.vocabulary.job import Job


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", type=STATED)
@set_option
@click.option("--gpu", type=STATED, metavar="NAME", help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.')
@click.option(
    "--at",
    "values",
    type=STATED,
    multiple=True,
    metavar="NAME=VALUE",
    help="Of a search, the combination with this value of a parameter, instead of the worst. Repeatable.",
)
@click.option(
    "--measured",
    type=STATED,
    metavar="BYTES",
    help="The figure of nvidia-smi, as in 7.9GiB: say which setting would explain it.",
)
@click.option("--plot", type=STATED, metavar="FILE", help="Draw the memory during a step to an .svg or .png file.")
@click.option("--output", type=STATED, metavar="html=FILE", help="Also write a page that explains the estimate.")
@click.option(
    "--map", "with_map", is_flag=True, help="Show the memory by batch and length, or by batch and image size."
)
@calibration_option
@trust_option
@time_options
@format_option
def command(
    target: str,
    assignments: tuple[str, ...],
    gpu: str | None,
    values: tuple[str, ...],
    measured: str | None,
    plot: str | None,
    output: str | None,
    with_map: bool,
    calibration: bool,
    trust: tuple[str, ...],
    time_limit: float | None,
    quiet: bool,
    output_format: str,
) -> None:
    """Estimate the memory of one job: phases, parts, and the largest batch that fits.

    TARGET is a job file (of a search, its worst combination, or that of --at), a Job as JSON or YAML, or the name of a
    model.
    """
    file = page_file(output) if output is not None else None
    overrides = parse_set(assignments)
    size = parse_bytes(measured) if measured is not None else None
    if size == 0:
        raise UsageError("--measured: no process takes 0 bytes")
    progress = progress_of(time_limit, quiet)
    with progress.shown(f"estimating {target}"):
        asked = EstimateRequest(overrides, gpu, trust, progress, calibration=calibration, at=parse_at(values))
        subject = subject_of(target, asked)
        found = subject.estimate(subject.job)
    if plot is not None:
        _plot(Path(plot), subject, found)
    if file is not None:
        _page(file, subject, found)
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
        known = plain.certainty(found, subject.standings)
        notes = _notes(subject, found)
        data = texts.document(plain.job(subject.job), plain.estimates(found), known, compared, notes)
        if subject.result is not None and subject.result.study.is_search:
            data["search"] = plain.search(subject.result.study)
        streams.show(plain.written(data), "json")
        return
    rows = frontier(subject.job, subject.estimate) if found.device is None else []
    smallest = _smallest(found, subject.job)
    name = subject.gpu.name if subject.gpu is not None else ""
    look = look_for(sys.stdout)
    text = texts.render(subject.job, found, name, smallest, rows, compared, look, subject.moments(found))
    streams.show(text)
    if with_map:
        from preflight.reports.drawings import drawn_map

        streams.show("\n" + "\n".join(drawn_map(subject.job, subject.estimate, name, look)) + "\n")
    for note in (*_recorded(subject, found), *([subject.note] if subject.note else ())):
        streams.show(f"note: {streams.clean(note)}\n")


def _recorded(subject: Subject, found: Estimates) -> tuple[str, ...]:
    """What recorded runs say of a job that has no estimate for a GPU; the estimate for one says it itself."""
    own = found.device.recorded if found.device is not None else ()
    said = subject.estimator.said(subject.job, found.device)
    return tuple(one for one in said if one not in own)


def _notes(subject: Subject, found: Estimates) -> tuple[str, ...]:
    """Notes for the JSON: memory that the figures do not include."""
    if found.device is None:
        reason = found.reasons.get("device", "")
        notes: tuple[str, ...] = (f"device: {reason}",) if reason else ()
    else:
        notes = (*found.device.notes, *found.device.recorded)
    return (*notes, *_recorded(subject, found), *([subject.note] if subject.note else ()))


def _page(path: Path, subject: Subject, found: Estimates) -> None:
    """Write the page. Raises UsageError."""
    from preflight.reports.html import Beside, of_estimate
    from preflight.reports.outputs import write_output

    job, gpu = subject.job, subject.gpu.name if subject.gpu is not None else ""
    fields = ((name, job.get(name), standing) for name, standing in subject.standings.items())
    notes = (subject.note,) if subject.note else ()
    beside = Beside(subject.moments(found), subject.holders(), subject.runs())
    write_output(path, of_estimate(job, found, gpu, subject.estimate, beside, fields, notes))


def _plot(path: Path, subject: Subject, found: Estimates) -> None:
    """Write the figure. Raises UsageError."""
    from preflight.reports.estimate import heading
    from preflight.reports.figures import outside_of, step_figure
    from preflight.reports.outputs import write_output
    from preflight.reports.plot import COLUMNS, figure, format_of

    kind = format_of(path)
    moments = subject.moments(found)
    shown = None
    if found.device is not None:
        outside = outside_of(moments, found.device)
        shown = step_figure(moments, outside, found.device.capacity, COLUMNS)
    if found.device is None or shown is None:
        raise UsageError(f"--plot: there is no step to draw: {found.reasons.get('device', 'only a bound is known')}")
    write_output(path, figure(heading(subject.job), shown, found.device.where, kind))


def _smallest(found: Estimates, job: Job) -> str:
    from preflight.engine.check import smallest

    gpu = smallest(found.device, job)
    return gpu.name if gpu is not None else ""
