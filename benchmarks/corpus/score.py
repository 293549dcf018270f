"""Labels beside what a run said: which values are right, missed or wrong, and which findings are true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.corpus.labelled import LabelledLaunch, LabelledProblem, LabelledValue, Labels, Outcome
from benchmarks.corpus.record import FindingRow, Record, StudyRow

UNKNOWN = "unknown"
NEAR_LINES = 2
"""A continued command or a directive beside the one that a reader meant is the same place."""


@dataclass(frozen=True)
class ScoredValue:
    """A labelled value and what the run said of it. None: it is unknown, or the launch has no study.

    `standing`: how the report says it is known. `has_figure`: the study has a need of GPU memory.
    """

    launch: str
    label: LabelledValue
    found: object
    outcome: Outcome
    standing: str = ""
    has_figure: bool = False


@dataclass(frozen=True)
class ScoredFinding:
    """A finding, and whether it is true. None: nobody has labelled it."""

    finding: FindingRow
    true: bool | None
    why: str


def values(record: Record, labels: Labels) -> Iterator[ScoredValue]:
    """Every labelled value. A launch with several studies is judged by the one that has most of them right."""
    for launch in labels.launch:
        scored = [list(_of_study(launch, study)) for study in _studies(record, launch.path)]
        yield from max(scored or [list(_of_study(launch, None))], key=_right)


def _right(scored: list[ScoredValue]) -> int:
    return sum(each.outcome == "right" for each in scored)


def _studies(record: Record, path: str) -> list[StudyRow]:
    """The studies that start from a file; else those that it is a part of."""
    started = [study for study in record["studies"] if study["paths"][:1] == [path]]
    return started or [study for study in record["studies"] if path in study["paths"]]


def _of_study(launch: LabelledLaunch, study: StudyRow | None) -> Iterator[ScoredValue]:
    for label in launch.values:
        if study is None:
            yield ScoredValue(launch.path, label, None, _outcome(label, None, True))
            continue
        value = study["values"].get(label.field)
        standing = study["standings"].get(label.field, "")
        yield ScoredValue(launch.path, label, value, _outcome(label, value, False), standing, bool(study["bytes"]))


def _outcome(label: LabelledValue, found: object, no_study: bool) -> Outcome:
    """Unknown where it should be is right, but not of a launch that was not read at all."""
    if found is None:
        return "right" if UNKNOWN in label.accepted and not no_study else "missed"
    # 1 == True in Python, and not here.
    return "right" if any(type(each) is type(found) and each == found for each in label.accepted) else "wrong"


def findings(record: Record, labels: Labels) -> Iterator[ScoredFinding]:
    """Every finding of a run with its label: of its line, else of its file."""
    exact = {(each.rule, each.path, each.line): each for each in labels.finding}
    for found in record["findings"]:
        rule, path = found["rule"], found["path"] or ""
        label = exact.get((rule, path, found["line"])) or exact.get((rule, path, None))
        yield ScoredFinding(found, label.true if label else None, label.why if label else "")


def problems(record: Record, labels: Labels) -> Iterator[tuple[LabelledProblem, bool]]:
    """Every problem that a reader noted, and whether a warning or an error stands near its line, or in its file."""
    places = [(each["path"], each["line"]) for each in record["findings"] if each["severity"] != "info"]
    for problem in labels.problem:
        lines = [line for path, line in places if path == problem.path]
        yield problem, any(_near(problem.line, line) for line in lines)


def _near(noted: int | None, found: int | None) -> bool:
    return noted is None or found is None or abs(noted - found) <= NEAR_LINES
