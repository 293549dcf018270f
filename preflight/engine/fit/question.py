"""The job that is solved for, and how its estimates are made: on its GPU, on another card, over a search space."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.engine.certainty import Certainty
from preflight.engine.estimator import Estimator
from preflight.space.judge import judge
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Held
from preflight.vocabulary.study import Bound, Box, Source, Study
from preflight.vocabulary.values import Const, Value
from preflight.vocabulary.verdicts import Point


class Question(Struct, frozen=True):
    """One job. `held`: how its fields are known. `study` and `box`: the part of a search whose worst job it is."""

    job: Job
    estimator: Estimator
    held: Mapping[str, Held] = field(default_factory=dict)
    study: Study | None = None
    box: Box | None = None
    constraints: Mapping[str, str] = field(default_factory=dict)

    def certainty(self, *solved: str, gpu: Gpu | None = None) -> Certainty:
        """Estimates with their assumptions. Fields that are solved for are not assumed: the answer states them.

        `gpu`: another card than the job's own.
        """
        held = {name: one for name, one in self.held.items() if name not in solved}
        estimator = self.estimator if gpu is None else self.estimator.on(gpu)
        return Certainty(held, estimator)

    def of(self, job: Job) -> Question:
        """The same question about another job of the space."""
        return replace(self, job=job)

    def solving(self, *fields: str) -> Question:
        """The same question, with fields that are tried out: nothing is assumed of them."""
        return replace(self, held={name: one for name, one in self.held.items() if name not in fields})

    @property
    def several(self) -> bool:
        """Whether the job is one of several combinations."""
        return self.box is not None and bool(self.box.memory_axes)

    def worst_with(self, values: Mapping[str, Value], certainty: Certainty) -> Point:
        """The worst combination of the box if all combinations had these values."""
        if self.study is None or self.box is None:
            raise ValueError("a job that is stated by values has no combinations")
        bounds = {name: Bound(name, Const(value), source=Source.command_line) for name, value in values.items()}
        box = replace(self.box, fields={**self.box.fields, **bounds})
        sides = certainty.estimator.sides(certainty.estimate)
        study = replace(self.study, boxes=(box,))
        return judge(study, certainty.estimate, *sides, constraints=self.constraints, doubted=certainty.sides()).worst


def fitting(estimates: Estimates | None, memory: str) -> bool:
    """Whether one side fits, as it is estimated."""
    side = None if estimates is None else estimates.device if memory == "device" else estimates.host
    return side is not None and side.fitting
