"""`--save`: what a dry run saw, and the law over the batch where there is one, with what they hold for.

They hold for these sources (by hash), versions and this command. Nothing reads the file yet but people and their tools.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from preflight import __version__
from preflight.dryrun import text
from preflight.dryrun.answer import DryRunResult
from preflight.dryrun.batch_law import BatchLaw, NoLaw, law, sizes_to_try
from preflight.dryrun.report_of_process import RunReport
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu

VERSION = 1
Again = Callable[[int, int], RunReport]
"""Runs the program again, with loaders of the first batch size made for the second."""


def law_of(found: DryRunResult, again: Again) -> BatchLaw:
    """The law over the batch, from two more runs. Raises NoLaw with the reason."""
    own = found.found.job.train.batch_size
    if own is None or not found.report.trained:
        raise NoLaw("no loader of a known batch size trains")
    reports = {own: found.report}
    for batch in sizes_to_try(own):
        reports[batch] = again(own, batch)
    return law(reports, os.getcwd())


def with_largest_batch(found: DryRunResult, known: BatchLaw, job: Job, gpu: Gpu) -> DryRunResult:
    """The result with the largest batch that fits."""
    estimates = found.found.estimates
    assert estimates.device is not None
    device = replace(estimates.device, find_largest_batch=lambda: known.largest(job, gpu))
    return replace(found, found=replace(found.found, estimates=replace(estimates, device=device)))


def document(found: DryRunResult, known: BatchLaw | None, why_not: str) -> dict[str, object]:
    """The content of the file."""
    directory = os.getcwd()
    sources = {os.path.relpath(path, directory): digest for path, digest in found.report.sources.items()}
    return {
        "version": VERSION,
        "preflight": __version__,
        "command": list(found.words),
        "sources": dict(sorted(sources.items())),
        "versions": dict(found.report.versions),
        "estimate": text.document(found),
        "law": None if known is None else known.plain(),
        "no_law": why_not or None,
    }
