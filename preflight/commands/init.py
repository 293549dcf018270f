"""`preflight init`: writes the settings, the pre-commit hook and the CI job of a project, each after it was shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, progress_of, time_options
from preflight.reports import streams
from preflight.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from preflight.engine.init.planned import Plan, Planned

YES = ("y", "yes")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=STATED, default=".")
@click.option("--yes", "-y", is_flag=True, help="Write all of it without asking.")
@click.option(
    "--dry-run", "--diff", "dry_run", is_flag=True,
    help="Only show what would be written. Exit status 1 if there is something.",
)  # fmt: skip
@time_options
def command(path: str, yes: bool, dry_run: bool, time_limit: float | None, quiet: bool) -> int:
    """Write the settings, the pre-commit hook and the CI job of a project.

    Each change is shown as a diff first. At a terminal you are asked about each; elsewhere nothing is written without
    --yes. PATH is a directory of the project (default: the current one).
    """
    from preflight.engine.init import run

    if yes and dry_run:
        raise UsageError("--yes: --dry-run writes nothing")
    progress = progress_of(time_limit, quiet)
    with progress.shown("preflight init"):
        plan = run.planned(Path(path), progress)
    _show_notes(plan)
    if dry_run:
        streams.show("".join(run.diff(one) for one in plan.files), "patch")
        return int(bool(plan.files))
    if not plan.files:
        streams.show("nothing to write: the project is set up\n")
        return 0
    asking = streams.terminal(sys.stdin) and streams.terminal(sys.stdout)
    if not yes and not asking:
        streams.show("".join(run.diff(one) for one in plan.files), "patch")
        streams.complain("preflight: nothing was written: there is no terminal to ask at; --yes writes without asking")
        return 1
    _write(plan.files, yes)
    return 0


def _show_notes(plan: Plan) -> None:
    for note in dict.fromkeys(plan.notes):
        streams.complain(f"note: {note}")


def _write(files: Sequence[Planned], yes: bool) -> None:
    """Show each change, ask about it, and write it."""
    from preflight.engine.init import run

    for one in files:
        streams.show(run.diff(one), "patch")
        if not yes and not _agreed(one):
            streams.show(f"{one.name} was not written\n")
            continue
        run.write(one)
        streams.show(f"{one.name} was written\n")


def _agreed(one: Planned) -> bool:
    """The user's answer; the end of the input is a no."""
    streams.show(f"write {one.what} to {one.name}? [y/N] ")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        streams.show("\n")
    return answer.strip().lower() in YES
