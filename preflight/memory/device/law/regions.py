"""Which moment of a law is the largest where: its rows over a grid of batch and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.memory.device.law.law import Law, Row, rows
from preflight.memory.device.law.sizes import with_derived

BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Regions:
    """`ruling`: the rows that are the largest somewhere; `grid[batch][length]`: which of them it is there."""

    ruling: tuple[Row, ...]
    others: int
    grid: Mapping[int, Mapping[int, int]]


def regions(law: Law, dims: Mapping[str, int], length: str, lengths: Sequence[int],
            batches: Sequence[int] = BATCHES) -> Regions:  # fmt: skip
    """Rows of a law by where they rule. `dims`: a model's dimensions; `length`: the one that varies beside b."""
    every = rows(law)
    names = {name for row in every for _, monomial, _ in row.terms for name, _ in monomial}
    found: dict[int, int] = {}
    grid: dict[int, dict[int, int]] = {}
    for batch in batches:
        for size in lengths:
            full = with_derived({**dims, "b": batch, length: size}, names)
            best = max(range(len(every)), key=lambda n: every[n].bytes(full))
            grid.setdefault(batch, {})[size] = found.setdefault(best, len(found))
    return Regions(tuple(every[n] for n in found), len(every) - len(found), grid)
