"""`preflight dry-run STUDY`: the corners of a search space, or the launches of a script, each run dry."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from preflight.dryrun.answer import DryRunResult, dry_run
from preflight.dryrun.keeping import keep, run_of
from preflight.dryrun.process import Asked
from preflight.dryrun.saved import hashes_of, with_largest_batch
from preflight.dryrun.text import WARNING, document
from preflight.engine.study_corners import Corner, corners_of
from preflight.reports import streams
from preflight.reports.contract import VERSION
from preflight.reports.figures import mark
from preflight.reports.streams import clean
from preflight.reports.style import Look, table
from preflight.vocabulary.errors import PreflightError, UsageError
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.study import Study
from preflight.vocabulary.words import gib

Row: TypeAlias = tuple[Corner, DryRunResult | None, str]
"""A run of a study, its result, or why it has none."""
MOST = 8
"""Runs of one study: each takes as long as its imports, a minute or less."""


def run_study(
    path: Path, studies: Sequence[Study], root: Path, asked: Callable[[Sequence[str]], Asked], gpu: Gpu | None,
    gpus: int | None, save: bool,
) -> tuple[list[Row], str]:  # fmt: skip
    """The runs of a study, and what was left out. Raises UsageError where none has an answer."""
    corners = corners_of(studies, root, MOST)
    if not corners.corners:
        raise UsageError(f"{path}: {corners.note or 'no command of it is known'}")
    rows: list[Row] = []
    for corner in corners.corners:
        streams.complain(WARNING.format(command=shown(corner)))
        rows.append(_run(corner, asked, gpu, gpus, save))
    if all(found is None for _, found, _ in rows):
        raise UsageError(f"{path}: no run has an answer: {rows[0][2]}")
    return rows, corners.note


def _run(corner: Corner, asked: Callable[[Sequence[str]], Asked], gpu: Gpu | None, gpus: int | None, save: bool) -> Row:
    try:
        request = asked(corner.words)
        settings = {"searched": dict(corner.searched), "largest": corner.largest}
        request = replace(request, settings={**request.settings, **settings})
        hashes = hashes_of(request.program)
        found = dry_run(corner.words, request, gpu, gpus)
    except PreflightError as error:
        return corner, None, str(error)
    run = run_of(found, request, hashes, laws=save and not corner.searched)
    if save and not corner.searched:
        keep(run, found, hashes, "")
    elif save:
        streams.complain("note: not kept: the command does not say the values that it was run with")
    return corner, with_largest_batch(found, run), ""


def shown(corner: Corner) -> str:
    """A corner in one line: its command, and the values that its search was given."""
    values = ", ".join(f"{name}={value}" for name, value in corner.searched)
    return shlex.join(corner.words) + (f" ({values})" if values else "")


def study_table(rows: Sequence[Row], note: str, look: Look) -> str:
    """The runs of a study, one a line, the largest first."""
    cells = []
    for corner, found, why in sorted(rows, key=lambda row: -_need(row[1])):
        device = found.found.estimates.device if found is not None else None
        if device is None:
            cells.append(("", "", f"no answer: {clean(why)}", clean(shown(corner))))
            continue
        largest = f"{device.largest_batch_size:,}" if device.largest_batch_size else ""
        cells.append((mark(device) + gib(device.process.expected), largest, device.verdict, clean(shown(corner))))
    lines = table(cells, look, ("process", "largest batch", "", "command"), right=(0, 1))
    notes = [f"note: {clean(note)}"] if note else []
    assumed = dict.fromkeys(one for _, found, _ in rows if found is not None for one in found.found.stated)
    return "\n".join([*lines, *notes, *(f"assumed: {clean(one)}" for one in assumed)]) + "\n"


def study_document(rows: Sequence[Row], note: str) -> dict[str, object]:
    """The same as JSON: the documents of the runs, as of one run each."""
    runs = [
        {
            "command": list(corner.words),
            "searched": dict(corner.searched),
            "estimate": None if found is None else document(found),
            "why": why or None,
        }
        for corner, found, why in rows
    ]
    return {"version": VERSION, "note": note or None, "runs": runs}


def _need(found: DryRunResult | None) -> int:
    device = found.found.estimates.device if found is not None else None
    return device.process.expected if device is not None else 0
