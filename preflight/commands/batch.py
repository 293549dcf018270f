"""`preflight batch`: verdicts on a file of Jobs, one row for each."""

from __future__ import annotations

import time
from pathlib import Path

import click

from preflight.commands.completion import complete_files, complete_gpus
from preflight.commands.options import STATED
from preflight.reports.streams import complain
from preflight.vocabulary.words import plural

EVERY_S = 5.0
"""Seconds between two lines about the progress."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="IN", type=STATED, shell_complete=complete_files)
@click.option(
    "--output",
    "-o",
    type=STATED,
    required=True,
    metavar="OUT",
    help="The file of verdicts: .jsonl, .parquet or .csv.",
    shell_complete=complete_files,
)
@click.option(
    "--gpu",
    type=STATED,
    metavar="NAME",
    help="The GPU of all rows, in place of their own.",
    shell_complete=complete_gpus,
)
@click.option(
    "--columns",
    type=STATED,
    metavar="FILE",
    help="A TOML file that says which columns of IN are Job fields, where they have other names.",
    shell_complete=complete_files,
)
@click.option("--exact", is_flag=True, help="Replay every row, for all tiers; without it, those that the bound leaves.")
@click.option("--quiet", "-q", is_flag=True, help="Do not say on standard error how far it is.")
def command(source: str, output: str, gpu: str | None, columns: str | None, exact: bool, quiet: bool) -> None:
    """Judge every Job of a table: a Job in each line of IN (.jsonl), or in each row (.parquet, .csv).

    OUT has one row for each, in the same order. Equal Jobs are judged once, and a row that is no Job has an error. An
    interrupted run goes on where it was. No file that a row names is read. IN can also be a directory: a row for each
    Job in a file, and for each launch that the configurations describe, as check reads them.
    """
    from preflight.engine.score.files import score_file
    from preflight.engine.score.naming import read
    from preflight.engine.score.scorer import Scorer
    from preflight.engine.target import gpu_named

    if gpu is not None:
        gpu_named(gpu, "--gpu")
    last = time.monotonic()

    def progress(rows: int, share: float) -> None:
        nonlocal last
        if not quiet and time.monotonic() - last > EVERY_S:
            last = time.monotonic()
            complain(f"preflight: {rows:,} rows, {share:.0%}")

    naming = read(Path(columns)) if columns is not None else None
    found = score_file(Path(source), Path(output), Scorer(gpu, exact), progress, naming)
    if not quiet:
        share = f", {found.replays / found.judged:.1%} of them replayed" if found.judged else ""
        before = f", after {found.before:,} of a run before" if found.before else ""
        launches = f"; {plural(found.launches, 'launch')} read" if found.launches else ""
        others = f"; {plural(found.left_out, 'file')} without a job" if found.left_out else ""
        complain(f"preflight: {found.rows:,} rows{before}; {found.judged:,} Jobs judged{share}{launches}{others}")
