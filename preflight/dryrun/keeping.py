"""What is kept of a run: further runs for its law, the files that `--save` writes, and what `check` finds."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from msgspec.structs import replace

from preflight.dryrun.answer import DryRunResult, report_of
from preflight.dryrun.batch_law import NoLaw
from preflight.dryrun.process import Asked
from preflight.dryrun.report_of_process import RunReport
from preflight.dryrun.saved import document, file_of, kept, law_of
from preflight.engine.check import CheckOptions, check, setup
from preflight.engine.dry_runs import IN_TREE, Kept, SavedRuns
from preflight.engine.files import batch_of
from preflight.memory.device.saved_run import SavedRun
from preflight.reports import plain, streams
from preflight.reports.outputs import write_output
from preflight.system import kept_files
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.machine import Gpu

SCRIPT = "preflight-dry-run.sh"
"""The name of the script. It is not written."""


def run_of(found: DryRunResult, asked: Asked, hashes: dict[str, str], laws: bool) -> SavedRun:
    """What is kept of a run; `laws`: with a law over batch and length, from further runs."""
    if not laws:
        return kept(found, hashes, None, "")
    train = found.found.job.train

    def again(batch: int, length: int | None) -> RunReport:
        settings: dict[str, object] = {"batches": [train.batch_size, batch]}
        if length is not None:
            settings["lengths"] = [train.seq_len, length]
        return report_of(asked, found.gpu, settings)

    streams.complain("note: the program is run again with other batches and lengths, five times at most, for a law")
    try:
        known = law_of(found, again)
    except NoLaw as error:
        streams.complain(f"note: no law over the batch: {error}")
        return kept(found, hashes, None, str(error))
    if known.no_lengths and train.seq_len is not None:
        streams.complain(f"note: no law over the length: {known.no_lengths}")
    return kept(found, hashes, known, "")


def keep(run: SavedRun, found: DryRunResult, hashes: dict[str, str], save: str) -> str:
    """Write the run into the user's own directory, and into a file where one is named; the first of them."""
    folder = kept_files.made_dry_runs()
    path = file_of(run, hashes, folder)
    if not kept_files.save(path, plain.written(document(run, found)).encode()):
        raise UsageError(f"--save: {path} cannot be written")
    if save:
        here = replace(run, directory=_of_tree(Path(save), run.directory))
        write_output(Path(save), plain.written(document(here, found)))
    law = run.law
    over = "no law" if law is None else "a law over the batch and the length" if law.lengths else "a law over the batch"
    streams.complain(f"note: kept for check, with {over}: {save or path}")
    return path


def _of_tree(path: Path, directory: str) -> str:
    """The directory of a run relative to the project in whose .preflight/dry-runs its file lies; else as it is."""

    folder = os.path.realpath(path.parent)
    if not folder.endswith(os.sep + IN_TREE):
        return directory
    return os.path.relpath(directory, folder[: -len(IN_TREE) - 1])


def findings_of(run: SavedRun, folder: Path, gpu: Gpu | None) -> tuple[Finding, ...]:
    """What the rules say of the command, with the figures of its run. A problem of the project's files is not told: the
    program ran."""
    batch = batch_of(Path(os.path.abspath(folder / SCRIPT)), folder)
    project, asked = setup(batch, CheckOptions(gpu=gpu.name if gpu is not None else None), folder)
    there = os.path.relpath(run.directory, project.root)
    start = "" if there == "." else f"cd {shlex.quote(there)}\n"
    project.overlay.update(dict.fromkeys(batch.named, f"{start}{shlex.join(run.command)}\n"))
    report = check(project, replace(asked, dry_runs=SavedRuns(project.root, given=(Kept(run, "", True),))), prove=False)
    judged = any(result.remarks for result in report.studies)
    return tuple(report.findings) if judged else ()
