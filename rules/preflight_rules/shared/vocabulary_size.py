"""A smaller vocabulary: small enough to fit, and large enough for the constraints of the user."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.api import (
    Axis,
    Box,
    Case,
    Change,
    Choices,
    Constraint,
    Limits,
    Proposal,
    Safety,
    Value,
    constraint_limits,
    largest,
    names,
    parse_constraints,
    values_text,
    written,
)
from preflight_rules.shared import remedies


def cap_vocabulary(case: Case) -> Iterator[Proposal]:
    """The largest vocabulary that fits, as a round number, and never below the constraints of the user.

    If the constraints need more than fits, the largest values of the axes in them are dropped too.
    """
    vocabulary = case.job.train.vocab_size
    if vocabulary is None or not written(case, "train.vocab_size"):
        return
    for lower, dropping in lower_bounds(case, "train.vocab_size"):
        steps = sorted({n for n in (lower, *round_numbers(vocabulary)) if lower <= n < vocabulary})
        found = largest(steps, lambda n: remedies.fits(case, {"train.vocab_size": n}))
        if found is None:
            continue
        reason = "tokens above it no longer exist" + (f"; at least {lower:,} are needed" if lower > 1 else "")
        words = [f"vocabulary {vocabulary:,} -> {found:,}"]
        words += [f"keep {change.field} {values_text(change.keep or ())}" for change in dropping]
        changes = (*dropping, Change("train.vocab_size", found))
        yield Proposal("; ".join(words), changes, Safety.unsafe, reason)
        return


def round_numbers(limit: int) -> list[int]:
    """1, 2, ..., 9, 10, 20, ..., 90, 100, ... up to a limit."""
    return [
        digit * 10**power for power in range(len(str(limit))) for digit in range(1, 10) if digit * 10**power <= limit
    ]


def lower_bounds(case: Case, field: str) -> Iterator[tuple[int, tuple[Change, ...]]]:
    """How low a field may go in every combination, then how low once values of other axes are dropped.

    Each comes with the changes that drop them: first none, then the largest values of the axes that the constraints
    speak of, one after the other.
    """
    constraints = parse_constraints(case.settings.constraints)
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
    found: list[Limits] = [constraint_limits(constraints, box, field) for box in boxes]
    return max([one.low for one in found if one.low is not None], default=1)


def _numbers(axis: Axis) -> list[float]:
    return sorted(value for value in _written(axis) if isinstance(value, (int, float)))


def _written(axis: Axis) -> tuple[Value, ...]:
    return axis.domain.values if isinstance(axis.domain, Choices) else ()


def _with_axis(box: Box, axis: Axis, keep: tuple[Value, ...]) -> Box:
    axes = tuple(replace(one, domain=Choices(keep)) if one.name == axis.name else one for one in box.axes)
    return replace(box, axes=axes)
