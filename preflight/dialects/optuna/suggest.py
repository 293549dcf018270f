"""`trial.suggest_*` and distributions as axes of a search space."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Container,
    External,
    FunctionValue,
    Instance,
    Key,
    to_expr,
)
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.values import (
    Axis,
    Cause,
    Choices,
    Const,
    Domain,
    Expr,
    Origin,
    Range,
    Ref,
    Unbounded,
    Value,
    evaluate,
    names,
    unknown,
)

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook

TRIAL = "optuna.trial.Trial"


class SuggestedSpace(Struct):
    """The axes that the interpretation of an objective found."""

    axes: dict[str, Axis] = field(default_factory=dict)
    optimize: list[CallRecord] = field(default_factory=list)
    reached: bool = False

    def add(self, axis: Axis, reached: bool) -> None:
        """Adds an axis. A name that is suggested in two branches gets both domains.

        Suggestions of functions that are never called count only if there are no others.
        """
        if self.reached and not reached:
            return
        self.reached = reached
        known = self.axes.get(axis.name)
        self.axes[axis.name] = axis if known is None else replace(known, domain=hull(known.domain, axis.domain))


def hull(one: Domain, other: Domain) -> Domain:
    """The smallest domain that contains both domains."""
    if one == other:
        return one
    if isinstance(one, Choices) and isinstance(other, Choices):
        both = dict(zip(map(repr, one.values), zip(one.values, _places(one), strict=True), strict=True))
        for value, place in zip(other.values, _places(other), strict=True):
            both.setdefault(repr(value), (value, place))
        return Choices(tuple(v for v, _ in both.values()), tuple(o for _, o in both.values()))
    if isinstance(one, Range) and isinstance(other, Range):
        low, high = (one if one.low <= other.low else other), (one if one.high >= other.high else other)
        step = one.step if one.step == other.step else None if None in (one.step, other.step) else 1
        return Range(low.low, high.high, step, one.integer and other.integer, one.log, low.low_origin, high.high_origin)
    return Unbounded("different kinds of values under one name")


def _places(choices: Choices) -> tuple[Origin | None, ...]:
    return choices.origins or (None,) * len(choices.values)


# --- suggest_* --------------------------------------------------------------------------------------------------------


def _name(record: CallRecord, ev: Evaluator) -> str | None:
    expr = record.argument("name", 0)
    value = ev.value_of(expr) if expr is not None else None
    if isinstance(value, str):
        return value
    if expr is None or not isinstance(record.node, ast.Call):
        return None
    text = record.node.args[0] if record.node.args else None  # f"units_{i}" in a loop of unknown length
    return ast.unparse(text).lstrip("f").strip("\"'") if text is not None else None


def _bound(ev: Evaluator, expr: Expr | None, outermost: Callable[[list[float]], float]) -> float | int | None:
    """The value of a bound. A bound that depends on other axes is evaluated at the ends of their domains."""
    found = _number(ev, expr)
    if found is not None or expr is None:
        return found
    axes = [space_of(ev).axes[name] for name in dict.fromkeys(names(expr)) if name in space_of(ev).axes]
    ends = [_ends(axis) for axis in axes]
    if not ends or len(ends) > 3 or any(not end for end in ends):
        return None
    values: list[float] = []
    for corner in product(*ends):
        env = {axis.name: Const(value) for axis, value in zip(axes, corner, strict=True)}
        value = evaluate(expr, {**ev.lookup_environment(), **env})
        if not _is_finite(value):
            return None
        values.append(value)
    return outermost(values)


def _ends(axis: Axis) -> tuple[Value, ...]:
    domain = axis.domain
    if isinstance(domain, Range):
        return (int(domain.low), int(domain.high)) if domain.integer else (domain.low, domain.high)
    return domain.values if isinstance(domain, Choices) and len(domain.values) <= 32 else ()


def _number(ev: Evaluator, expr: Expr | None) -> float | int | None:
    value = ev.value_of(expr) if expr is not None else None
    return value if _is_finite(value) else None


def _is_finite(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number for a domain: Optuna accepts neither infinity nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _range(
    record: CallRecord,
    ev: Evaluator,
    low: Expr | None,
    high: Expr | None,
    step: Expr | None,
    log: Expr | None,
    integer: bool,
) -> Domain:
    bottom, top = _bound(ev, low, min), _bound(ev, high, max)
    if bottom is None or top is None:
        return Unbounded("bounds that are not known")
    width = _number(ev, step)
    if integer and width is None:
        width = 1
    is_log = bool(log is not None and ev.value_of(log) is True)
    if width is not None and width <= 0:
        width = 1 if integer else None
    places = [bound.origin if bound is not None else None for bound in (low, high)]
    return Range(bottom, top, width, integer, is_log, places[0], places[1])


def _suggest(record: CallRecord, ev: Evaluator, domain: Domain) -> Abstract | None:
    name = _name(record, ev)
    if name is None:
        return None
    space_of(ev).add(Axis(name, domain, record.origin), record.reached)
    holder = record.receiver_object
    params = holder.attributes.get("params") if isinstance(holder, Instance) else None
    if isinstance(params, Container):  # `trial.params["name"]` further down
        ev.journal.write_item(params, name, Ref(name))
    return Ref(name)


def suggest_int(record: CallRecord, ev: Evaluator) -> Abstract | None:
    low, high = record.argument("low", 1), record.argument("high", 2)
    step, log = record.argument("step", 3), record.argument("log", 4)
    return _suggest(record, ev, _range(record, ev, low, high, step, log, True))


def suggest_float(record: CallRecord, ev: Evaluator) -> Abstract | None:
    low, high = record.argument("low", 1), record.argument("high", 2)
    step, log = record.argument("step"), record.argument("log")
    return _suggest(record, ev, _range(record, ev, low, high, step, log, False))


def suggest_uniform(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The deprecated suggest_uniform, suggest_loguniform and suggest_discrete_uniform (with a step q)."""
    low, high, q = record.argument("low", 1), record.argument("high", 2), record.argument("q", 3)
    log = Const(True) if record.method == "suggest_loguniform" else None
    return _suggest(record, ev, _range(record, ev, low, high, q, log, False))


def suggest_categorical(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return _suggest(record, ev, choices_of(record.object("choices", 1), ev))


def choices_of(value: Abstract | None, ev: Evaluator) -> Domain:
    """The domain of a list of choices."""
    items = ev.iterate(value) if value is not None else None
    if items is None and isinstance(value, Container) and value.superset:
        items = list(value.items.values())  # filtered by the values of other axes: all items that may stay
    if not items:
        return Unbounded("choices that are not known")
    found: list[Value] = []
    places: list[Origin | None] = []
    for item in items:
        plain, place = _choice(item, ev)
        found.append(plain)
        places.append(place)
    return Choices(tuple(found), tuple(places))


def _choice(item: Abstract, ev: Evaluator) -> tuple[Value, Origin | None]:
    if isinstance(item, (FunctionValue, ClassValue)):
        return item.name, None
    if isinstance(item, External):
        return item.name, item.origin
    expr = to_expr(item)
    return ev.value_of(expr), expr.origin


# --- ask-and-tell, with distributions ---------------------------------------------------------------------------------


def ask(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`study.ask({"x": FloatDistribution(...)})`: a trial whose parameters are axes."""
    given = record.object("fixed_distributions", 0)
    params: dict[Key, Abstract] = {}
    if isinstance(given, Container):
        for key, value in given.items.items():
            if isinstance(key, str):
                place = value.origin if isinstance(value, Instance) else None
                space_of(ev).add(Axis(key, distribution(value, ev), place), record.reached)
                params[key] = Ref(key)
    return Instance(TRIAL, attributes={"params": Container("dict", params)}, origin=record.origin)


def distribution(value: Abstract, ev: Evaluator) -> Domain:
    """The domain of an `optuna.distributions` object."""
    record = value.record if isinstance(value, Instance) else None
    if record is None:
        return Unbounded("a distribution that is not known")
    kind = record.method
    if kind == "CategoricalDistribution":
        return choices_of(record.object("choices", 0), ev)
    low, high = record.argument("low", 0), record.argument("high", 1)
    integer = kind.startswith("Int")
    step = record.argument("step", 3) or record.argument("q", 2)
    log = record.argument("log", 2) if "Uniform" not in kind else Const("Log" in kind)
    return _range(record, ev, low, high, step, log, integer)


_SPACE: CacheKind[SuggestedSpace] = CacheKind("an Optuna study's space")


def space_of(ev: Evaluator) -> SuggestedSpace:
    """The search space of this interpretation."""
    return ev.remembered.get(_SPACE, SuggestedSpace)


def trial() -> Instance:
    """The argument of an objective."""
    return Instance(
        TRIAL,
        attributes={"params": unknown_params(), "number": unknown("the number of the trial", cause=Cause.run_time)},
    )


def unknown_params() -> Container:
    return Container("dict", {}, None, {"open": True})


SUGGEST: Mapping[str, Hook] = {
    "*.suggest_int": suggest_int, "*.suggest_float": suggest_float, "*.suggest_uniform": suggest_uniform,
    "*.suggest_loguniform": suggest_uniform, "*.suggest_discrete_uniform": suggest_uniform,
    "*.suggest_categorical": suggest_categorical, "optuna.create_study.ask": ask, "optuna.load_study.ask": ask,
}  # fmt: skip
