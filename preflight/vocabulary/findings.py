"""Finding: a rule's message, its place, its confidence and its fixes."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Cause, Origin, Value

MemorySide: TypeAlias = Literal["", "device", "host"]
"""The memory of one GPU, or that of a node; "": a finding that is about neither."""


class Severity(str, Enum):
    """error: the run will fail or is wasted; warning: it may; info: worth saying."""

    error = "error"
    warning = "warning"
    info = "info"

    @property
    def rank(self) -> int:
        return ("info", "warning", "error").index(self.value)


class Confidence(str, Enum):
    """How sure a finding is: high where the whole interval says so, medium where its middle does, low where its end."""

    high = "high"
    medium = "medium"
    low = "low"


class Safety(str, Enum):
    """Whether a fix keeps the run the same."""

    safe = "safe"
    """The optimiser sees the same run: same effective batch, data, schedule and arithmetic up to rounding."""
    unsafe = "unsafe"
    """Anything else."""


class KeptBy(Struct, frozen=True):
    """What stays of an axis for each value of another axis, such as the one of the model.

    `kept`: pairs of a value of `axis` and the values (or the two bounds) that stay with it.
    """

    axis: str
    kept: tuple[tuple[Value, tuple[Value, ...]], ...]


class Change(Struct, frozen=True):
    """Give a Job field another value: `Change("train.batch_size", 16)`.

    For an axis of a search space, `keep` is the values (or the two bounds of a range) that stay; `value` is unused.
    `by` says it for each value of another axis; `keep` is then the widest of them. For SLURM's request, `field` is
    `request.memory` and the like. `program.guarded` wraps the objective of an Optuna study in preflight's guard, and
    `program.loss_divided` divides the loss of a loop by the batches whose gradients it adds up.
    """

    field: str
    value: Value = None
    keep: tuple[Value, ...] | None = None
    by: KeptBy | None = None


class Proposal(Struct, frozen=True):
    """A repair that a rule proposes, as changes of Job fields; `preflight.fixes` makes edits of it and proves them."""

    title: str
    changes: tuple[Change, ...] = ()
    safety: Safety = Safety.unsafe
    reason: str = ""
    """Why it is unsafe, for the user."""
    edits: tuple[Edit, ...] = ()
    """For malformed text: the edit itself, where no Job field is concerned."""


class TimeCost(Struct, frozen=True):
    """What a fix costs in time: by which factor `what` takes longer, as a range; why; and the source of the range."""

    low: float
    high: float
    what: str
    why: str
    source: str


class Fix(Struct, frozen=True):
    """A proposal that was proved: applied to a copy, read and estimated again, and the finding is gone."""

    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    reason: str = ""
    costs: tuple[TimeCost, ...] = ()


class Part(Struct, frozen=True):
    """One named amount of a breakdown, in bytes."""

    name: str
    bytes: int


class Finding(Struct, frozen=True):
    """One thing wrong (or worth saying) with one study.

    `message` is one line and carries the bound values. `notes` follow it in full output, `help` says how to fix it by
    hand. `parts`, `capacity` and `interval` (low, expected, high) draw the bar. `settings`: the Job fields concerned.
    """

    rule: str
    severity: Severity
    confidence: Confidence
    message: str
    origin: Origin | None
    settings: tuple[str, ...] = ()
    related: tuple[tuple[Origin, str], ...] = ()
    label: str = ""
    """A few words after the caret."""
    headline: str = ""
    """The message in one short sentence, for a report that shows the figures beside it; "": the message itself."""
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    interval: tuple[int, int, int] | None = None
    capacity: int | None = None
    side: MemorySide = ""
    """The memory that `parts`, `interval` and `capacity` are about."""
    proposals: tuple[Proposal, ...] = ()
    """The best first; `preflight.fixes` keeps the first that it can prove."""
    fix: Fix | None = None
    study: int | None = None
    """Index into the report's studies."""
    unproved: Cause | None = None
    """Why the proposals were not tried, so that there is no fix: the time limit of the run, or a budget of proofs."""


def severity_of(interval: Interval, capacity: int | None) -> tuple[Severity, Confidence] | None:
    """How bad a need of `interval` is against `capacity`; None where it fits or the capacity is unknown.

    Low end above: an error, and sure. Middle above: an error. Only the high end above: a warning.
    """
    verdict = interval.verdict(capacity)
    if capacity is None or verdict not in ("exceeds", "at-risk"):
        return None
    if verdict == "at-risk":
        return Severity.warning, Confidence.low
    return Severity.error, Confidence.high if interval.low > capacity else Confidence.medium


def of_problem(problem: Problem) -> Finding:
    """A reader's problem as a finding, with its fix if there is exactly one."""
    proposals: tuple[Proposal, ...] = ()
    if problem.fix is not None:
        places = ((problem.origin, problem.fix), *problem.also)
        edits = tuple(Edit(origin.path, origin.span, text) for origin, text in places)
        safety = Safety.safe if problem.safe else Safety.unsafe
        proposals = (Proposal(problem.fix_title, safety=safety, edits=edits),)
    return Finding(
        rule=problem.rule,
        severity=Severity(problem.severity),
        confidence=Confidence.high,
        message=problem.message,
        origin=problem.origin,
        related=problem.related,
        proposals=proposals,
    )
