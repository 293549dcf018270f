"""Formulas that prune trials before they train: one that prunes all of them is an error of the study."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.values import Axis, Choices, Const, Domain, Expr, Op, Range, Value, evaluate, names

MOST = 4096
"""Combinations of the parameters that a formula depends on."""
_COMPARED = (">", ">=", "<", "<=")


def prunes_all(calls: Sequence[CallRecord], axes: Mapping[str, Axis], tree: ast.Module) -> Iterator[Problem]:
    """The `raise TrialPruned` that every trial of a study comes to, with the figures of its comparison."""
    raised = {node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    raised -= {inner for one in handlers for inner in ast.walk(one) if isinstance(inner, ast.expr)}
    for record in calls:
        if record.name.rpartition(".")[2] != "TrialPruned" or record.node not in raised:
            continue
        if not record.reached or record.in_loop or record.in_try:
            continue
        used = sorted({name for condition in record.conditions for name in names(condition)})
        listed = [_values(axes[name].domain) if name in axes else None for name in used]
        conditions = [one for one in record.conditions if not isinstance(evaluate(one), bool)]
        if not conditions or record.conditions_again or any(one is None for one in listed):
            continue
        values = [one for one in listed if one is not None]
        number = 1
        for one in values:
            number *= len(one)
        if not 0 < number <= MOST:
            continue
        at = [dict(zip(used, one, strict=True)) for one in product(*values)]
        if all(evaluate(one, _env(point)) is True for point in at for one in record.conditions):
            yield Problem("invalid-config", f"every trial is pruned before it trains{_figures(conditions, at)}",
                          record.origin)  # fmt: skip


def _env(point: Mapping[str, Value]) -> dict[str, Expr]:
    return {name: Const(value) for name, value in point.items()}


def _values(domain: Domain) -> tuple[Value, ...] | None:
    if isinstance(domain, Choices):
        return domain.values
    size = domain.size() if isinstance(domain, Range) else None
    if not isinstance(domain, Range) or size is None or size > MOST or not domain.integer:
        return None
    step = int(domain.step or 1)
    return tuple(range(int(domain.low), int(domain.high) + 1, step))


def _figures(conditions: Sequence[Expr], at: Sequence[Mapping[str, Value]]) -> str:
    """The figure of the trial that comes nearest to the limit, and the limit."""
    for one in conditions:
        if not isinstance(one, Op) or one.operator not in _COMPARED or len(one.operands) != 2:
            continue
        sides = [(evaluate(one.operands[0], _env(point)), evaluate(one.operands[1], _env(point))) for point in at]
        found = [
            (left, right) for left, right in sides if isinstance(left, (int, float)) and isinstance(right, (int, float))
        ]
        if len(found) == len(at):
            left, right = min(found, key=lambda pair: abs(pair[0] - pair[1]))
            return f": its formula gives {left:,.6g} for the nearest, and the limit is {right:,.6g}"
    return ""
