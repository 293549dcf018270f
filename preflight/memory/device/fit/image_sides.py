"""The tape of a convolutional network as a function of its batch and of the side of its images.

Such a network halves its maps five times. At a side that 32 divides every map's side is an exact fraction of it, so the
size of every storage is a + b (c + d i + e i^2): maps are b i^2, maps that are padded on one side alone bring b i, and
what is made of weights has neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from preflight.memory.device.fit.make import fold, verify
from preflight.memory.device.fit.polynomial import solved_rows
from preflight.memory.device.law.made import MadeLaw, Runner, TraceRequest
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.sizes import Monomial, Size, number

GRAIN = 32
"""Pixels that a side is a multiple of."""
ANY = f"image={GRAIN}n"
"""The text in a law's key instead of one side."""
SMALLEST, LARGEST = 64, 1024
"""Sides that a law is filed under; it is fitted from the smallest on."""
FITTED = ((2, 64), (3, 64), (2, 160), (2, 224))
"""(batch, side) that determine the coefficients."""
CHECKED = (5, 288)
_MONOMIALS: tuple[Monomial, ...] = ((), (("b", 1),), (("b", 1), ("i", 1)), (("b", 1), ("i", 2)))


class SideReader:
    """Solves for the four coefficients of a size from its bytes at FITTED."""

    def __init__(self) -> None:
        self._inverse = solved_rows(
            [[Fraction(1), Fraction(b), Fraction(b * i), Fraction(b * i * i)] for b, i in FITTED]
        )

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Nothing to learn: every size is solved for by itself."""

    def size(self, values: tuple[int, ...]) -> Size | None:
        solved = [sum((a * v for a, v in zip(row, values, strict=True)), Fraction(0)) for row in self._inverse]
        return tuple((number(c), m) for c, m in zip(solved, _MONOMIALS, strict=True) if c)


def make_at_sides(model: Mapping[str, Any], kind: str, setup: Setup, run: Runner) -> MadeLaw:
    """The law of an import target at any batch and at any side that GRAIN divides.

    Raises CannotMake where sizes are no such polynomials, or what `run` raises.
    """
    requests = [
        TraceRequest({**model, "image_size": i}, setup, kind, (b, i) == CHECKED).at({"b": b, "i": i})
        for b, i in (*FITTED, CHECKED)
    ]
    *fitted, last = run(requests)
    made = fold({}, SideReader(), fitted)
    verify(made, last, {"b": CHECKED[0], "i": CHECKED[1]})
    return made


def sides() -> range:
    """Every side that a law of this kind is filed under."""
    return range(SMALLEST, LARGEST + 1, GRAIN)
