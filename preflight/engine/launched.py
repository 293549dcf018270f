"""The study of a command, read as if a script of the current directory had this line, and overrides on that line."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

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
from preflight.vocabulary.study import Study

NAME = ".preflight-run.sh"
"""The script that the command is read as. It is not on the disk."""


class Launched(Struct, frozen=True):
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
    def searches(self) -> bool:
        """Whether the command runs several jobs of different memory, as a study of Optuna does in one process: which of
        them ran is not known, and `job` is the one that needs the most."""
        boxes = self.study.study.boxes
        return len(boxes) > 1 or any(box.memory_axes for box in boxes)

    @property
    def data(self) -> str:
        """A hash of the program and of the words that choose its data; "": not known."""
        return data_of(self.study.study, self.analysis.project.root, os.environ)

    @property
    def case(self) -> Case | None:
        return self.analysis.cases[0] if self.analysis.cases else None


class Override(Struct, frozen=True):
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


RESUMING = re.compile(r"(?:\w+[._])*?(?:resume|ckpt|checkpoint|restore|snapshot|load_from|from_checkpoint)\w*")
"""Names of parameters that may take the path of a checkpoint. Whether one does is tried."""


def resumed(known: Launched, path: str) -> tuple[str, ...] | None:
    """The command that goes on from a checkpoint, by a flag or an override of its own; None where it is not certain
    that the program takes one. It is tried by reading the command again: the training has to begin from a checkpoint
    with the word, and not without it, and nothing else may change."""
    command = known.words
    if any(_is_cli(one, known.analysis.project) for one in known.study.study.paths) and "fit" in command:
        return (*known.words, "--ckpt_path", path)
    for given, none in _words_for(path, known.study.study):
        job, without = _job_with(given, known), known.job
        if without.train.resumes not in (None, "no"):  # its own words name one already: the last one counts
            without = _job_with(none, known) or without
        if job is None or without.train.resumes != "no" or job.train.resumes in (None, "no"):
            continue
        if all(job.get(name) == known.job.get(name) for name in fields() if name != "train.resumes"):
            return (*known.words, *given)
    return None


def _words_for(path: str, study: Study) -> Iterator[tuple[list[str], list[str]]]:
    """Words that may name a checkpoint, and the same that name none."""
    for reading in study.readings:
        for one in reading.parameters:
            if one.flags and one.type in ("str", None) and RESUMING.fullmatch(one.name):
                flag = max(one.flags, key=len)
                yield [flag, path], [flag, ""]
        if reading.dialect == "hydra" and not set(path) & set("'\\"):
            for key in dict.fromkeys(setting.key for setting in reading.settings):
                if RESUMING.fullmatch(key):
                    yield [f"{key}='{path}'"], [f"{key}=null"]


def _is_cli(path: str, project: Project) -> bool:
    """Whether a program starts Lightning's own command line, whose `fit` takes --ckpt_path."""
    return path.endswith(".py") and "LightningCLI(" in project.source(path).text


def _job_with(words: Sequence[str], known: Launched) -> Job | None:
    after = analyse(_read_as(known.analysis.project, (*known.words, *words), known.asked.named[0]), known.asked)
    return after.studies[0].space.worst.job if after.studies else None


def _with(proposal: Proposal, known: Launched, case: Case) -> tuple[str, ...] | None:
    """The words with the changes of a proposal behind them; None if the program does not take them there, or if
    something else changes with them."""
    more = overrides(proposal.changes, case.study)
    if not more:
        return None
    words = shlex.split(" ".join(more))
    after = _job_with(words, known)
    return None if after is None or list(_other_changes(known.job, after, proposal)) else (*known.words, *words)


def _read_as(project: Project, words: Sequence[str], name: str) -> Project:
    """The project with a script that has this line."""
    return project.with_overlay({name: f"#!/bin/bash\n{shlex.join((*_step(words, os.environ), *words))}\n"})


_STEP = {
    "--nodes": "SLURM_STEP_NUM_NODES",
    "--ntasks": "SLURM_STEP_NUM_TASKS",
    "--gpus-per-task": "SLURM_GPUS_PER_TASK",
}
"""Options of srun -> the variables by which it tells each task of a step what they are (srun(1), OUTPUT ENVIRONMENT
VARIABLES)."""


def _step(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The srun that started this process with others beside it, as in `srun preflight run -- python train.py`: all of
    them run the command. Empty elsewhere, and where the command starts a step of its own."""
    known = {option: environment.get(name, "") for option, name in _STEP.items()}
    if "SLURM_STEP_ID" not in environment or known["--ntasks"] in ("", "1") or "srun" in words[:1]:
        return ()
    return ("srun", *(f"{option}={value}" for option, value in known.items() if value.isdigit()))


def _other_changes(before: Job, after: Job, proposal: Proposal) -> Iterator[str]:
    """Fields that do not have the value that they should have."""
    meant = {change.field: change.value for change in proposal.changes}
    for name in fields():
        if after.get(name) != meant.get(name, before.get(name)):
            yield name
