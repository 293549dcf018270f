"""Unintended changes of edits that limit an axis by the values of another one: compared for each of these values.

Such an edit cuts a box into several, by the models that a limit names. A *slice* is the part of a box with one value of
that axis; every slice of the study before has one after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.fixes.compare import Difference, Intent, differences, keeps, requests, same_domain, same_expr
from preflight.fixes.limits import Kept, branch_name
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Domain,
    Environment,
    Expr,
    Op,
    Range,
    Ref,
    Unknown,
    Value,
    evaluate,
    names,
    substitute,
)

_Key = tuple[str, str]


def unintended(before: Study, after: Study, intent: Intent) -> Iterator[Difference]:
    """The changes between two readings of a study, except the intended ones."""
    by = next((change.by.axis for change in intent.changes if change.by is not None), None)
    if by is None or not any(axis.name == by for box in before.boxes for axis in box.axes):
        yield from differences(before, after, intent)
        return
    if before.program != after.program or before.paths != after.paths:
        yield Difference("the files that belong together")
    yield from requests(before.request, after.request, intent)
    old, new = dict(_slices(before, by)), dict(_slices(after, by))
    stay = next((change.keep for change in intent.changes if change.by is None and change.field == by), None)
    for key, (value, box) in old.items():
        if stay is not None and value not in stay:
            continue
        match = new.pop(key, None)
        if match is None:
            yield Difference("a branch of the search")
        else:
            yield from _slice(by, value, box, match[1], intent)
    if new:
        yield Difference("a branch of the search")


def _slices(study: Study, by: str) -> Iterator[tuple[_Key, tuple[Value, Box]]]:
    for box in study.boxes:
        rest = repr(sorted((name, value) for name, value in box.fixed.items() if name != by))
        for axis in box.axes:
            if axis.name == by and isinstance(axis.domain, Choices):
                for value in axis.domain.values:
                    yield (repr(value), rest), (value, box)
        if by in box.fixed:
            yield (repr(box.fixed[by]), rest), (box.fixed[by], box)


def _slice(by: str, value: Value, before: Box, after: Box, intent: Intent) -> Iterator[Difference]:
    limits = {c.field: dict(c.by.kept).get(value) for c in intent.changes if c.by is not None}
    later = {axis.name: axis for axis in after.axes if axis.name != by}
    old_env: dict[str, Expr] = {by: Const(value)}
    new_env: dict[str, Expr] = {by: Const(value)}
    for axis in before.axes:
        if axis.name == by:
            continue
        kept = limits.get(axis.name)
        name = axis.name if axis.name in later or kept is None else branch_name(axis.name, kept)
        match = later.pop(name, None)
        if match is None or not _as_meant(axis, match.domain, kept):
            yield Difference(axis.name)
        elif name != axis.name:
            new_env[name] = Ref(axis.name)
    yield from (Difference(name) for name in later)
    yield from _fields(before, after, old_env, new_env)


def _as_meant(axis: Axis, found: Domain, kept: Kept | None) -> bool:
    """Whether an axis keeps its values, or those that the limit leaves of it."""
    if kept is None:
        return same_domain(axis.domain, found)
    if isinstance(axis.domain, Range) and isinstance(found, Range):
        ends = replace(axis.domain, low=found.low, high=found.high)
        return keeps(found, kept) and same_domain(ends, found)
    return keeps(found, kept)


def _fields(before: Box, after: Box, old_env: Environment, new_env: Environment) -> Iterator[Difference]:
    exprs = ({n: b.expr for n, b in before.fields.items()}, {n: b.expr for n, b in after.fields.items()})
    for name, old, new in (*_pairs(*exprs), *_pairs(_settings(before, old_env), _settings(after, old_env))):
        one = None if old is None else folded(substitute(old, old_env))
        other = None if new is None else folded(substitute(new, new_env))
        if one is None or other is None or not same_expr(one, other):
            yield Difference(name)


def _settings(box: Box, chosen: Environment) -> Environment:
    """Settings of the project. What a trial suggests is an axis of this box or of another one."""
    suggested = {name for name, expr in box.constants.items() if isinstance(expr, Ref) and expr.name == name}
    return {name: expr for name, expr in box.constants.items() if name not in suggested and name not in chosen}


def _pairs(old: Environment, new: Environment) -> Iterator[tuple[str, Expr | None, Expr | None]]:
    for name in sorted(old.keys() | new.keys()):
        yield name, old.get(name), new.get(name)


def folded(expr: Expr) -> Expr:
    """An expression in which what depends on no axis has its value, so that decided conditions are gone."""
    if not isinstance(expr, Op):
        return Const(expr.value) if isinstance(expr, Const) else expr
    if not any(True for _ in names(expr)):
        return Const(evaluate(expr))
    operands = tuple(folded(operand) for operand in expr.operands)
    if expr.operator == "if" and isinstance(operands[0], Const) and not isinstance(operands[0].value, Unknown):
        return operands[1] if operands[0].value else operands[2]
    return Op(expr.operator, operands)
