"""Study: a Job template, a search space, the request and facts, each value with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.reading import Fact, Launch, Link, Problem, Reading, Request, Unread
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.values import Axis, Const, Expr, Origin, Unknown, Value, evaluate, frozen, names


class Source(Enum):
    """The source of a Job field's value. The texts complete "it comes from ..."; `{}` is `Bound.where`."""

    file = "{}"
    """A file that was read."""
    library = "default of the library, as {} uses it"
    preflight = "preflight's default"
    launch = "the launch"
    request = "the request"
    container = "the container"
    environment = "the environment"
    machine = "node type {}"
    target = "what was asked for"
    """The machine or the GPU that the user or the request names, where no node type is known."""
    map = "the settings' map"
    settings = "the settings"
    command_line = "--set"
    dry_run = "a dry run of the command"
    measured = "a recorded run of the program"


class Bound(Struct, frozen=True):
    """A Job field's winning expression over axes, and the settings that lost against it.

    `where`: the file, or the node type, that `source` speaks of.
    """

    field: str
    expr: Expr
    origin: Origin | None = None
    losers: tuple[Origin, ...] = ()
    default: bool = False
    source: Source = Source.file
    where: str = ""
    setting: str = ""
    """The key or parameter that fed it, where an alias by name did: spellings depend on it (`fp16: true`)."""
    others: tuple[Value, ...] = ()
    """The only other values that it may have: of a library's default, those of other releases that may be in use."""
    why_others: str = ""
    """Why it may have them; empty: the release is not stated."""
    perhaps: bool = False
    """Only a run decides whether the program sets it."""

    @property
    def stated_by_user(self) -> bool:
        """Whether the user states the field itself, whatever the files say."""
        return self.source in (Source.settings, Source.command_line)

    @property
    def standing(self) -> Standing:
        """How the value is known, according to the files that were read."""
        if self.source is Source.dry_run:
            return Standing.dry_run
        if self.source is Source.measured:
            return Standing.measured
        fixed = not any(True for _ in names(self.expr))
        if fixed and (isinstance(value := evaluate(self.expr), Unknown) or value is None):
            return Standing.unknown
        if self.others:
            return Standing.assumed
        if self.default:
            return Standing.default
        return Standing.by_name if self.setting else Standing.read


class Box(Struct, frozen=True):
    """A part of the search space in which every axis ranges freely. A single job is one box with no axes.

    `fixed`: axes that have one value here (the branch). `fields`: Job field -> Bound, over `axes` alone.
    `constants`: every setting by its own name (for constraints), as expressions over `axes`.
    """

    fields: Mapping[str, Bound]
    axes: tuple[Axis, ...] = ()
    fixed: Mapping[str, Value] = field(default_factory=dict)
    constants: Mapping[str, Expr] = field(default_factory=dict)

    @property
    def memory_axes(self) -> tuple[Axis, ...]:
        """Axes that feed a Job field: only these count as combinations."""
        return tuple(axis for axis in self.axes if axis.fields)

    @property
    def combinations(self) -> int | None:
        """How many Jobs; None: unbounded."""
        total = 1
        for axis in self.memory_axes:
            size = size_of(axis)
            if size is None:
                return None
            total *= size
        return total


def size_of(axis: Axis) -> int | None:
    """How many values an axis has; None: unbounded."""
    domain = axis.domain
    if hasattr(domain, "values"):
        return len(domain.values)
    return domain.size() if hasattr(domain, "size") else None


class Study(Struct, frozen=True):
    """One launch: a Job with open settings, and its search space. `paths`: all its files, the starting one first."""

    paths: tuple[str, ...]
    dialects: tuple[str, ...]
    boxes: tuple[Box, ...]
    request: Request | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    launch: Launch = field(default_factory=Launch)
    group: int = 0
    concurrent_with: tuple[int, ...] = ()
    """Indices of studies that run on the same machine at the same time."""
    unread_programs: tuple[str, ...] = ()
    """Programs of the same job, by their names, of which no study says what memory they take."""
    unread_beside: tuple[str, ...] = ()
    """Those of them that run at the same time."""
    program: str | None = None
    readings: tuple[Reading, ...] = ()
    """The readings of its files, the file that starts it first."""
    links: tuple[Link, ...] = ()
    """The links that were followed, outermost first."""
    same: tuple[Study, ...] = ()
    """Other launches of the same job, for which this study stands."""
    unread: Unread | None = None
    """Set for what a file starts beyond a budget: nothing of it is known."""

    @property
    def combinations(self) -> int | None:
        counts = [box.combinations for box in self.boxes]
        return None if None in counts else sum(c for c in counts if c is not None)

    @property
    def is_search(self) -> bool:
        return any(box.axes for box in self.boxes) or len(self.boxes) > 1


class Skipped(Struct, frozen=True):
    """A given path that makes no study, and why (`reason` in words for the user).

    unrecognised: no dialect knows it. unreadable: missing, a directory, binary, too large. malformed: it cannot be
    parsed (`problems` has the place). no-training: recognised, and nothing in it trains a model. crashed: a reader of
    ours failed on it. time-limit: it was not read in time.
    """

    path: str
    kind: Literal["unrecognised", "unreadable", "malformed", "no-training", "crashed", "time-limit"]
    reason: str
    problems: tuple[Problem, ...] = ()


@lru_cache(maxsize=1)
def table_defaults() -> Mapping[str, Bound]:
    """Job field -> preflight's own default, for every field that has one. Others are unknown until they are stated."""
    job = Job.model_construct()
    found = {}
    for name in fields():
        value = job.get(name)
        if value is not None:
            found[name] = Bound(name, Const(frozen(value)), default=True, source=Source.preflight)
    return found
