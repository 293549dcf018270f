"""What a script reads of how it is submitted: its arguments, the environment, and options that are no directives."""

from __future__ import annotations

import shlex

from preflight.dialects.shell.values import literal_word
from preflight.documents.directives import Directive, Ignored, read_arguments
from preflight.vocabulary.project import COMMAND_LINE, VARIABLES, Submission
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Const, Expr, Origin, Span

_OF_JOBS = ("SLURM_", "SBATCH_", "SRUN_", "PREFLIGHT_", "CUDA_VISIBLE_DEVICES")


def positional(submission: Submission) -> tuple[Word, ...]:
    """The script's `$1`, `$2`, ... with their places on the command line."""
    found, at = [], len(shlex.join(submission.arguments)) + bool(submission.arguments)
    for text in submission.words:
        end = at + len(shlex.quote(text))
        found.append(literal_word(text, Origin(COMMAND_LINE, Span(at, end), editable=False)))
        at = end + 1
    return tuple(found[1:])


def exported(submission: Submission, export: str | None) -> dict[str, Expr]:
    """What the job's environment has of the submitter's, by the value of `--export` (sbatch(1); None: all of it).

    Variables of sbatch and of a job that this is submitted from are left out: the job has its own.
    """
    words = export.split(",") if export else ["ALL"]
    taken: dict[str, str] = dict(submission.environment) if "ALL" in (word.upper() for word in words) else {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            taken[name] = value
        elif name in submission.environment:
            taken[name] = submission.environment[name]
    return {name: Const(value) for name, value in taken.items() if not name.startswith(_OF_JOBS)}


def environment_directives(submission: Submission) -> tuple[Directive, ...]:
    """The variables as options, in the order they are read."""
    found, at = [], 0
    for number, (name, value) in enumerate(submission.variables(), 1):
        start, end = at + len(name) + 1, at + len(name) + 1 + len(value)
        whole = Span(at, end)
        found.append(Directive(VARIABLES[name], value, whole, Span(at, start - 1), Span(start, end), number))
        at = end + 1
    return tuple(found)


def command_directives(submission: Submission) -> tuple[tuple[Directive, ...], tuple[Ignored, ...]]:
    """The command line's options; `:` starts the next component of a heterogeneous job."""
    return read_arguments(submission.arguments)
