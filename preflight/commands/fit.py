"""`preflight fit`: the largest batch, the longest length, the smallest card, or one field, with which a job fits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from preflight.commands.completion import complete_files, complete_gpus
from preflight.commands.options import (
    STATED,
    format_option,
    parse_set,
    progress_of,
    set_option,
    time_options,
    trust_option,
)
from preflight.commands.subject import EstimateRequest, Subject, analysis_of, of_values
from preflight.reports import streams
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.fits import FitOfStudy


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", type=STATED, shell_complete=complete_files)
@click.option(
    "--field", "fields", type=STATED, multiple=True, metavar="FIELD",
    help="Solve for this Job field, as in train.peft.r, length or workers. Repeatable.",
)  # fmt: skip
@set_option
@click.option(
    "--gpu", type=STATED, metavar="NAME", shell_complete=complete_gpus,
    help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.',
)  # fmt: skip
@click.option(
    "--machine", type=STATED, metavar="NAME|FILE", shell_complete=complete_files,
    help="The cluster or workstation the job runs on.",
)  # fmt: skip
@click.option("--fix", is_flag=True, help="Write the answer into the file, if the run stays the same.")
@click.option("--unsafe-fixes", is_flag=True, help="Write the answer also if it makes another run.")
@click.option("--diff", is_flag=True, help="Show what --fix would write, and write nothing.")
@trust_option
@time_options
@format_option
def command(
    target: str,
    fields: tuple[str, ...],
    assignments: tuple[str, ...],
    gpu: str | None,
    machine: str | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    trust: tuple[str, ...],
    time_limit: float | None,
    quiet: bool,
    output_format: str,
) -> None:
    """Solve for what fits: the largest batch, the longest length, the smallest card, or one field.

    TARGET is a job file (of a search, each part by its worst combination), a Job as JSON or YAML, or the name of a
    model. The first field is the one that --fix and --diff write.
    """
    from preflight.engine.fit.orders import field_named

    named = tuple(dict.fromkeys(field_named(text) for text in fields))
    asked = EstimateRequest(parse_set(assignments), gpu, trust, progress_of(time_limit, quiet), machine)
    with asked.progress.shown(f"solving {target}"):
        subject = of_values(target, asked)
        if subject is not None and (fix or unsafe_fixes or diff):
            raise UsageError(f"{target}: there is no configuration to write the answer into")
        if diff:
            _show_diff(Path(target), asked, named, unsafe_fixes)
            return
        if subject is not None:
            found: Sequence[FitOfStudy] = [_of_values(subject, named)]
        else:
            found = _configuration(Path(target), asked, named, (fix or unsafe_fixes, unsafe_fixes))
    from preflight.reports import fit as texts
    from preflight.reports import plain
    from preflight.reports.style import look_for

    if output_format == "json":
        streams.show(plain.written(texts.document(found)), "json")
    else:
        streams.show(texts.render(found, look_for(sys.stdout)))


def _of_values(subject: Subject, fields: Sequence[str]) -> FitOfStudy:
    from preflight.engine.fit.question import Question
    from preflight.engine.fit.solve import of_job

    question = Question(subject.job, subject.estimator, subject.held)
    part = of_job(question, fields, subject.gpu.name if subject.gpu is not None else "")
    return FitOfStudy((), (part,), part.answers[0].field, notes=(subject.note,) if subject.note else ())


def _show_diff(path: Path, asked: EstimateRequest, fields: tuple[str, ...], unsafe: bool) -> None:
    from preflight.engine.fit import run
    from preflight.engine.fit.orders import BATCH

    found, question = analysis_of(path, asked, rules=True)
    field = fields[0] if fields else BATCH
    text = run.difference(found, question, field, unsafe, Path.cwd())
    if not text:
        hint = "" if unsafe else "; --unsafe-fixes shows a change that makes another run, if there is one"
        streams.complain(f"preflight: no change of {field} is proved{hint}")
    streams.show(text, "patch")


def _configuration(
    path: Path, asked: EstimateRequest, fields: tuple[str, ...], writing: tuple[bool, bool]
) -> list[FitOfStudy]:
    """The answers of a job file. `writing`: whether they are written, and unsafe ones as well."""
    from preflight.engine.files import batches
    from preflight.engine.fit import run

    wish = run.Wish(fields, writing[1])
    if not writing[0]:
        return run.answered(*analysis_of(path, asked, rules=True), wish, Path.cwd())
    with run.alone(batches([str(path)], Path.cwd(), from_hook=False)[0].root):
        found, question = analysis_of(path, asked, rules=True)
        return run.store(found, question, run.answered(found, question, wish, Path.cwd()), wish.unsafe)
