"""Sweeps that a Python program creates: `wandb.sweep({...})`, or a YAML file that it loads; spaces of Ray Tune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from preflight.frameworks.wandb_space import read_space
from preflight.python.hooks.remote_functions import TUNED
from preflight.python.objects import Container, to_expr
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.values import Axis, Cause, Const, Expr, Origin, Route, Unknown, evaluate

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator
    from preflight.python.objects import Abstract


def sweep_of(evaluator: Evaluator) -> tuple[tuple[Axis, ...], dict[str, Expr], list[Problem]]:
    """Axes, constants by name, and problems that W&B would refuse."""
    for record in evaluator.calls:
        config = record.object("sweep", 0) if record.name == "wandb.sweep" else None
        parameters = config.items.get("parameters") if isinstance(config, Container) else None
        if isinstance(config, Container) and isinstance(parameters, Container):
            return _space(parameters, config.items.get("method"), record.origin)
    return tuple((evaluator.remembered.known(TUNED) or {}).values()), {}, []


def _space(
    parameters: Container, method: Abstract | None, call: Origin
) -> tuple[tuple[Axis, ...], dict[str, Expr], list[Problem]]:
    plain = _plain(parameters)
    if not isinstance(plain, Mapping):
        return (), {}, []
    grid = isinstance(method, Const) and method.value == "grid"
    space = read_space(plain, lambda route: _place(parameters, route), (), grid)
    problems = [
        Problem("invalid-config", complaint.message, _place(parameters, complaint.route) or call, complaint.severity)
        for complaint in space.complaints
    ]
    return space.axes, dict(space.constants), problems


def _plain(value: Abstract, _depth: int = 0) -> object:
    """An abstract container as plain data; unknown parts stay unknown."""
    if isinstance(value, Container) and _depth < 20:
        if value.is_sequence:
            return [_plain(item, _depth + 1) for item in value.items.values()]
        return {str(key): _plain(item, _depth + 1) for key, item in value.items.items()}
    found = evaluate(to_expr(value))
    return Unknown("the program computes it", Cause.not_read) if isinstance(found, Unknown) else found


def _place(container: Abstract, route: Route) -> Origin | None:
    """The place of the value at a route of a container."""
    node: Abstract = container
    for key in route:
        if not isinstance(node, Container):
            return None
        inner = node.items.get(key)
        if inner is None:
            return node.origin
        node = inner
    if isinstance(node, Container):
        return node.origin
    return to_expr(node).origin
