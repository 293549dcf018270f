"""The tape of a model whose loss compares all of a batch with all of it, as a function of the batch.

The costs of matching are a table of all predictions of a batch and all its objects, the similarities of texts one of
all texts: sizes are a + b n + c n^2 of the batch n. Three traces give the coefficients, a fourth proves them, event by
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from preflight.memory.device import embeddings
from preflight.memory.device.make import Made, Runner, fold, verify
from preflight.memory.device.perception_kinds import WITH_OBJECTS
from preflight.memory.device.polynomial import solved_rows
from preflight.memory.device.sizes import Monomial, Size, number

if TYPE_CHECKING:
    from preflight.memory.device.resolve import Resolved

FITTED, CHECKED = (2, 3, 5), 4
"""Batches of the traces."""
_MONOMIALS: tuple[Monomial, ...] = ((), (("b", 1),), (("b", 2),))
FIRST_STEP = "denoised-boxes"
"""The recipe of models that keep anchors and positions of their first step (RT-DETR, D-FINE: lru_cache)."""


class BatchReader:
    """Solves for the three coefficients of a size from its bytes at `batches`."""

    def __init__(self, batches: Sequence[int]) -> None:
        self._inverse = solved_rows([[Fraction(b) ** e for e in range(len(_MONOMIALS))] for b in batches])

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None:
        """Nothing to learn: every size is solved for by itself."""

    def size(self, values: tuple[int, ...]) -> Size | None:
        solved = [sum((a * v for a, v in zip(row, values, strict=True)), Fraction(0)) for row in self._inverse]
        return tuple((number(c), m) for c, m in zip(solved, _MONOMIALS, strict=True) if c)


def applies(resolved: Resolved) -> bool:
    """Whether a model's law is made here."""
    return resolved.task in WITH_OBJECTS or resolved.model.get("kind") == embeddings.KIND


def make(resolved: Resolved, kind: str, run: Runner) -> Made:
    """The law of such a model at any batch. Raises CannotMake, or what `run` raises."""
    unit = resolved.model.get("mini") or 1  # a cached loss has as many events from two of its pieces on
    batches, checked = [unit * one for one in FITTED], unit * CHECKED
    fixed = {name: value for name, value in resolved.all_dims.items() if name not in ("b", "L")}
    warm_up = resolved.model.get("recipe") == FIRST_STEP
    traces = []
    for batch in (*batches, checked):  # one at a time: each takes seconds, and the time limit is a request's
        traces += run(
            [{"model": resolved.model, "setup": resolved.setup, "point": {**fixed, "b": batch}, "kind": kind,
              "warm_up": warm_up}]
        )  # fmt: skip
    *fitted, last = traces
    made = fold({}, BatchReader(batches), fitted)
    verify(made, last, {**fixed, "b": checked})
    return made
