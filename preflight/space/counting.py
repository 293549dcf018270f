"""Counts a grid's combinations by verdict without judging each of them.

Along rising lines a verdict never improves. If the lowest and the highest corner of a block have the same verdict, the
whole block has it. Any other block is cut in two along its longest side. The largest blocks come first, so that few
combinations are left when the budget of evaluations ends. A block is cut where memory changes: of 2,000 values of
gradient accumulation, only 1 differs from all the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import prod

from msgspec import Struct

from preflight.space.grid import AT_RISK, EXCEEDS, FITS, Block, Grid, Index, cut_after, halves, volume
from preflight.space.monotone import first_true
from preflight.vocabulary.verdicts import Counts


class Counted(Struct, frozen=True):
    """Counts of each cell, and the blocks whose combinations all fit."""

    cells: Mapping[Index, Counts]
    fitting: tuple[tuple[Index, Block], ...]


def count(grid: Grid, cells: Iterable[Index], budget: int) -> Counted:
    """Counts of each cell. `budget` limits the grid's evaluations; combinations left then count as unknown."""
    cells = list(cells)
    cut = _cutter(grid, cells[0]) if cells else halves
    found: dict[Index, dict[int | None, int]] = {cell: {} for cell in cells}
    inexact: set[Index] = set()
    fitting: list[tuple[Index, Block]] = []
    zero = tuple(0 for _ in grid.shape)
    size = prod(grid.shape)
    queue: list[tuple[int, Index, Index, Index]] = [(-size, cell, zero, grid.top) for cell in cells]
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
            if bottom == FITS:
                fitting.append((cell, (low, high)))
            continue
        for half in cut(low, high):
            heapq.heappush(queue, (-volume(*half), cell, *half))
    return Counted({cell: _counts(found[cell], cell not in inexact) for cell in cells}, tuple(fitting))


def still_fitting(grid: Grid, blocks: Sequence[tuple[Index, Block]], budget: int) -> dict[Index, int]:
    """How many combinations of blocks fit in another grid of the same lines, in each cell. Which verdict the others
    have is not asked. Those that are left when the budget ends do not count."""
    cut = _cutter(grid, blocks[0][0]) if blocks else halves
    found: dict[Index, int] = {}
    queue = [(-volume(low, high), cell, low, high) for cell, (low, high) in blocks]
    heapq.heapify(queue)
    while queue and grid.evaluations < budget:
        negative, cell, low, high = heapq.heappop(queue)
        if grid.verdict(cell, high) == FITS:
            found[cell] = found.get(cell, 0) - negative
        elif low != high and grid.verdict(cell, low) == FITS:
            for half in cut(low, high):
                heapq.heappush(queue, (-volume(*half), cell, *half))
    return found


def _cutter(grid: Grid, cell: Index) -> Callable[[Index, Index], tuple[Block, Block]]:
    """A function that cuts blocks where memory changes along a line, while the other lines are at their lowest.

    The place may be worse where the effect of a line depends on another; the counts are right all the same.
    """

    @cache
    def memory_key(at: int, index: int) -> tuple[str, ...]:
        return grid.key(cell, tuple(index if line == at else 0 for line in range(len(grid.shape))))

    def last(at: int, low: int, high: int) -> int:
        """The last index up to `high` with the memory of `low`."""
        key = memory_key(at, low)
        return first_true(low + 1, high + 1, lambda index: memory_key(at, index) != key) - 1

    @cache
    def lower_end(at: int, low: int, high: int) -> int | None:
        """The last index of the lower part, close to the middle; None: memory is the same everywhere."""
        if memory_key(at, low) == memory_key(at, high):
            return None
        end = last(at, (low + high) // 2, high)
        return end if end < high else last(at, low, high - 1)

    def cut(low: Index, high: Index) -> tuple[Block, Block]:
        cuts = [lower_end(at, a, b) for at, (a, b) in enumerate(zip(low, high, strict=True))]
        sides = [0 if where is None else b - a for a, b, where in zip(low, high, cuts, strict=True)]
        at = sides.index(max(sides))
        where = cuts[at]
        return halves(low, high) if where is None else cut_after(low, high, at, where)

    return cut


def _counts(found: dict[int | None, int], exact: bool) -> Counts:
    return Counts(
        fits=found.get(FITS, 0),
        at_risk=found.get(AT_RISK, 0),
        exceeds=found.get(EXCEEDS, 0),
        unknown=found.get(None, 0),
        exact=exact,
    )


def total(counts: Iterable[Counts]) -> Counts:
    """The sum of counts; exact where all of them are."""
    every = list(counts)
    return Counts(
        fits=sum(c.fits for c in every),
        fits_if=sum(c.fits_if for c in every),
        at_risk=sum(c.at_risk for c in every),
        exceeds=sum(c.exceeds for c in every),
        unknown=sum(c.unknown for c in every),
        exact=all(c.exact for c in every),
    )
