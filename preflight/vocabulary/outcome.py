"""The result of a command, ready to be printed. Output formats read it and know nothing of dialects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from preflight.vocabulary.estimates import Estimates, Holder, Shown, StepMoment
from preflight.vocabulary.findings import Finding, Fix, Severity
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Cluster, Gpu, Node
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Rule
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.verdicts import Points, SpaceVerdict
from preflight.vocabulary.watched import MeasuredRun


class StudyResult(Struct, frozen=True, eq=False):
    """A study and its verdict. `smallest`: the GPU with the least memory that the worst job fits, if none was named.

    `estimate` judges any other job of the study as its own jobs were judged.
    """

    study: Study
    space: SpaceVerdict
    gpu: Gpu | None = None
    cluster: Cluster | None = None
    node: Node | None = None
    smallest: Gpu | None = None
    notes: tuple[str, ...] = ()
    """Assumptions about the machine."""
    estimate: Callable[[Job], Estimates] | None = None
    standings: Mapping[str, Standing] = field(default_factory=dict)
    """How each Job field of the worst job is known, of the fields that something states or that have a default."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """The same over all combinations, with reasons: what `estimate` weakens verdicts by."""
    unjudged: Unknown | None = None
    """Why nobody judged the study, so that its verdict says nothing of it; None: it was judged."""
    remarks: tuple[str, ...] = ()
    """What is known of it by other means than its files, or would be."""
    outdated: bool = False
    """Files of its saved dry run have changed, and a remark names the command that runs it again."""
    points: Callable[[int], Points] | None = None
    """At most so many combinations with their estimates, for a report that lists them."""
    moments: Callable[[Job], Sequence[StepMoment]] | None = None
    """The step of a job of the study, for a report that draws it."""
    holders: Callable[[Job], Sequence[Holder]] | None = None
    """The user's lines that hold the most at the peak of a job, where a dry run has seen them."""
    measured: Callable[[Job], Sequence[MeasuredRun]] | None = None
    """The recorded runs of a job, newest first, for a report that shows them beside the estimate."""

    @property
    def late(self) -> bool:
        """Whether there was no time to judge the study."""
        return self.unjudged is not None and self.unjudged.cause is Cause.time_limit


class Report(Struct, frozen=True):
    """One project's findings, sorted by place, and studies. Paths are relative to the project's root.

    `files` were recognised and read, `unrecognised` were not, and `refused` are those of them that were named.
    `suppressed` counts findings that ignores or the baseline took out, `fixed` fixes that were written; `notes` are
    said once, at the end. `incomplete` says what there was no time for; it is empty where the check came to its end.
    """

    project: Project
    findings: tuple[Finding, ...] = ()
    studies: tuple[StudyResult, ...] = ()
    files: tuple[str, ...] = ()
    unrecognised: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    suppressed: int = 0
    fixed: int = 0
    notes: tuple[str, ...] = ()
    incomplete: str = ""


GPU = "machine.gpu"
"""The field that a setting of its own (`gpu`) states."""

AnswerKind = Literal["text", "number", "choice", "truth"]


class Question(Struct, frozen=True):
    """A Job field that no file states, or that is only assumed. `words` ask for it.

    `studies` lack it, and the files of `replaces` other studies state another value, which the setting would replace.
    `assumed`: the value that the estimate has now, if it has one. `choices`: all values, if they are few.
    """

    field: str
    words: str
    kind: AnswerKind
    studies: int
    replaces: int = 0
    assumed: object = None
    choices: tuple[str, ...] = ()
    hint: str = ""

    @property
    def key(self) -> str:
        """The dotted key of the setting: "gpu", or "set.train.seq_len"."""
        return "gpu" if self.field == GPU else f"set.{self.field}"

    @property
    def line(self) -> str:
        """The line of settings, with a gap for the answer."""
        return f"{self.key} = {self._gap}"

    @property
    def _gap(self) -> str:
        return {"number": "NUMBER", "truth": "true"}.get(self.kind, '"..."')


class Outcome(Shown, Struct, frozen=True, dict=True):
    """All projects of one command. Paths are relative to `root` in machine formats, to `base` (the cwd) for people."""

    reports: tuple[Report, ...]
    root: Path
    base: Path
    summaries: dict[str, str] = field(default_factory=dict)
    """Rule -> its one-line summary, for formats that list rules."""
    notes: tuple[str, ...] = ()
    checkout: Path | None = None
    """The version-controlled tree around `root`, which services that show findings name paths from."""
    rules: Mapping[str, type[Rule]] = field(default_factory=dict)
    """The installed rules by name, for formats that explain them."""
    questions: tuple[Question, ...] = ()
    """What the user could state so that more studies get a verdict, most valuable first."""

    def findings(self) -> Iterator[tuple[Report, Finding]]:
        for report in self.reports:
            for finding in report.findings:
                yield report, finding

    def fixes(self) -> Iterator[Fix]:
        """Fixes of the findings that can be written."""
        yield from (finding.fix for _, finding in self.findings() if finding.fix is not None)

    def studies(self) -> Iterator[tuple[Report, StudyResult]]:
        for report in self.reports:
            for study in report.studies:
                yield report, study

    @cached_property
    def counts(self) -> dict[Severity, int]:
        """How many findings of each severity."""
        found = dict.fromkeys(Severity, 0)
        for _, finding in self.findings():
            found[finding.severity] += 1
        return found

    @property
    def incomplete(self) -> tuple[str, ...]:
        """What there was no time for, in words; empty where the check came to its end."""
        return tuple(report.incomplete for report in self.reports if report.incomplete)

    @property
    def files(self) -> int:
        return sum(len(report.files) for report in self.reports)

    @property
    def fixed(self) -> int:
        return sum(report.fixed for report in self.reports)

    def name(self, report: Report, path: str) -> str:
        """A report's path as machine formats name it: relative to `root`, with `/`."""
        return _relative(report.project.root, path, self.root)

    def tracked(self, report: Report, path: str) -> str:
        """A report's path relative to the checkout; to `root` where there is none."""
        return _relative(report.project.root, path, self.checkout or self.root)

    def shown(self, report: Report, path: str) -> str:
        """A report's path for people: relative to `base`, or absolute if it lies more than one folder above."""
        name = _relative(report.project.root, path, self.base)
        return name if not name.startswith("../..") else str(report.project.root / path)


def _relative(root: Path, path: str, start: Path) -> str:
    if root == start:
        return path
    return Path(os.path.relpath(root / path, start)).as_posix()
