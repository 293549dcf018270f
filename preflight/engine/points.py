"""The combinations of a study one by one, for reports that list them, the step of one Job, and its recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from preflight.space.jobs import job_maker
from preflight.vocabulary.estimates import Estimates, StepMoment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Axis, Choices, Range, Value
from preflight.vocabulary.verdicts import Point, Points
from preflight.vocabulary.watched import MeasuredRun

OF_RANGE = 5
"""Values of a range that has too many to list: its two ends and those between them, evenly."""


def points_of(study: Study, estimate: Callable[[Job], Estimates], most: int) -> Points:
    """At most `most` combinations of a search. Where there are more, values of the longest axes are left out evenly;
    their ends stay. Combinations that need the same memory are estimated once."""
    whole = True
    found: list[Point] = []
    share = max(1, most // max(len(study.boxes), 1))
    for number, box in enumerate(study.boxes):
        values, all_of_them = _values(box, share)
        whole &= all_of_them
        maker = job_maker(box)
        estimated: dict[tuple[str, ...], tuple[Job, Estimates]] = {}
        for combination in product(*values.values()):
            assignment = dict(zip(values, combination, strict=True))
            key = maker.key(assignment)
            if key not in estimated:
                job = maker.at(assignment).job
                estimated[key] = (job, estimate(job))
            found.append(Point(assignment, *estimated[key], number))
    return Points(tuple(found), whole)


def _values(box: Box, most: int) -> tuple[Mapping[str, Sequence[Value]], bool]:
    """The values of each axis to combine, and whether they are all."""
    values: dict[str, Sequence[Value]] = {}
    whole = True
    for axis in box.memory_axes:
        values[axis.name], all_of_them = _of_axis(axis)
        whole &= all_of_them
    while prod(map(len, values.values())) > most:
        name = max(values, key=lambda one: len(values[one]))
        if len(values[name]) < 2:
            break
        values[name] = _thinned(values[name], max(1, len(values[name]) * 2 // 3))
        whole = False
    return values, whole


def _of_axis(axis: Axis) -> tuple[Sequence[Value], bool]:
    domain = axis.domain
    if isinstance(domain, Choices):
        return domain.values, True
    if not isinstance(domain, Range):
        return (), False
    size = domain.size()
    if size is not None and size <= 64 and domain.step is not None:
        points = [domain.low + index * domain.step for index in range(size)]
    else:
        points = [domain.low + (domain.high - domain.low) * index / (OF_RANGE - 1) for index in range(OF_RANGE)]
    numbers: list[Value] = [round(point) if domain.integer else point for point in points]
    return list(dict.fromkeys(numbers)), size == len(points)


def _thinned(values: Sequence[Value], count: int) -> Sequence[Value]:
    """So many of the values, evenly; the first and the last stay."""
    if count == 1:
        return values[-1:]
    return [values[round(index * (len(values) - 1) / (count - 1))] for index in range(count)]


def moments_of(job: Job, gpu: Gpu | None, tracing: Tracing) -> Sequence[StepMoment]:
    """The moments of a Job's step, for a drawing; none where no law is known."""
    from preflight.memory.device.estimate import timeline

    return timeline(job, gpu, tracing)


def measured_of(job: Job, gpu: Gpu | None) -> Sequence[MeasuredRun]:
    """The recorded runs of a Job on this GPU, newest first."""
    from preflight.engine import recorded

    return recorded.measured_of(job, gpu)
