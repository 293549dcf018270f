"""Possible edits of a study's files, and the job after them: helpers for rules that propose changes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from preflight.fixes.invert import solutions
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.findings import Change
from preflight.vocabulary.job import Job
from preflight.vocabulary.rule import Case
from preflight.vocabulary.spelling import Invalid, normal
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Expr,
    Op,
    Origin,
    Unbounded,
    Unknown,
    evaluate,
    names,
    origins,
    substitute,
)

T = TypeVar("T")

LARGEST_TOTAL = 10**10
"""The largest effective batch whose divisors are searched."""


def axes_of(case: Case, field: str) -> tuple[Axis, ...]:
    """The axes with more than one value that a Job field depends on, in the box of the worst combination."""
    bound = case.bound(field)
    if bound is None:
        return ()
    used = set(names(bound.expr))
    return tuple(axis for axis in case.worst_box.axes if axis.name in used and _varies(axis))


def _varies(axis: Axis) -> bool:
    if isinstance(axis.domain, Choices):
        return len(axis.domain.values) > 1
    return isinstance(axis.domain, Unbounded) or axis.domain.high > axis.domain.low


def written(case: Case, field: str) -> bool:
    """Whether a literal in the files decides the field's value, and no axis of a search does."""
    bound = case.bound(field)
    if bound is None or axes_of(case, field):
        return False
    expr = substitute(bound.expr, _constants(case.worst_box))
    return next(solutions(expr, case.job.get(field)), None) is not None  # type: ignore[arg-type]


def settable(case: Case, field: str) -> bool:
    """Whether an edit could give `field` another value: a file has it, or the framework accepts it.

    This is a quick test that saves estimates; `possible` gives the final answer.
    """
    if written(case, field):
        return True
    bound = case.bound(field)
    known = case.fact("framework") not in (None, "hand-written")
    return (bound is None or bound.origin is None) and known and not axes_of(case, field)


def possible(case: Case, changes: Iterable[Change]) -> bool:
    """Whether every change can be carried out by edits of the files."""
    from preflight.fixes.edits import edits

    return all(edits(change, case.study, case.space.boxes, case.project) is not None for change in changes)


def changed(case: Case, changes: Mapping[str, object]) -> Job:
    """The job of the worst combination after `changes`, with the fields that are computed from the same text.

    Example: if validation uses twice the workers of training, and these are halved, both fields are halved.
    """
    box = case.worst_box
    places: dict[Origin, tuple[Const, Const]] = {}
    single = _constants(box)
    for name, value in changes.items():
        bound = box.fields.get(name)
        if bound is None:
            continue
        expr = substitute(bound.expr, single)
        for literal, wanted in next(solutions(expr, value), ()):  # type: ignore[arg-type]
            if literal.origin is not None:
                places[literal.origin] = (literal, Const(wanted, literal.origin))
    env: dict[str, Expr] = {name: Const(value) for name, value in {**box.fixed, **case.worst.assignment}.items()}
    derived: dict[str, object] = {}
    for name, bound in box.fields.items() if places else ():
        expr = substitute(bound.expr, single) if single else bound.expr
        if name in changes or not any(origin in places for origin in origins(expr)):
            continue
        try:
            value = normal(name, evaluate(_replace(expr, places), env), bound.setting)
        except Invalid:
            continue
        if not isinstance(value, Unknown):
            derived[name] = value
    return with_fields(case.job, {**derived, **changes})


def _constants(box: Box) -> dict[str, Expr]:
    """Axes with a single value, which are plain settings: `values: [64]`."""
    found: dict[str, Expr] = {}
    for axis in box.axes:
        if isinstance(axis.domain, Choices) and len(axis.domain.values) == 1:
            found[axis.name] = Const(axis.domain.values[0], axis.domain.origins[0] if axis.domain.origins else None)
    return found


def _replace(expr: Expr, places: Mapping[Origin, tuple[Const, Const]]) -> Expr:
    if isinstance(expr, Const) and expr.origin is not None and expr.origin in places:
        return _follow(expr, *places[expr.origin])
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(_replace(operand, places) for operand in expr.operands), expr.origin)
    return expr


def _follow(derived: Const, old: Const, new: Const) -> Const:
    """The constant `derived` after its text changed from `old` to `new`. A whole multiple (twice the workers) stays
    the same multiple."""
    if derived.value == old.value:
        return new
    if isinstance(derived.value, int) and isinstance(old.value, int) and isinstance(new.value, int) and old.value:
        times, rest = divmod(derived.value, old.value)
        return derived if rest else Const(times * new.value, derived.origin)
    return derived


def largest(
    values: Sequence[T], good: Callable[[T], bool], likely: Callable[[T], bool | None] | None = None
) -> T | None:
    """The largest good one of ascending `values`, None if there is none. All good values come before the others.

    `likely` tells quickly where the good values may end; there the search begins.
    """
    low, high = 0, len(values)
    if likely is not None:
        start = bisect_left(values, True, key=lambda value: not likely(value))
        if start and not good(values[start - 1]):
            high = start - 1
        elif start < high and not good(values[start]):
            low = high = start
        else:
            low = min(start + 1, high)
    while low < high:
        middle = (low + high) // 2
        if good(values[middle]):
            low = middle + 1
        else:
            high = middle
    return values[low - 1] if low else None


def divisors(number: int) -> list[int]:
    """Divisors of a number below itself; none for a number that is too large for a batch (the search would not end)."""
    if number > LARGEST_TOTAL:
        return []
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)} - {number})
