"""What of a submission could not be judged, in a line: a job that is handed over without a word was found to fit."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.documents.directives import read_directives
from preflight.reports.model import Report, StudyResult
from preflight.submission.arguments import CommandLine

GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
"""Options of sbatch that ask for GPUs (sbatch(1)); --gres asks for other things too."""


def unjudged(report: Report, line: CommandLine, text: str) -> Iterator[str]:
    """Why the job's memory was not compared with what it gets; nothing where it was, or where it is no training."""
    told = {finding.study for finding in report.findings if finding.tier == "device"}
    named = not any(finding.settings == ("machine.gpu",) for finding in report.findings)
    reasons = dict.fromkeys(
        reason
        for index, result in enumerate(report.studies)
        if index not in told and (reason := _reason(result, named)) is not None
    )
    if not report.studies and not report.findings and _asks_for_gpus(line, text):
        reasons["it asks for GPUs, and nothing in it was recognised as training"] = None
    yield from reasons


def _reason(result: StudyResult, named: bool) -> str | None:
    """Why the GPU memory of a study was not judged. `named`: no finding says that no GPU is stated."""
    found = result.space.worst.estimates
    if result.space.worst.job.machine.accelerator == "cpu":
        return None
    if found.device is None:
        return f"its GPU memory is unknown: {found.reasons.get('device', 'nothing says why')}"
    if found.device.verdict != "unknown":
        return None
    if found.device.capacity is None:
        return "its GPU memory was compared with nothing, since no GPU is stated" if named else None
    return f"its GPU memory is unknown: {found.device.notes[-1] if found.device.notes else 'only a bound is known'}"


def _asks_for_gpus(line: CommandLine, text: str) -> bool:
    written = {one.name: one.value or "" for one in read_directives(text)[0]}
    asked = {**written, **line.values}
    return any("gpu" in asked[name] if name == "gres" else True for name in GPU_OPTIONS if name in asked)
