"""labels/OWNER+NAME.toml: what a reader of a repository found right, which problems, and which findings are true."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from benchmarks.corpus.repositories import HERE, Repository, toml

FOLDER = HERE / "labels"
Scalar = bool | int | float | str


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LabelledValue(_Part):
    """The right value of a Job field, and where it stands. A list: each is right. "unknown": no file states it."""

    field: str
    right: Scalar | tuple[Scalar, ...]
    at: str

    @property
    def accepted(self) -> tuple[Scalar, ...]:
        return self.right if isinstance(self.right, tuple) else (self.right,)


class LabelledLaunch(_Part):
    """A launch file, and the values of the job that it starts."""

    path: str
    values: tuple[LabelledValue, ...]


class LabelledFinding(_Part):
    """Whether a finding is true of the files. Without a line: every finding of the rule in the file."""

    rule: str
    path: str
    line: int | None = None
    true: bool
    why: str


class LabelledProblem(_Part):
    """A problem of the files that a reader saw before any run, and that a checker could rightly report."""

    path: str
    line: int | None = None
    what: str


class Labels(_Part):
    """All labels of one repository."""

    launch: tuple[LabelledLaunch, ...] = ()
    finding: tuple[LabelledFinding, ...] = ()
    problem: tuple[LabelledProblem, ...] = ()


Outcome = Literal["right", "missed", "wrong"]


def labels(repository: Repository, folder: Path = FOLDER) -> Labels | None:
    """The labels of a repository; None if nobody made any. Raises pydantic.ValidationError."""
    path = folder / f"{repository.folder}.toml"
    return Labels.model_validate(toml(path)) if path.is_file() else None
