"""Counting a grid's combinations by verdict without walking through them.

Along rising lines a verdict never falls. A block whose lowest and highest corners have one verdict has it throughout;
any other block is cut in two along its longest side, the largest blocks first, so that what is left when the budget
of evaluations runs out is small. It is cut where memory sees a difference: of 2,000 accumulations it sees one and more.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache
from math import prod

from preflight.space.grid import AT_RISK, EXCEEDS, FITS, Grid, Index
from preflight.vocabulary.verdicts import Counts

Halves = tuple[tuple[Index, Index], tuple[Index, Index]]


def count(grid: Grid, cells: Iterable[Index], budget: int) -> dict[Index, Counts]:
    """Verdicts per cell. `budget` bounds the grid's evaluations; what is then undecided counts as unknown."""
    cells = list(cells)
    halves = _cutter(grid, cells[0]) if cells else _halves
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
        for half in halves(low, high):
            heapq.heappush(queue, (-_volume(*half), cell, *half))
    return {cell: _counts(found[cell], cell not in inexact) for cell in cells}


def _volume(low: Index, high: Index) -> int:
    return prod(h - s + 1 for s, h in zip(low, high, strict=True))


def _cutter(grid: Grid, cell: Index) -> Callable[[Index, Index], Halves]:
    """Cuts blocks where memory sees a difference along a line, judged with the others at their lowest. Where that
    misleads (what a line does may hang on another) blocks are cut in a worse place, and counted all the same."""

    @cache
    def seen(at: int, index: int) -> tuple[str, ...]:
        return grid.key(cell, tuple(index if line == at else 0 for line in range(len(grid.shape))))

    def last(at: int, low: int, high: int) -> int:
        """The last index up to `high` that looks like `low`."""
        alike = seen(at, low)
        return low + bisect_left(range(low + 1, high + 1), True, key=lambda index: seen(at, index) != alike)

    @cache
    def cut(at: int, low: int, high: int) -> int | None:
        """The last index of the lower part, close to the middle; None: all look alike."""
        if seen(at, low) == seen(at, high):
            return None
        end = last(at, (low + high) // 2, high)
        return end if end < high else last(at, low, high - 1)

    def halves(low: Index, high: Index) -> Halves:
        cuts = [cut(at, a, b) for at, (a, b) in enumerate(zip(low, high, strict=True))]
        sides = [0 if where is None else b - a for a, b, where in zip(low, high, cuts, strict=True)]
        at = sides.index(max(sides))
        where = cuts[at]
        return _halves(low, high) if where is None else _parts(low, high, at, where)

    return halves


def _halves(low: Index, high: Index) -> Halves:
    """A block cut in two along its longest side."""
    sides = [b - a for a, b in zip(low, high, strict=True)]
    at = sides.index(max(sides))
    return _parts(low, high, at, (low[at] + high[at]) // 2)


def _parts(low: Index, high: Index, at: int, where: int) -> Halves:
    left = (*high[:at], where, *high[at + 1 :])
    right = (*low[:at], where + 1, *low[at + 1 :])
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
