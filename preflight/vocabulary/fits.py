"""Answers of `preflight fit`: the value of one Job field with which a job fits, or why it cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate
from preflight.vocabulary.findings import Fix
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Value

Kind = Literal["largest", "smallest"]
"""largest: every smaller value fits as well. smallest: every larger one does."""

Memory = Literal["device", "host"]

Row: TypeAlias = "Mapping[str, int | str | None]"
"""One line of a frontier: Job field -> value. The key `NEED` has bytes of the process."""

NEED = "process"
"""The key of a frontier's row for the need where no largest value can be told."""


class Answer(Struct, frozen=True):
    """The value of `field` with which a job fits, everything else as it is.

    `value` None: no value fits (`reason` is empty), or none can be told (`reason` says why, `missing` which fields have
    to be stated, `frontier` what would fit for some of their values).
    """

    field: str
    title: str
    kind: Kind
    memory: Memory = "device"
    value: int | str | None = None
    stated: object = None
    """The value that the job has now."""
    job: Job | None = None
    """The job with the answer; of a search, its worst combination."""
    estimates: Estimates | None = None
    """The estimate of that job."""
    limit: str = ""
    """What keeps the next value from fitting, if that is not the memory."""
    open_ended: bool = False
    """The last value that was tried fits as well."""
    reason: str = ""
    missing: tuple[str, ...] = ()
    frontier: tuple[Row, ...] = ()

    @property
    def side(self) -> DeviceEstimate | HostEstimate | None:
        """The estimate of the memory that the answer is about."""
        if self.estimates is None:
            return None
        return self.estimates.device if self.memory == "device" else self.estimates.host


class FitOf(Struct, frozen=True):
    """The answers for one job: a job stated by values, or the worst combination of a part (`branch`) of a search."""

    job: Job
    gpu: str
    answers: tuple[Answer, ...]
    branch: Mapping[str, Value]
    worst: Mapping[str, Value]
    """The axes' values of the worst combination; empty if there is no search."""


class FitOfStudy(Struct, frozen=True):
    """The answers of one study or job. `fix`: the proved change of its files that writes the answer of `field`."""

    paths: tuple[str, ...]
    parts: tuple[FitOf, ...]
    field: str
    fix: Fix | None = None
    diff: str = ""
    notes: tuple[str, ...] = ()
