"""Parameters of a W&B sweep -> axes and constants, from a file or from a program.

Sweep files and `wandb.sweep({...})` in Python share it: it works on plain values, and asks `origin_of(route)` where
they are written. What W&B would reject is read as far as it makes sense and reported as a `Complaint`.

Distributions and their defaults: `sweeps/config/schema.json` and `sweeps/params.py` of the PyPI package sweeps 0.3.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from preflight.vocabulary.reading import ProblemSeverity
from preflight.vocabulary.values import (
    Axis,
    Cause,
    Choices,
    Const,
    Domain,
    Expr,
    Op,
    Origin,
    Range,
    Ref,
    Route,
    Unbounded,
    Unknown,
    Value,
)

OriginOf = Callable[[Route], "Origin | None"]

UNBOUNDED = frozenset({"normal", "q_normal", "log_normal", "q_log_normal"})
EXPONENTS = frozenset({"log_uniform", "q_log_uniform", "inv_log_uniform"})
"""Their `min` and `max` are natural-log exponents; `..._values` takes the values themselves."""
BOUNDED = EXPONENTS | {
    "uniform", "int_uniform", "q_uniform", "log_uniform_values", "q_log_uniform_values", "inv_log_uniform_values",
}  # fmt: skip
BETA = frozenset({"beta", "q_beta"})
ENUMERABLE = frozenset({"constant", "categorical", "categorical_w_probabilities", "int_uniform", "q_uniform", "nested"})
"""What `method: grid` can walk through."""
METHODS = ("bayes", "random", "grid", "custom")


class Complaint(Struct, frozen=True):
    """A part of a sweep that W&B rejects or misreads; `route` leads to it."""

    route: Route
    message: str
    severity: ProblemSeverity = "error"


class SweepSpace(Struct, frozen=True):
    """The search space of a sweep's parameters.

    `constants` and `axes` have dotted names (nested parameters flattened); `arguments` are the top-level parameters in
    the order written, as the program is given them: a nested one is one dictionary.
    """

    axes: tuple[Axis, ...] = ()
    constants: tuple[tuple[str, Const], ...] = ()
    arguments: tuple[tuple[str, Expr], ...] = ()
    complaints: tuple[Complaint, ...] = ()

    @property
    def settings(self) -> dict[str, Expr]:
        """Every name that the program can read: top-level parameters, and nested ones by their dotted names."""
        flat: dict[str, Expr] = {axis.name: Ref(axis.name, axis.origin) for axis in self.axes}
        return dict(self.arguments) | flat | dict(self.constants)


def read_space(
    parameters: Mapping[str, object], origin_of: OriginOf, route: Route = (), grid: bool = False
) -> SweepSpace:
    """Axes and constants of a `parameters` mapping that stands at `route` of its document."""
    axes: list[Axis] = []
    constants: list[tuple[str, Const]] = []
    complaints: list[Complaint] = []
    arguments = tuple(
        (str(name), _parameter(str(name), body, (*route, name), origin_of, grid, axes, constants, complaints))
        for name, body in parameters.items()
    )
    return SweepSpace(tuple(axes), tuple(constants), arguments, tuple(complaints))


def kind_of(body: object) -> str:
    """The distribution of a parameter: as it is stated, or as its keys imply ("" if no distribution has them)."""
    if not isinstance(body, Mapping):
        return ""
    stated = body.get("distribution")
    if isinstance(stated, str) and stated:
        return stated
    if "parameters" in body:
        return "nested"
    if "values" in body:
        return "categorical_w_probabilities" if "probabilities" in body else "categorical"
    if "value" in body:
        return "constant"
    if "min" in body or "max" in body:
        low, high = body.get("min"), body.get("max")
        whole = isinstance(low, int) and isinstance(high, int)
        return "int_uniform" if whole else "uniform"
    return ""


def freeze(value: object) -> Value:
    """A parsed value as a setting's value: lists become tuples."""
    if isinstance(value, Mapping):
        return {str(key): freeze(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(freeze(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str, Unknown)):
        return value
    return Unknown(f"a {type(value).__name__} is not a value that a sweep can pass on", Cause.invalid)


def _parameter(
    name: str,
    body: object,
    route: Route,
    origin_of: OriginOf,
    grid: bool,
    axes: list[Axis],
    constants: list[tuple[str, Const]],
    complaints: list[Complaint],
) -> Expr:
    """Reads one parameter into the lists; returns the expression of its value."""
    kind = kind_of(body)
    if kind == "nested" and isinstance(body, Mapping) and isinstance(body.get("parameters"), Mapping):
        parts: list[Expr] = []
        for inner, value in body["parameters"].items():
            at = (*route, "parameters", inner)
            key = f"{name}.{inner}"
            parts += [Const(str(inner)), _parameter(key, value, at, origin_of, grid, axes, constants, complaints)]
        return Op("dict", tuple(parts), origin_of(route))
    found = _domain_or_constant(body, kind, route, origin_of)
    complaints += _complaints(body, kind, route, grid)
    if isinstance(found, Const):
        constants.append((name, found))
        return found
    axes.append(Axis(name, found, origin_of(route)))
    return Ref(name, origin_of(route))


def _domain_or_constant(body: object, kind: str, route: Route, origin_of: OriginOf) -> Domain | Const:
    if isinstance(body, Unknown):
        return Const(body, origin_of(route))
    if not isinstance(body, Mapping):  # `bs: 16` and `bs: [8, 16]`: W&B refuses them, what is meant is clear
        if isinstance(body, (list, tuple)) and body:
            return _choices(body, route, origin_of)
        return _constant(body, route, origin_of)
    if "values" in body and isinstance(body["values"], (list, tuple)) and body["values"]:
        return _choices(body["values"], (*route, "values"), origin_of)
    if "value" in body:
        return _constant(body["value"], (*route, "value"), origin_of)
    if kind in UNBOUNDED:
        return Unbounded(kind)
    if kind in BETA:
        return Range(0.0, 1.0, None, integer=False)  # the support of a beta distribution, whatever a and b
    low, high = number(body.get("min")), number(body.get("max"))
    if kind in BOUNDED and low is not None and high is not None:
        return _range(kind, low, high, number(body.get("q")), route, origin_of)
    return Const(Unknown("the sweep gives it no values that W&B accepts", Cause.invalid), origin_of(route))


def _constant(value: object, route: Route, origin_of: OriginOf) -> Const:
    return Const(freeze(value), origin_of(route))


def _choices(values: Sequence[object], route: Route, origin_of: OriginOf) -> Choices | Const:
    """Listed values. A single value is a constant, and an edit would change its list item."""
    places = tuple(origin_of((*route, index)) for index in range(len(values)))
    frozen = tuple(freeze(value) for value in values)
    return Const(frozen[0], places[0]) if len(frozen) == 1 else Choices(frozen, places)


def number(value: object) -> float | None:
    """A bound as a number. A text such as "1e-5" (as YAML 1.1 reads it) counts as its number."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _range(kind: str, low: float, high: float, q: float | None, route: Route, origin_of: OriginOf) -> Domain:
    low_at, high_at = origin_of((*route, "min")), origin_of((*route, "max"))
    log = "log" in kind
    if kind in EXPONENTS:
        low, high = (-high, -low) if kind.startswith("inv_") else (low, high)
        if high > math.log(2**63):  # e^max: no Job field is as large, and exp overflows
            return Unbounded(kind)
        low, high = math.exp(low), math.exp(high)
        low_at, high_at = _computed(low_at), _computed(high_at)
        if kind.startswith("inv_"):
            low_at, high_at = high_at, low_at
    if kind == "int_uniform":
        return Range(low, high, 1, True, False, low_at, high_at)
    if kind.startswith("q_"):
        step = 1.0 if q is None or q <= 0 else q  # W&B's default q; it gives round(x / q) * q
        whole = float(step).is_integer()
        step = int(step) if whole else step
        return Range(round(low / step) * step, round(high / step) * step, step, whole, log, low_at, high_at)
    return Range(low, high, None, False, log, low_at, high_at)


def _computed(origin: Origin | None) -> Origin | None:
    """The same place, where the text is not the value itself (an exponent)."""
    return None if origin is None else Origin(origin.path, origin.span, origin.route, origin.via, editable=False)


def _complaints(body: object, kind: str, route: Route, grid: bool) -> Iterator[Complaint]:
    """Errors that W&B's schema does not find: the order of bounds, probabilities, grids over continuous values."""
    if not isinstance(body, Mapping):
        return
    name = route[-1]
    low, high = number(body.get("min")), number(body.get("max"))
    if low is not None and high is not None and low >= high:
        yield Complaint((*route, "min"), f"{name}: min {low:g} is not less than max {high:g}")
    if grid and kind and kind not in ENUMERABLE:
        yield Complaint(route, f"{name}: a grid search cannot walk through {kind}; list `values`, or give `q_uniform`")
    if kind in EXPONENTS and low is not None and high is not None and low < high and _are_values(low, high):
        yield from _exponents(kind, low, high, route)
    values, chances = body.get("values"), body.get("probabilities")
    if isinstance(values, (list, tuple)) and isinstance(chances, (list, tuple)):
        if len(values) != len(chances):
            said = f"{name}: {len(values)} values with {len(chances)} probabilities"
            yield Complaint((*route, "probabilities"), said)
        elif all(number(p) is not None for p in chances):
            total = sum(number(p) or 0.0 for p in chances)
            if not math.isclose(total, 1.0, rel_tol=1e-5, abs_tol=1e-8):  # numpy.isclose, as W&B asks
                yield Complaint((*route, "probabilities"), f"{name}: the probabilities sum to {total:g}, not to 1")


def _are_values(low: float, high: float) -> bool:
    """Whether the bounds of a distribution of exponents are surely meant as values.

    Exponents from 1e-4 to 0.1 search 1.0001 to 1.1, where a logarithm means nothing; e^44 is larger than 2^63, and no
    setting is. Bounds of another sign or size may be exponents on purpose.
    """
    return (low > 0 and high <= 1 and high >= 10 * low) or (low > 0 and high > math.log(2**63))


def _exponents(kind: str, low: float, high: float, route: Route) -> Iterator[Complaint]:
    first, last = (-high, -low) if kind.startswith("inv_") else (low, high)
    shown = " to ".join(f"{math.exp(x):.3g}" if x < 700 else "more than 1e304" for x in (first, last))
    yield Complaint(
        (*route, "distribution"),
        f"{route[-1]}: {kind} takes natural-log exponents, so this searches {shown}; {kind}_values takes the values",
        "warning",
    )
