"""Rule: what a rule is, and the Case it is asked about. Rules live in `rules/` and are found through entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from preflight.memory.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Cluster, Gpu, Node
from preflight.vocabulary.project import Project
from preflight.vocabulary.records import dataclass, field
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Study
from preflight.vocabulary.values import Origin
from preflight.vocabulary.verdicts import Point, SpaceVerdict


class Options(BaseModel):
    """A rule's own settings; subclass it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True)
class Example:
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


@dataclass(frozen=True)
class Case:
    """One study with everything that is known about it, as a rule sees it.

    `worst` is the job of a single run, or the worst combination of a search. `estimate` judges any other Job at full
    depth; it is cached. `gpu`, `cluster` and `node` are None where nobody said.
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
    options: Options = field(default_factory=Options.model_construct)
    beside: tuple[Case, ...] = ()
    """Launches of the same script that run at the same time."""
    tracing: Tracing = SHIPPED_ONLY
    """Whether models that no shipped law knows may be traced."""

    @property
    def worst(self) -> Point:
        return self.space.worst

    @property
    def job(self) -> Job:
        return self.space.worst.job

    @property
    def estimates(self) -> Estimates:
        return self.space.worst.estimates

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


class Rule:
    """Base of all rules. The subclass's docstring is the rule's page: what it finds, why it matters, how to fix it."""

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[type[Options]] = Options
    examples: ClassVar[tuple[Example, ...]] = ()
    preview: ClassVar[bool] = False

    def check(self, case: Case) -> Iterator[Finding]:
        """Findings for one study. Raising is a bug: the engine reports it as `internal-error` and goes on."""
        yield from ()

    def check_run(self, cases: Sequence[Case]) -> Iterator[Finding]:
        """Findings about all studies of a project together, where one for each would say the same thing many times.

        Each names the study that it speaks of first (`study=case.index`). They have no fixes: what is proposed is
        proved on a few studies, and such a finding stands on all of them.
        """
        yield from ()
