"""The tape of a model whose loss compares all of a batch with all of it, as a function of the batch.

The costs of matching are a table of all predictions of a batch and all its objects, the similarities of texts one of
all texts: sizes are a + b n + c n^2 of the batch n. Three traces give the coefficients, a fourth proves them, event by
event. Texts have a length too, and encoders a depth: their sizes are read as `few_traces` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product

from msgspec.structs import replace

from preflight.memory.device.fit.few_traces import SparseReader, fitted
from preflight.memory.device.fit.make import fold, verify
from preflight.memory.device.fit.polynomial import solved_rows
from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.sizes import Monomial, Size, evaluate, number
from preflight.memory.device.law.workload import Resolved

FITTED, CHECKED = (2, 3, 5), 4
"""Batches of the traces."""
_MONOMIALS: tuple[Monomial, ...] = ((), (("b", 1),), (("b", 2),))
TEXT_DEGREES: Mapping[str, tuple[int, ...]] = {"b": (0, 1, 2), "s": (0, 1, 2), "V": (0, 1)}
TEXT_POINTS: Sequence[Mapping[str, int]] = (
    {"b": 2, "s": 32, "V": 41},
    {"b": 3, "s": 64, "V": 131},
    {"b": 7, "s": 160, "V": 59},
    {"b": 5, "s": 96, "V": 89},
    {"b": 11, "s": 128, "V": 67},
)


class BatchReader:
    """Solves for the three coefficients of a size from its bytes at FITTED."""

    def __init__(self) -> None:
        self._inverse = solved_rows([[Fraction(b) ** e for e in range(len(_MONOMIALS))] for b in FITTED])

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Nothing to learn: every size is solved for by itself."""

    def size(self, values: tuple[int, ...]) -> Size | None:
        solved = [sum((a * v for a, v in zip(row, values, strict=True)), Fraction(0)) for row in self._inverse]
        return tuple((number(c), m) for c, m in zip(solved, _MONOMIALS, strict=True) if c)


def make(resolved: Resolved, kind: str, run: Runner, warm_up: bool) -> MadeLaw:
    """The law of a model that compares predictions with objects, at any batch. `warm_up`: it keeps something of its
    first step. Raises CannotMake, or what `run` raises."""
    asked = replace(resolved.request(kind), warm_up=warm_up)
    fixed = {name: value for name, value in resolved.all_dims.items() if name != "b"}
    traces = []
    for batch in (*FITTED, CHECKED):  # one at a time: each takes seconds, and the time limit is a request's
        traces += run([asked.at({**fixed, "b": batch})])
    *known, last = traces
    made = fold({}, BatchReader(), known)
    verify(made, last, {**fixed, "b": CHECKED})
    return made


class TextReader(SparseReader):
    """Reads sizes with the square of the batch in them as well."""

    def __init__(self, lengths: Sequence[str], at: Sequence[Mapping[str, int]]) -> None:
        self._lengths, self._at = lengths, at
        powers = product(*(TEXT_DEGREES[name] for name in lengths))
        self._monomials = [
            tuple(sorted((name, e) for name, e in zip(lengths, one, strict=True) if e)) for one in powers
        ]
        self._values = {m: tuple(evaluate(((1, m),), point) for point in at) for m in self._monomials}
        self._known: dict[tuple[int, ...], Size | None] = {}

    def _pair(self, values: tuple[int, ...], first: Monomial, second: Monomial) -> Size | None:
        """A cached loss has the rest of a batch without two pieces: the constant may be the negative one."""
        return super()._pair(values, first, second) or super()._pair(values, second, first)


def make_texts(resolved: Resolved, kind: str, run: Runner, mini: int | None) -> MadeLaw:
    """The law of an embedding step at any batch, length, vocabulary and depth. `mini`: texts that run at a time under a
    cached loss. Raises CannotMake, or what `run` raises."""
    lengths = [name for name in TEXT_DEGREES if name in resolved.all_dims]
    at = [{name: point[name] for name in lengths} for point in TEXT_POINTS]
    if mini:  # a cached loss has as many events at every batch of more than two pieces
        at = [{**point, "b": mini * (point["b"] + 1)} for point in at]
    ask = resolved.request(kind)
    return fitted(ask, at, run, lambda known: TextReader(lengths, known), resolved.workload.depths)
