"""Checks that verdicts and findings agree: a study exceeds if and only if an error says so.

The rules about memory must keep this promise; no code repairs it afterwards. It is about the findings before the user's
settings remove findings, lower their severity or switch rules off. The tests check it for every project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.outcome import StudyResult

SIDES = ("device", "host")
"""The two sides of a study's memory."""


def exceeding(result: StudyResult) -> frozenset[str]:
    """The sides (device, host) that exceed, in the one job of a study or in the worst of any part of a search.

    If a combination of a search exceeds, the worst one does too, so the counts need no separate check.
    """
    points = [result.space.worst, *(verdict.worst for verdict in result.space.boxes)]
    return frozenset(side for point in points for side in _sides(point.estimates))


def _sides(estimates: Estimates) -> Iterator[str]:
    if estimates.device is not None and estimates.device.verdict == "exceeds":
        yield "device"
    if estimates.host is not None and estimates.host.verdict == "exceeds":
        yield "host"


def disagreements(studies: Sequence[StudyResult], findings: Sequence[Finding]) -> Iterator[str]:
    """Every verdict "exceeds" that no error names, and every error about memory without such a verdict, in words.

    `findings` are those of all rules, each with the index of its study.
    """
    errors = [one for one in findings if one.severity is Severity.error and one.side in SIDES]
    for index, result in enumerate(studies):
        sides = exceeding(result)
        name = f"study {index} ({result.study.paths[0]})"
        if result.space.counts.exceeds and not sides:
            yield f"{name}: combinations are counted as exceeding, and the worst one does not"
        naming = [one for one in errors if _names(one, index, result)]
        told = {one.side for one in naming}
        for side in sides - told:
            if not (told and result.study.is_search):  # one error speaks of a whole search
                yield f"{name}: its {side} memory exceeds, and no error with place, settings and bytes says so"
        for one in errors:
            if one.study == index and not _founded(one, result, sides):
                yield f"{name}: the error {one.rule} has no verdict behind it: {one.message}"


def _names(finding: Finding, index: int, result: StudyResult) -> bool:
    """Whether an error names the verdict of a study: where, which settings, and how many bytes of how many.

    An error that several studies of a file share is reported once, for the first of them.
    """
    if finding.origin is None or not finding.settings or finding.interval is None or finding.capacity is None:
        return False
    if finding.interval[1] <= finding.capacity:
        return False
    if finding.study == index:
        return True
    return finding.origin.path in result.study.paths and (finding.interval[1], finding.capacity) in _figures(result)


def _figures(result: StudyResult) -> Iterator[tuple[int, int | None]]:
    """The need of the worst job and the capacity, for each side."""
    found = result.space.worst.estimates
    if found.device is not None:
        yield found.device.process.expected, found.device.capacity
    if found.host is not None:
        yield found.host.per_node.expected, found.host.limit


def _founded(finding: Finding, result: StudyResult, sides: frozenset[str]) -> bool:
    """Whether a verdict stands behind an error; launches that run at the same time exceed together."""
    together = bool(result.study.concurrent_with)
    return together or finding.side in sides or (bool(sides) and result.study.is_search)
