"""`preflight postmortem`: reads the logs of a dead job, and prints the limit that it hit and what to change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from preflight.commands.options import STATED, format_option, parse_set, set_option
from preflight.reports import streams
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.outcome import Outcome, Report


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("logs", nargs=-1, type=STATED)
@click.option(
    "--config",
    multiple=True,
    type=STATED,
    metavar="PATH",
    help="The job file that it ran with, as for check. Repeatable.",
)
@click.option("--job-id", type=STATED, metavar="ID", help="Only this SLURM job. Without LOGS, ask sacct about it.")
@click.option("--gpu", type=STATED, metavar="NAME", help='The GPU it ran on, as in "RTX 4090" or a100-80gb.')
@click.option("--machine", type=STATED, metavar="NAME|FILE", help="The cluster or workstation it ran on.")
@set_option
@format_option
def command(
    logs: tuple[str, ...],
    config: tuple[str, ...],
    job_id: str | None,
    gpu: str | None,
    machine: str | None,
    assignments: tuple[str, ...],
    output_format: str,
) -> int:
    """Explain why a job died: the limit that it hit, when, which figures mislead, and what to change.

    LOGS are the files of the job: its output (slurm-*.out, .err), dmesg or journalctl -k, sacct (columns, -P, --json)
    or seff, kubectl describe, or the log of a search. - is standard input, and a directory means its logs.
    preflight runs nothing, except sacct if there are no LOGS.

    Exit status: 1 if a cause was found, 0 if the logs have none, 2 if something cannot be read.
    """
    from preflight.commands.check import internal_error
    from preflight.engine.check import CheckOptions
    from preflight.postmortem import plain, text
    from preflight.postmortem.reading import logs as expanded
    from preflight.postmortem.run import postmortem
    from preflight.reports.style import look_for

    if not logs and job_id is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("name the logs of the job that died, or its SLURM number with --job-id")
        logs = ("-",)
    cwd = Path.cwd()
    options = CheckOptions(gpu, machine, parse_set(assignments))
    found = postmortem(expanded(logs), config, job_id, options, cwd, lambda reports: _outcome(reports, cwd))
    if output_format == "json":
        streams.show(plain.render(found), "json")
    else:
        streams.show(text.render(found, look_for(sys.stdout)))
    return 2 if found.outcome is not None and internal_error(found.outcome) else int(bool(found.conclusion.causes))


def _outcome(reports: Sequence[Report], cwd: Path) -> Outcome:
    from preflight.engine.check import outcome_of

    return outcome_of(reports, cwd)
