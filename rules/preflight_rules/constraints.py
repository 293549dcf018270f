"""The user's own invariants, as far as rules need them: which are broken, and how low a setting may go."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.space.constraints import Constraint, Limits, Violation, limits, parse_all
from preflight.space.constraints import violations as broken
from preflight.vocabulary.findings import Change, Confidence, Finding, Severity
from preflight.vocabulary.records import replace
from preflight.vocabulary.rule import Case
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Axis, Choices, Origin, Value, names
from preflight_rules.common import assignment_text


def stated(case: Case) -> tuple[Constraint, ...]:
    """The constraints of the settings. Raises SettingsError for one that cannot be read."""
    return parse_all(case.settings.constraints)


def lower_bounds(case: Case, field: str) -> Iterator[tuple[int, tuple[Change, ...]]]:
    """How low a field may go in every combination, then how low once values of other axes are dropped.

    Each comes with the changes that drop them: first none, then the largest values of the axes that the constraints
    speak of, one after the other.
    """
    constraints = stated(case)
    boxes = [verdict.box for verdict in case.space.boxes]
    yield _lowest(constraints, boxes, field), ()
    named = {name for constraint in constraints for name in names(constraint.expr)}
    for axis in {axis.name: axis for box in boxes for axis in box.axes}.values():
        values = _numbers(axis)
        if axis.name not in named or field in axis.fields:
            continue
        for kept in (values[:end] for end in range(len(values) - 1, 0, -1)):
            keep = tuple(value for value in _written(axis) if value in kept)
            cut = [_with_axis(box, axis, keep) for box in boxes]
            yield _lowest(constraints, cut, field), (Change(axis.name, keep=keep),)


def _lowest(constraints: tuple[Constraint, ...], boxes: list[Box], field: str) -> int:
    found: list[Limits] = [limits(constraints, box, field) for box in boxes]
    return max([one.low for one in found if one.low is not None], default=1)


def _numbers(axis: Axis) -> list[float]:
    return sorted(value for value in _written(axis) if isinstance(value, (int, float)))


def _written(axis: Axis) -> tuple[Value, ...]:
    return axis.domain.values if isinstance(axis.domain, Choices) else ()


def _with_axis(box: Box, axis: Axis, keep: tuple[Value, ...]) -> Box:
    axes = tuple(replace(one, domain=Choices(keep)) if one.name == axis.name else one for one in box.axes)
    return replace(box, axes=axes)


def violations(case: Case, rule: str) -> Iterator[Finding]:
    """Stated invariants that some or every combination breaks, as findings of `rule`."""
    for verdict in case.space.boxes:
        for violation in broken(stated(case), verdict.box):
            yield _finding(verdict.box, violation, rule)


def _finding(box: Box, violation: Violation, rule: str) -> Finding:
    places = [place for name in violation.values if (place := _place(box, name)) is not None]
    constraint = violation.constraint
    where = "" if violation.everywhere or not violation.assignment else f" for {assignment_text(violation.assignment)}"
    return Finding(
        rule=rule,
        severity=Severity.error,
        confidence=Confidence.high,
        message=f"{constraint.name} ({constraint.text}) does not hold{where}: {assignment_text(violation.values)}",
        origin=places[0][0] if places else None,
        settings=tuple(violation.values),
        related=tuple(places[1:]),
        label="breaks a stated constraint",
    )


def _place(box: Box, name: str) -> tuple[Origin, str] | None:
    """Where a setting, an axis or a Job field is written."""
    axis = next((axis for axis in box.axes if axis.name == name), None)
    bound, expr = box.fields.get(name), box.constants.get(name)
    for origin in (
        axis.origin if axis is not None else None,
        expr.origin if expr is not None else None,
        bound.origin if bound is not None else None,
    ):
        if origin is not None:
            return origin, f"{name} is set here"
    return None
