"""Rule: the base class of all rules, and Case: the study that a rule checks. Rules are found through entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, cast, get_args, get_origin

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from preflight.vocabulary.estimates import FITTING, DeviceEstimate, Estimates, HostEstimate, Interval, Verdict
from preflight.vocabulary.findings import (
    Confidence,
    Finding,
    MemorySide,
    Part,
    Proposal,
    Severity,
    of_problem,
    severity_of,
)
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Cluster, Gpu, Node
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Assumption
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.values import Origin, Value
from preflight.vocabulary.verdicts import Point, SpaceVerdict


class Options(BaseModel):
    """A rule's own settings; subclass it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


O_co = TypeVar("O_co", bound=Options, covariant=True, default=Options)
"""A rule's options. Covariant, so that a rule with options is a `Rule` too: the engine gives each rule its own."""


class Example(Struct, frozen=True):
    """A small project that must (`finds` > 0) or must not (0) trigger the rule: test and documentation in one.

    `files`: name -> text; the first is checked. `fixed`: name -> exact text after the fix (`unsafe`: needs
    --unsafe-fixes). `says`: words that the first finding's message must contain. `options`: command-line settings as
    `Settings` fields.
    """

    title: str
    files: Mapping[str, str]
    finds: int = 1
    fixed: Mapping[str, str] | None = None
    unsafe: bool = False
    says: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Case(Struct, Generic[O_co], frozen=True):
    """One study with everything that is known about it, as a rule sees it.

    `worst` is the job of a single run, or the worst combination of a search. `estimate` judges any other Job at full
    depth; it is cached. `gpu`, `cluster` and `node` are None where they are not known.
    """

    study: Study
    index: int
    project: Project
    settings: Settings
    space: SpaceVerdict
    estimate: Callable[[Job], Estimates]
    gpu: Gpu | None = None
    cluster: Cluster | None = None
    node: Node | None = None
    options: O_co = field(default_factory=cast("Callable[[], O_co]", Options.model_construct))
    beside: tuple[Case, ...] = ()
    """Launches of the same script that run at the same time."""
    tracing: Tracing = SHIPPED_ONLY
    """Whether models that no shipped law knows may be traced."""
    may_fit: Callable[[Job], bool | None] = lambda job: None
    """Whether the GPU holds any other Job, without a full estimate: False is certain, True is likely, None is not
    known."""
    verdict: Callable[[Job], Verdict | None] | None = None
    """The device's verdict as it is estimated. What it stands on, and the figures, take replays of their own."""
    unsure: Callable[[], tuple[Assumption, ...]] = lambda: ()
    """The fields of the worst job that are not known well and that its need of GPU memory depends on."""

    def fits(self, job: Job) -> bool:
        """Whether the GPU holds any other Job as it is estimated, whatever the estimate stands on."""
        if self.verdict is not None:
            return self.verdict(job) in FITTING
        found = self.estimate(job).device
        return found is not None and found.fitting

    @property
    def worst(self) -> Point:
        return self.space.worst

    @property
    def job(self) -> Job:
        return self.space.worst.job

    @property
    def estimates(self) -> Estimates:
        return self.space.worst.estimates

    @property
    def worst_box(self) -> Box:
        """The box that contains the worst combination."""
        return next(verdict.box for verdict in self.space.boxes if verdict.worst is self.space.worst)

    def bound(self, field: str) -> Bound | None:
        """The winning expression of a Job field in the worst combination's box."""
        for verdict in self.space.boxes:
            if verdict.worst is self.space.worst:
                return verdict.box.fields.get(field)
        return None

    def origin(self, *fields: str) -> Origin | None:
        """Where the first of the fields that is written somewhere is written; the study's first file otherwise None."""
        for name in fields:
            bound = self.bound(name)
            if bound is not None and bound.origin is not None:
                return bound.origin
        return None

    def fact(self, name: str, default: object = None) -> object:
        found = self.study.facts.get(name)
        return default if found is None else found.value

    def fact_origin(self, name: str) -> Origin | None:
        """The place in the program that a fact describes."""
        found = self.study.facts.get(name)
        return None if found is None else found.origin


class Rule(Generic[O_co]):
    """Base of all rules. The subclass's docstring is the rule's page: the problem, why it matters, how to fix it.

    A rule that has options names their class: `class TooLarge(Rule[LargeOptions])`; `case.options` is one then.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    """What it is about, for services that filter findings: `gpu-memory`, `slurm`."""
    url: ClassVar[str] = ""
    """The address of its page, for a rule of another distribution; preflight's own are made of their names."""
    options: ClassVar[type[Options]] = Options
    """Taken from `Rule[...]`."""
    examples: ClassVar[tuple[Example, ...]] = ()
    preview: ClassVar[bool] = False
    remark: ClassVar[bool] = False
    """It asks what jobs would need that no file describes: its traces stop before those of verdicts do."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is Rule and isinstance(get_args(base)[0], type):
                cls.options = get_args(base)[0]

    def check(self, case: Case[O_co]) -> Iterator[Finding]:
        """Findings for one study. Raising is a bug: the engine reports it as `internal-error` and goes on."""
        yield from ()

    def check_run(self, cases: Sequence[Case[Options]]) -> Iterator[Finding]:
        """Findings about all studies of a project together, instead of the same finding for each study.

        Each names its first study (`study=case.index`). These findings have no fixes: a fix is proved on a few studies,
        and such a finding concerns all of them.
        """
        yield from ()

    def proposals_for(self, case: Case[Options], field: str, value: Value) -> Iterator[Proposal]:
        """Changes that write a solved value of a Job field (`preflight fit`), the best first, each with its safety.

        Only a rule that knows whether the run stays the same answers. Without an answer, the change is unsafe.
        """
        yield from ()

    def finding(
        self,
        message: str,
        origin: Origin | None,
        severity: Severity | None = None,
        confidence: Confidence | None = None,
        *,
        estimate: DeviceEstimate | HostEstimate | None = None,
        settings: tuple[str, ...] = (),
        related: tuple[tuple[Origin, str], ...] = (),
        label: str = "",
        headline: str = "",
        notes: tuple[str, ...] = (),
        help: tuple[str, ...] = (),
        interval: Interval | None = None,
        capacity: int | None = None,
        side: MemorySide = "",
        proposals: tuple[Proposal, ...] = (),
    ) -> Finding:
        """A finding of this rule.

        `estimate` is the evidence: the finding gets its parts, interval, capacity and side. If no severity is given,
        they decide it: an error above the capacity, else a warning. The other arguments override the estimate.
        """
        of_estimate: MemorySide
        breakdown: Mapping[str, int] = {} if estimate is None else estimate.breakdown
        if isinstance(estimate, DeviceEstimate):
            need, room, of_estimate = estimate.process, estimate.capacity, "device"
        elif estimate is not None:
            need, room, of_estimate = estimate.per_node, estimate.limit, "host"
        else:
            need, room, of_estimate = None, None, ""
        interval, capacity = interval or need, room if capacity is None else capacity
        rated = None if interval is None else severity_of(interval, capacity)
        if severity is None:
            severity, judged = rated or (Severity.warning, Confidence.low)
        else:
            judged = rated[1] if rated else Confidence.high
        return Finding(
            rule=self.name,
            severity=severity,
            confidence=confidence or judged,
            message=message,
            origin=origin,
            settings=settings,
            related=related,
            label=label,
            headline=headline,
            notes=notes,
            help=help,
            parts=tuple(Part(name, size) for name, size in breakdown.items() if size > 0),
            interval=None if interval is None else (interval.low, interval.expected, interval.high),
            capacity=capacity,
            side=side or of_estimate,
            proposals=proposals,
        )

    def from_problems(self, case: Case[Options]) -> Iterator[Finding]:
        """Problems that the readers of files reported under this rule's name."""
        for problem in case.study.problems:
            if problem.rule == self.name:
                yield of_problem(problem)


def device_of(case: Case) -> DeviceEstimate | None:
    """The worst combination's device estimate."""
    return case.estimates.device


def host_of(case: Case) -> HostEstimate | None:
    """The worst combination's host estimate; None where it exceeds with values that nobody knows."""
    host = case.estimates.host
    return None if host is not None and host.verdict == "unknown" and host.assumptions else host


def gpu_name(case: Case) -> str:
    """ "RTX 4090" or "the GPU"."""
    return case.gpu.name if case.gpu is not None else case.job.machine.gpu or "the GPU"


def several(case: Case) -> bool:
    """Whether the study is a search whose combinations differ in memory: then the space's rules speak of it."""
    return case.space.combinations is None or case.space.combinations > 1


def related_of(case: Case, first: Origin | None, *pairs: tuple[str, str]) -> tuple[tuple[Origin, str], ...]:
    """Places of further fields (field, words), the finding's own place and repetitions left out."""
    seen, found = {first}, []
    for name, words in pairs:
        origin = case.origin(name)
        if origin is not None and origin not in seen:
            seen.add(origin)
            found.append((origin, words))
    return tuple(found)
