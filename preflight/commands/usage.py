"""`preflight usage`: what recorded runs used of what they had, by team and model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.completion import complete_files
from preflight.commands.options import STATED, format_option, page_file
from preflight.reports import streams
from preflight.vocabulary.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from preflight.store.records import KeptRun

OWN = "here"
"""The team of the runs that this user's store has."""
MOST_RUNS = 1_000_000
MOST_NOTES = 20


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, type=STATED, metavar="[FILE]...", shell_complete=complete_files)
@click.option("--output", type=STATED, metavar="html=FILE", help="Also write a page.")
@format_option
def command(files: tuple[str, ...], output: str | None, output_format: str) -> None:
    """Say what recorded runs used of what they asked for, and whether their forecasts held.

    Each FILE holds the runs of a team, as preflight runs --export writes them; the team is called as the file is.
    Without one, the runs that are recorded here count.
    """
    from preflight.engine.usage import usage
    from preflight.reports import usage as report
    from preflight.reports.outputs import write_output
    from preflight.reports.plain import written
    from preflight.reports.style import look_for

    page = page_file(output) if output is not None else None
    notes: list[str] = []
    teams: dict[str, list[KeptRun]] = {}
    for name in files:
        teams.setdefault(Path(name).stem, []).extend(_runs(Path(name), notes))
    found = usage(teams if files else {OWN: _own(notes)}, _Names(), notes)
    for line in notes[:MOST_NOTES]:
        streams.complain(f"note: {line}")
    if page is not None:
        write_output(page, report.html(found))
    if output_format == "json":
        streams.show(written(report.document(found)), "json")
    elif not found.runs:
        streams.show("no run of a job that was read: preflight run -- COMMAND records them\n")
    else:
        streams.show(report.text(found, look_for(sys.stdout)))


def _own(notes: list[str]) -> list[KeptRun]:
    from preflight.store import database, runs

    try:
        return runs.runs(MOST_RUNS, notes) if database.exists() else []
    except database.StoreError as error:
        raise PreflightError(str(error)) from error


def _runs(path: Path, notes: list[str]) -> Iterator[KeptRun]:
    """The runs of a file; what is no run is noted. Raises UsageError."""
    from preflight.engine.score.files import source_of
    from preflight.store.records import NotARun, of_plain

    try:
        for records, _ in source_of(path).pieces(0):
            for record in records:
                try:
                    yield of_plain(_record(record))
                except (NotARun, ValueError, RecursionError) as error:
                    notes.append(f"{path}: {str(error)[:200]}")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _record(found: object) -> object:
    """A run as JSON has it. In Parquet it is the text of one column."""
    import json

    text = found.get("record") if isinstance(found, Mapping) else None
    return json.loads(text) if isinstance(text, str) else found


class _Names:
    """The name of a job's model: the catalogue's where its dimensions are in there, since a record has no names."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, job: Mapping[str, object]) -> str:
        import json

        from preflight.memory.device.law import catalogue

        if not self._known:
            for name in catalogue.names():
                known = catalogue.find(name)
                if known is not None and known.target is None:
                    key = json.dumps([known.architecture, dict(known.config)], sort_keys=True)
                    self._known.setdefault(key, name)
        given = job.get("model")
        stated: Mapping[str, object] = given if isinstance(given, Mapping) else {}
        key = json.dumps([stated.get("architecture"), stated.get("config", {})], sort_keys=True, default=str)
        words = (stated.get(name) for name in ("architecture", "target", "name", "path"))
        return self._known.get(key) or next((str(one) for one in words if one), "a model")
