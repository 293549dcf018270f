"""`preflight runs`: the recorded runs, one beside its law, export and import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, format_option, page_file
from preflight.reports import streams
from preflight.vocabulary.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from preflight.store.records import KeptRun

MOST_WRONG = 20
"""Notes about files of a shared folder."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", required=False, type=STATED, metavar="[RUN]")
@click.option("--export", "into", type=STATED, metavar="PLACE",
              help="Write the runs to a file, FOLDER/, or an address (s3://, mlflow:, ...).")  # fmt: skip
@click.option("--import", "source", type=STATED, metavar="PLACE", help="Add the runs of such a place.")
@click.option("--output", type=STATED, metavar="html=FILE", help="Also write a page of the runs, beside their laws.")
@format_option
def command(run: str | None, into: str | None, source: str | None, output: str | None, output_format: str) -> None:
    """List the runs that preflight run recorded, or show one: RUN is the beginning of its id.

    A record has no path, no name and no host: a job is kept as the fields that decide memory.
    """
    from preflight.store import database, exchange, runs
    from preflight.store.records import plain
    from preflight.store.text import listed, shown

    place = exchange.carrier_of(into) if into is not None else None
    page = page_file(output) if output is not None else None
    if page is not None and source is not None:
        raise UsageError("--output: --import shows no runs; write the page with another command")
    try:
        if source is not None:
            new, known, wrong = exchange.read_into(exchange.carrier_of(source))
            _complain(source, wrong)
            streams.show(f"{new} new, {known} known already, {len(wrong)} left out\n")
            return
        if not database.exists() and run is None and into is None and page is None:
            streams.show("[]\n" if output_format == "json" else "no run was recorded yet: preflight run -- COMMAND\n")
            return
        _complain(database.place(), runs.bring_in())
        found: list[KeptRun] = [runs.run_of(run)] if run is not None else runs.runs(1_000_000 if into else 1000)
    except database.StoreError as error:
        raise PreflightError(str(error)) from error
    if page is not None:
        from preflight.engine.recorded import measured_run
        from preflight.reports import measured
        from preflight.reports.outputs import write_output

        write_output(page, measured.render([measured_run(one) for one in found]))
    if place is not None:
        place.put(found)
        streams.show(f"{len(found)} runs\n", err=True)
    elif output_format == "json":
        from preflight.reports.plain import written

        streams.show(written([plain(one) for one in found]), "json")
    else:
        streams.show("\n".join(shown(found[0]) if run is not None else listed(found)) + "\n")


def _complain(place: str | None, wrong: list[str]) -> None:
    """The first things that are left out, and how many there are."""
    for line in wrong[:MOST_WRONG]:
        streams.complain(f"note: {place}: {line}")
    if len(wrong) > MOST_WRONG:
        streams.complain(f"note: {place}: {len(wrong) - MOST_WRONG} more are left out")
