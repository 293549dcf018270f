"""Sizes of one model's events as sums of a few terms, read from few traces: for models whose traces take long.

`polynomial` solves for every coefficient and needs a grid of traces for it. Nearly every size is one monomial, and how
it grows between two points tells which: the points below have no two monomials that grow alike. Sums of two (image and
text tokens side by side) take a third point where two leave a doubt. A law is proved by a trace that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

from preflight.memory.device.fit.make import CannotMake, fold, verify
from preflight.memory.device.law.made import CHECK_LAYERS, PROBE_LAYERS, Depth, MadeLaw, Runner, TraceRequest
from preflight.memory.device.law.sizes import Monomial, Size, evaluate, number
from preflight.memory.device.law.workload import Resolved

DEGREES: Mapping[str, tuple[int, ...]] = {
    "b": (0, 1),
    "u": (0, 2),
    "r": (0, 1),
    "w": (0, 1, 2),
    "t": (0, 1),
    "V": (0, 1),
    "k": (0, 2, 4),
    "o": (0, 1),
}
"""Powers that a size may have of each length: an image's side (`u`, in 64 pixels; `k`, in 32) comes squared, frames of
sound (`w`) too where each attends to each, and so do positions of an image (`k`); `o` counts boxes."""
POINTS: Sequence[Mapping[str, int]] = (
    {"b": 2, "u": 8, "r": 4, "w": 32, "t": 9, "V": 41, "k": 4, "o": 3},
    {"b": 3, "u": 16, "r": 20, "w": 64, "t": 22, "V": 131, "k": 7, "o": 11},
    {"b": 7, "u": 24, "r": 12, "w": 160, "t": 29, "V": 59, "k": 6, "o": 5},
    {"b": 5, "u": 32, "r": 28, "w": 96, "t": 25, "V": 89, "k": 5, "o": 8},
)
"""Sides and lengths are multiples of the numbers that kernels round to: a rounded size is then at most 31 too small."""
FEWEST = 2


class SparseReader:
    """Reads byte counts as one term or two; whole coefficients first, few terms first."""

    def __init__(self, lengths: Sequence[str], at: Sequence[Mapping[str, int]]) -> None:
        self._lengths, self._at = lengths, at
        powers = list(product(*(DEGREES[name] for name in lengths)))
        self._monomials: list[Monomial] = [
            tuple(sorted((name, e) for name, e in zip(lengths, one, strict=True) if e)) for one in powers
        ]
        self._values = {m: tuple(evaluate(((1, m),), point) for point in at) for m in self._monomials}
        self._known: dict[tuple[int, ...], Size | None] = {}

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Nothing to learn: every size is read by itself."""

    def size(self, values: tuple[int, ...]) -> Size | None:
        if values not in self._known:
            self._known[values] = next(self._sizes(values), None)
        return self._known[values]

    def _sizes(self, values: tuple[int, ...]) -> Iterator[Size]:
        if not any(values):
            yield ()
        for m in self._monomials:
            found = self._values[m]
            if all(v * found[0] == values[0] * f for v, f in zip(values, found, strict=True)):
                yield ((number(Fraction(values[0], found[0])), m),)
        for first, second in combinations(self._monomials, 2):
            terms = self._pair(values, first, second)
            if terms is not None:
                yield terms
        if "u" in self._lengths and len(values) > FEWEST:
            square = self._square(values)
            if square is not None:
                yield square

    def _square(self, values: tuple[int, ...]) -> Size | None:
        """A padded image: batch x (a u^2 + b u + c)."""
        each = [Fraction(v, point.get("b", 1)) for v, point in zip(values, self._at, strict=True)]
        x = [point["u"] for point in self._at]
        slope = (each[1] - each[0]) / (x[1] - x[0])
        a = ((each[2] - each[1]) / (x[2] - x[1]) - slope) / (x[2] - x[0])
        b = slope - a * (x[0] + x[1])
        c = each[0] - a * x[0] ** 2 - b * x[0]
        if any(one.denominator != 1 or one < 0 for one in (a, b, c)):
            return None
        if any(a * u**2 + b * u + c != v for u, v in zip(x, each, strict=True)):
            return None
        batch = (("b", 1),) if "b" in self._lengths else ()
        terms = ((a, (*batch, ("u", 2))), (b, (*batch, ("u", 1))), (c, batch))
        return tuple((number(coefficient), monomial) for coefficient, monomial in terms if coefficient)

    def _pair(self, values: tuple[int, ...], first: Monomial, second: Monomial) -> Size | None:
        a, b = self._values[first], self._values[second]
        determinant = a[0] * b[1] - a[1] * b[0]
        if not determinant:
            return None
        x = Fraction(values[0] * b[1] - values[1] * b[0], determinant)
        y = Fraction(a[0] * values[1] - a[1] * values[0], determinant)
        if x.denominator != 1 or y.denominator != 1 or x <= 0 or not y:
            return None
        if any(x * p + y * q != v for p, q, v in zip(a, b, values, strict=True)):
            return None
        return ((int(x), first), (int(y), second))


def make_of(resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
    """The law of a model: in the way of its own kind, else of as few traces as can be, since they take long. Raises
    CannotMake, or what `run` raises."""
    workload = resolved.workload
    made = workload.make(resolved, kind, run)
    if made is not None:
        return made
    lengths = tuple(name for name in resolved.lengths if name in workload.free)
    depths = {one.name for one in workload.depths}
    fixed = {k: v for k, v in resolved.all_dims.items() if k not in workload.free and k not in depths}
    return make_sparse(resolved.request(kind), lengths, run, fixed, workload.depths)


def make_sparse(
    ask: TraceRequest, lengths: Sequence[str], run: Runner, fixed: Mapping[str, int], depths: Sequence[Depth] = ()
) -> MadeLaw:
    """The tape of one model as a function of `lengths` and of its depths. `fixed`: what else its points hold. Raises
    CannotMake, or what `run` raises."""
    at = [{**fixed, **{name: point[name] for name in lengths}} for point in POINTS]
    return fitted(ask, at, run, lambda known: SparseReader(lengths, known), depths)


def fitted(
    ask: TraceRequest,
    at: Sequence[Mapping[str, int]],
    run: Runner,
    reader: Callable[[Sequence[Mapping[str, int]]], SparseReader],
    depths: Sequence[Depth] = (),
) -> MadeLaw:
    """The tape from as few of these points as do, each proved by the next one. `reader`: what reads sizes at points.
    Raises CannotMake, or what `run` raises."""
    shallow = [request(ask, point, depths, PROBE_LAYERS) for point in at]
    traces = run(shallow[:FEWEST])
    for known in range(FEWEST, len(at)):
        (check,) = run([request(ask, at[known], depths, CHECK_LAYERS)])
        try:
            made = fold({one.stack: one.name for one in depths}, reader(at[:known]), traces)
            verify(made, check, {**at[known], **{one.name: CHECK_LAYERS for one in depths}})
        except CannotMake:
            if known == len(at) - 1:
                raise
            traces += run([shallow[known]]) if depths else [check]
        else:
            return made
    raise AssertionError


def request(ask: TraceRequest, point: Mapping[str, int], depths: Sequence[Depth], depth: int) -> dict[str, Any]:
    """A request of the tracer at a point, with so many layers in each stack."""
    config = {
        **ask.model["config"],
        **({"vocab_size": point["V"]} if "V" in point else {}),
        **{one.key: depth for one in depths},
    }
    return ask.at(point, config)
