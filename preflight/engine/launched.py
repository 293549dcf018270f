"""The study of a command, read as if a script of the current directory had this line, and overrides on that line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.engine.check import Analysis, CheckOptions, CheckSetup, analyse, setup
from preflight.engine.files import batch_of
from preflight.engine.measured import data_of
from preflight.engine.registry import rules
from preflight.fixes.plan import overrides
from preflight.vocabulary.findings import Proposal, Safety
from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Case

NAME = ".preflight-run.sh"
"""The script that the command is read as. It is not on the disk."""


@dataclass(frozen=True)
class Launched:
    """What a command starts. `analysis` has one study at least."""

    words: tuple[str, ...]
    analysis: Analysis
    asked: CheckSetup

    @property
    def study(self) -> StudyResult:
        return self.analysis.studies[0]

    @property
    def job(self) -> Job:
        return self.study.space.worst.job

    @property
    def data(self) -> str:
        """A hash of the program and of the words that choose its data; "": not known."""
        return data_of(self.study.study, self.analysis.project.root, os.environ)

    @property
    def case(self) -> Case | None:
        return self.analysis.cases[0] if self.analysis.cases else None


@dataclass(frozen=True)
class Override:
    """The command with one setting lower. `title` says what changes, and why it is the same run."""

    words: tuple[str, ...]
    title: str


def launched(words: Sequence[str], cwd: Path, options: CheckOptions) -> Launched | None:
    """The study of a command; None if nothing in it is known to train. Raises PreflightError for broken settings."""
    batch = batch_of(cwd / NAME, cwd)
    if not batch.named:
        return None
    project, asked = setup(batch, options, cwd)
    found = analyse(_read_as(project, words, batch.named[0]), asked)
    return Launched(tuple(words), found, asked) if found.studies else None


def lowered(known: Launched, field: str, value: int) -> Override | str:
    """The command with a field lowered on its own line, if that is the same run; otherwise why it is not done."""
    case = known.case
    if case is None:
        return "the command was not read as one job"
    proposals = [one for rule in rules().values() for one in rule().proposals_for(case, field, value)]
    unsafe = next((one.reason for one in proposals if one.safety is Safety.unsafe), "")
    for proposal in proposals:
        if proposal.safety is Safety.safe and proposal.changes:
            words = _with(proposal, known, case)
            if words is not None:
                return Override(words, proposal.title)
            unsafe = "the command has no flag or override for it"
    return unsafe or f"no setting of {field} was found that could be lowered"


def _with(proposal: Proposal, known: Launched, case: Case) -> tuple[str, ...] | None:
    """The words with the changes of a proposal behind them; None if the program does not take them there, or if
    something else changes with them."""
    more = overrides(proposal.changes, case.study)
    if not more:
        return None
    words = (*known.words, *shlex.split(" ".join(more)))
    after = analyse(_read_as(known.analysis.project, words, known.asked.named[0]), known.asked)
    if not after.studies or list(_other_changes(known.job, after.studies[0].space.worst.job, proposal)):
        return None
    return words


def _read_as(project: Project, words: Sequence[str], name: str) -> Project:
    """The project with a script that has this line."""
    return project.with_overlay({name: f"#!/bin/bash\n{shlex.join(words)}\n"})


def _other_changes(before: Job, after: Job, proposal: Proposal) -> Iterator[str]:
    """Fields that do not have the value that they should have."""
    meant = {change.field: change.value for change in proposal.changes}
    for name in fields():
        if after.get(name) != meant.get(name, before.get(name)):
            yield name
