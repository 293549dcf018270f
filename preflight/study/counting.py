"""Counting a grid's combinations by verdict without walking through them.

Along rising lines a verdict never falls. A block whose lowest and highest corners have one verdict has it throughout;
any other block is cut in two along its longest side, the largest blocks first, so that what is left when the budget
of evaluations runs out is small.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import prod

from preflight.study.grid import AT_RISK, EXCEEDS, FITS, Grid, Index
from preflight.study.verdicts import Counts


def count(grid: Grid, cells: Iterable[Index], budget: int) -> dict[Index, Counts]:
    """Verdicts per cell. `budget` bounds the grid's evaluations; what is then undecided counts as unknown."""
    cells = list(cells)
    found: dict[Index, dict[int | None, int]] = {cell: {} for cell in cells}
    inexact: set[Index] = set()
    zero = tuple(0 for _ in grid.shape)
    volume = prod(grid.shape)
    queue: list[tuple[int, Index, Index, Index]] = [(-volume, cell, zero, grid.top) for cell in cells]
    heapq.heapify(queue)
    while queue:
        negative, cell, low, high = heapq.heappop(queue)
        if grid.evaluations >= budget:
            inexact.add(cell)
            found[cell][None] = found[cell].get(None, 0) - negative
            continue
        bottom = grid.verdict(cell, low)
        top = bottom if bottom == EXCEEDS or low == high else grid.verdict(cell, high)
        if bottom == top:
            found[cell][bottom] = found[cell].get(bottom, 0) - negative
            continue
        for half in _halves(low, high):
            heapq.heappush(queue, (-_volume(*half), cell, *half))
    return {cell: _counts(found[cell], cell not in inexact) for cell in cells}


def _volume(low: Index, high: Index) -> int:
    return prod(h - s + 1 for s, h in zip(low, high, strict=True))


def _halves(low: Index, high: Index) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
    """A block cut in two along its longest side."""
    sides = [h - s for s, h in zip(low, high, strict=True)]
    at = sides.index(max(sides))
    middle = (low[at] + high[at]) // 2
    left = (*high[:at], middle, *high[at + 1 :])
    right = (*low[:at], middle + 1, *low[at + 1 :])
    return (low, left), (right, high)


def _counts(found: dict[int | None, int], exact: bool) -> Counts:
    return Counts(found.get(FITS, 0), found.get(AT_RISK, 0), found.get(EXCEEDS, 0), found.get(None, 0), exact)


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of counts; exact where all of them are."""
    every = list(counts)
    return Counts(
        sum(c.fits for c in every),
        sum(c.at_risk for c in every),
        sum(c.exceeds for c in every),
        sum(c.unknown for c in every),
        all(c.exact for c in every),
    )
