"""The combinations of a study as Jobs: one, all, or those to list; the step of a Job, and its recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from math import prod

from msgspec.structs import replace

from preflight.space.jobs import job_maker
from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.estimates import Estimates, StepMoment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Axis, Choices, Domain, Range, Value
from preflight.vocabulary.verdicts import Point, Points
from preflight.vocabulary.watched import MeasuredRun
from preflight.vocabulary.words import assignment_text

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


def first_job(box: Box) -> Job:
    """The Job of the first value of every axis."""
    domains = {axis.name: axis.domain for axis in box.memory_axes}
    first = {name: one.values[0] for name, one in domains.items() if isinstance(one, Choices)}
    return job_at(box, first | {name: round(one.low) for name, one in domains.items() if isinstance(one, Range)})


def at(study: Study, given: Mapping[str, Value]) -> Study:
    """A study with one combination of its search: the one of these values. Raises UsageError.

    Each parameter that memory depends on needs a value; others need none.
    """
    if not study.is_search:
        return study
    names = dict.fromkeys(name for box in study.boxes for name in (*box.fixed, *(axis.name for axis in box.axes)))
    for name in given:
        if name not in names:
            raise UsageError(f"{name} is no parameter of the search{suggestion(name, names)}")
    boxes = [box for box in study.boxes if _holds(box, given)]
    if not boxes:
        raise UsageError(f"the search has no combination with {assignment_text(given)}")
    box = max(boxes, key=lambda one: sum(name in given for name in _deciding(one)))
    missing = [name for name in _deciding(box) if name not in given]
    if missing:
        raise UsageError(f"state {' and '.join(missing)} as well: memory depends on it")
    axes = (replace(one, domain=Choices(_meant(one, given[one.name]))) if one.fields else one for one in box.axes)
    return replace(study, boxes=(replace(box, axes=tuple(axes)),))


def _deciding(box: Box) -> tuple[str, ...]:
    """The parameters that choose the box, and those that choose its Job."""
    return (*box.fixed, *(axis.name for axis in box.memory_axes))


def _holds(box: Box, given: Mapping[str, Value]) -> bool:
    """Whether a combination with these values may be one of the box."""
    same = all(_is(given[name], value) for name, value in box.fixed.items() if name in given)
    return same and all(_meant(axis, given[axis.name]) for axis in box.memory_axes if axis.name in given)


def _meant(axis: Axis, given: Value) -> tuple[Value, ...]:
    """The value of an axis that is meant; none if it has no such value."""
    if isinstance(axis.domain, Choices):
        return tuple(value for value in axis.domain.values if _is(given, value))[:1]
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    inside = number and (not isinstance(axis.domain, Range) or axis.domain.low <= given <= axis.domain.high)  # type: ignore[operator]
    return (given,) if inside else ()


def _is(given: Value, value: Value) -> bool:
    """Whether a value that was read as YAML is this one: 1 is "1" too, where the choices are texts."""
    return (given == value and isinstance(given, bool) is isinstance(value, bool)) or str(given) == str(value)


def job_at(box: Box, assignment: Mapping[str, Value]) -> Job:
    """The Job of one combination: a value for each of the box's axes that memory depends on."""
    return job_maker(box).at(assignment).job


def jobs_of(box: Box, most: int) -> list[Job] | None:
    """The different Jobs of a box; None if there are more than `most`, or an unknown number."""
    maker, axes = job_maker(box), box.memory_axes
    domains = [_every_value(axis.domain, most) for axis in axes]
    if any(values is None for values in domains):
        return None
    jobs: dict[tuple[str, ...], Job] = {}
    for point in islice(product(*(values for values in domains if values)), most + 1):
        assignment = {axis.name: value for axis, value in zip(axes, point, strict=True)}
        jobs.setdefault(maker.key(assignment), maker.at(assignment).job)
    return list(jobs.values()) if len(jobs) <= most else None


def _every_value(domain: Domain, most: int) -> tuple[Value, ...] | None:
    """Every value of an axis; None where there are too many to look at, or none that are known."""
    if isinstance(domain, Choices):
        return domain.values
    size = domain.size() if isinstance(domain, Range) and domain.step is not None else None
    if size is None or size > most or not isinstance(domain, Range):
        return None
    points = (domain.low + index * (domain.step or 0) for index in range(size))
    return tuple(round(point) if domain.integer else point for point in points)
