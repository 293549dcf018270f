"""What of a submission could not be judged, in a line: a job that is handed over without a word was found to fit."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.outcome import Report, StudyResult


def unjudged(report: Report) -> Iterator[str]:
    """Why the job's GPU memory was not compared with what it gets. A script that asks for GPUs is a study, whatever it
    runs; one that asks for none and trains nothing has nothing to be judged."""
    told = {finding.study for finding in report.findings if finding.tier == "device"}
    named = not any(finding.settings == ("machine.gpu",) for finding in report.findings)
    reasons = dict.fromkeys(
        reason
        for index, result in enumerate(report.studies)
        if index not in told and (reason := _reason(result, named)) is not None
    )
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
