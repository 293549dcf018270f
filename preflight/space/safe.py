"""The largest sub-space of a grid that fits: the first values of every rising line times a subset of every loose one.

A sub-space fits if its highest corner fits in each of its cells, so the search is for a corner. It is branch and bound
over blocks of corners. The upper bound of a block is the size at its highest corner times the number of cells that fit
at its lowest; the block with the largest bound is first. The result is exact if the budget of evaluations lasts, else
the best so far. The user's constraints hold everywhere in the result. Where a constraint asks for larger values of a
line, its lower end may rise.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod

from msgspec import Struct

from preflight.space.constraints import Constraint, holds, in_box, truth_direction
from preflight.space.grid import FITS, Grid, GridLine, Index, halves, volume
from preflight.space.monotone import first_true, ranges
from preflight.vocabulary.budgets import SUBSETS
from preflight.vocabulary.values import Choices, Expr, Range, Value, names
from preflight.vocabulary.verdicts import SafeBox

MAX_STARTS = 32
"""Lower ends that are tried of a line of which a constraint asks for larger values."""

STEPS = 1024
"""Points of a block's diagonal that are tried."""

Subset = tuple[tuple[int, ...], ...]
"""The kept indices of each loose line."""


class _Found(Struct, frozen=True):
    rank: tuple[float, ...]
    subset: Subset
    low: Index
    high: Index


class _Search(Struct):
    grid: Grid
    cells: Sequence[Index]
    constraints: Sequence[tuple[Expr, frozenset[str]]]
    budget: int
    low: Index
    best: _Found | None = None
    hardest: Index = ()

    @property
    def _spent(self) -> bool:
        return self.grid.evaluations >= self.budget

    def fitting(self, index: Index, among: Iterable[Index]) -> list[Index]:
        """Cells that fit at a corner, with constraints that hold from the lower end up to it."""
        return [c for c in among if self.grid.verdict(c, index) == FITS and self._allowed(c, index)]

    def any_fits(self, index: Index, among: Iterable[Index]) -> bool:
        """Whether `fitting` would find one."""
        return any(self.grid.verdict(c, index) == FITS and self._allowed(c, index) for c in among)

    def all_fit(self, index: Index, among: Sequence[Index]) -> bool:
        """Whether `fitting` would find all of them. The cell that failed last is tried first."""
        for cell in (self.hardest, *among) if self.hardest in among else among:
            if self.grid.verdict(cell, index) != FITS or not self._allowed(cell, index):
                self.hardest = cell
                return False
        return True

    def _allowed(self, cell: Index, high: Index) -> bool:
        return all(_holds_throughout(self.grid, expr, used, cell, self.low, high) for expr, used in self.constraints)

    def run(self) -> None:
        grid, serial = self.grid, 0
        start = self.fitting(self.low, self.cells)
        if not start:
            return
        queue = [(0.0, serial, self.low, grid.top, start)]
        while queue:
            negative, _, low, high, cells = heapq.heappop(queue)
            if self.best is not None and -negative < self.best.rank[0] and serial:
                return
            self._try(low, cells)
            if low == high or self._spent:
                continue
            high = self._shrunk(low, high, cells)
            if low == high:
                continue
            if self._try_highest(high, cells):
                continue
            self._climb(low, high, cells)
            for first, last in reversed(halves(low, high)):
                fitting = cells if first == low else self.fitting(first, cells)
                worth = volume(self.low, last) * len(fitting)
                if fitting and (self.best is None or worth >= self.best.rank[0]):
                    serial += 1
                    heapq.heappush(queue, (-float(worth), serial, first, last, fitting))

    def _shrunk(self, low: Index, high: Index, cells: list[Index]) -> Index:
        """The highest corner, with each line cut where no cell fits while the other lines are at their lowest."""
        ends = list(high)
        for at in range(len(ends)):

            def bad(index: int, at: int = at) -> bool:
                return self._spent or not self.any_fits((*low[:at], index, *low[at + 1 :]), cells)

            if low[at] < ends[at] and bad(ends[at]):
                ends[at] = first_true(low[at] + 1, ends[at], bad) - 1
        return tuple(ends)

    def _try_highest(self, high: Index, cells: list[Index]) -> bool:
        """Try the highest corner; True if all cells of the block fit there, so that no corner of it is better."""
        fitting = self.fitting(high, cells)
        if fitting:
            self._try(high, fitting)
        return len(fitting) == len(cells)

    def _climb(self, low: Index, high: Index, cells: list[Index]) -> None:
        """Try a corner that cannot move up: found along the diagonal first, then line by line.

        A good result early leaves many blocks out: there are many corners of the same size (batch x length).
        """
        corner = low
        for lines in (tuple(range(len(low))), *((at,) for at in range(len(low)))):

            def moved(part: int, start: Index = corner, lines: tuple[int, ...] = lines) -> Index:
                way = zip(start, high, strict=True)
                return tuple(a + (b - a) * part // STEPS if at in lines else a for at, (a, b) in enumerate(way))

            def bad(part: int, moved: Callable[[int], Index] = moved) -> bool:
                return self._spent or not self.all_fit(moved(part), cells)

            corner = moved(bisect_left(range(1, STEPS + 1), True, key=bad))
        self._try(corner, self.fitting(corner, cells))

    def _try(self, high: Index, cells: list[Index]) -> None:
        for subset in _subsets(self.grid, cells):
            kept = list(product(*subset))
            rank = (
                float(volume(self.low, high) * len(kept)),
                max(_size(self.grid, cell, self.low) for cell in kept),
                float(_length(self.grid, high)),
            )
            if self.best is None or rank > self.best.rank:
                self.best = _Found(rank, subset, self.low, high)


def largest(
    grid: Grid, cells: Sequence[Index], constraints: Sequence[Constraint], budget: int
) -> tuple[Subset, Index, Index] | None:
    """The sub-space that keeps the most combinations: subset, lowest and highest index; None if nothing fits.

    Of equal sizes, the one with the larger model (more bytes at the smallest settings) wins, then the longer length.
    `budget` limits the evaluations of the grid, with those made before.
    """
    relevant = [(in_box(one, grid.box), frozenset(names(in_box(one, grid.box)))) for one in constraints]
    relevant = [(expr, used) for expr, used in relevant if used & {axis.name for axis in grid.box.axes}]
    best: _Found | None = None
    for low in _starts(grid, [expr for expr, _ in relevant]):
        search = _Search(grid, cells, relevant, budget, low, best)
        search.run()
        best = search.best
    return None if best is None else (best.subset, best.low, best.high)


def safe_box(grid: Grid, found: tuple[Subset, Index, Index]) -> SafeBox:
    """The kept and dropped values of each axis, in the order of the file; of a range its two bounds."""
    subset, low, high = found
    keep: dict[str, tuple[Value, ...]] = {}
    dropped: dict[str, tuple[Value, ...]] = {}
    for line, indices in zip(grid.loose, subset, strict=True):
        _keep(
            line, {line.value_at(i) if not isinstance(line.axis.domain, Choices) else i for i in indices}, keep, dropped
        )
    for line, first, last in zip(grid.rising, low, high, strict=True):
        if isinstance(line.axis.domain, Choices):
            values = [line.value_at(i) for i in range(first, last + 1)]
            written = line.axis.domain.values
            _keep(line, {i for i, value in enumerate(written) if value in values}, keep, dropped)
            continue
        ends = sorted([line.value_at(first), line.value_at(last)])  # type: ignore[type-var]
        keep[line.name] = tuple(ends)
        if (first, last) != (0, line.size - 1):
            bounds = sorted([line.value_at(0), line.value_at(line.size - 1)])  # type: ignore[type-var]
            dropped[line.name] = tuple(bounds)
    size = prod(len(indices) for indices in subset) * volume(low, high)
    exact = all(line.exact for line in grid.rising)
    return SafeBox(keep, size if exact else 0, dropped)


def _keep(
    line: GridLine, kept: set[object], keep: dict[str, tuple[Value, ...]], dropped: dict[str, tuple[Value, ...]]
) -> None:
    domain = line.axis.domain
    if isinstance(domain, Choices):
        keep[line.name] = tuple(value for i, value in enumerate(domain.values) if i in kept)
        gone = tuple(value for i, value in enumerate(domain.values) if i not in kept)
        if gone:
            dropped[line.name] = gone
        return
    values = sorted(kept)  # type: ignore[type-var]
    keep[line.name] = (values[0], values[-1])  # type: ignore[assignment]


def _size(grid: Grid, cell: Index, index: Index) -> float:
    """The size of a model: the bytes of a cell at the smallest settings."""
    _, _, device, host = grid.evaluate(cell, index)
    return float(device or host or 0)


def _length(grid: Grid, high: Index) -> int:
    """The length of the sequences, as an index."""
    lengths = ("train.seq_len", "train.target_len", "train.text_len", "train.image_size")
    return sum(i for line, i in zip(grid.rising, high, strict=True) if any(f in line.axis.fields for f in lengths))


def _subsets(grid: Grid, cells: list[Index]) -> list[Subset]:
    """The largest products of subsets of the loose lines whose every cell is among `cells`, ties included."""
    if not grid.loose:
        return [()]
    good = set(cells)
    lines = [sorted({cell[at] for cell in cells}) for at in range(len(grid.loose))]
    if len(lines) == 1:
        return [(tuple(lines[0]),)]
    widest = max(range(len(lines)), key=lambda at: len(lines[at]))
    others = [at for at in range(len(lines)) if at != widest]
    if prod(2 ** len(lines[at]) for at in others) > SUBSETS:
        return [_greedy(lines, good)]
    best: list[Subset] = []
    size = 0
    for chosen in product(*(_nonempty(lines[at]) for at in others)):
        fixed = list(product(*chosen))
        line = [value for value in lines[widest] if all(_cell(others, rest, widest, value) in good for rest in fixed)]
        count = len(line) * len(fixed)
        if not line or count < size:
            continue
        subset = [tuple(line)] * len(lines)
        for at, indices in zip(others, chosen, strict=True):
            subset[at] = tuple(indices)
        best, size = ([tuple(subset)] if count > size else [*best, tuple(subset)]), count
    return best


def _nonempty(values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(values) + 1):
        yield from combinations(values, count)


def _cell(others: list[int], rest: tuple[int, ...], widest: int, value: int) -> Index:
    cell = [value] * (len(others) + 1)
    for at, index in zip(others, rest, strict=True):
        cell[at] = index
    return tuple(cell)


def _greedy(lines: list[list[int]], good: set[Index]) -> Subset:
    """Drop the value with the most cells that do not fit, until all fit."""
    lines = [list(line) for line in lines]
    while True:
        misses: dict[tuple[int, int], int] = {}
        for cell in product(*lines):
            if cell not in good:
                for at, value in enumerate(cell):
                    if len(lines[at]) > 1:
                        misses[at, value] = misses.get((at, value), 0) + 1
        if not misses:
            return tuple(tuple(line) for line in lines)
        at, value = max(misses, key=lambda key: (misses[key] * len(lines[key[0]]), key))
        lines[at].remove(value)


# --- constraints ----------------------------------------------------------------------------------------------------


def _starts(grid: Grid, constraints: Sequence[Expr]) -> Iterator[Index]:
    """Lower ends to try: zero, except on lines of which a constraint asks for larger values."""
    known = ranges(grid.box.axes)
    choices: list[list[int]] = []
    for line in grid.rising:
        asked = any(truth_direction(expr, line.name, known) == _along(line) for expr in constraints)
        step = max(1, line.size // MAX_STARTS)
        choices.append(list(range(0, line.size, step)) if asked else [0])
    yield from sorted(product(*choices), key=sum)


def _along(line: GridLine) -> int:
    """+1 where the axis's own values grow along its line, -1 where they fall."""
    first, last = line.value_at(0), line.value_at(line.size - 1)
    return 1 if isinstance(first, (int, float)) and isinstance(last, (int, float)) and last >= first else -1


def _holds_throughout(grid: Grid, expr: Expr, used: frozenset[str], cell: Index, low: Index, high: Index) -> bool:
    """Whether a constraint holds everywhere between two corners of a cell; judged where it is hardest to meet."""
    corners = list(_hardest(grid, expr, used, low, high))
    if not corners:
        return False
    loose = grid.assignment(cell, low)
    return all(holds(expr, {**loose, **corner}) is True for corner in corners)


def _hardest(grid: Grid, expr: Expr, used: frozenset[str], low: Index, high: Index) -> Iterator[Mapping[str, Value]]:
    """The points of a block at which a constraint is hardest to meet."""
    known = ranges(grid.box.axes)
    options: list[tuple[str, list[Value]]] = []
    for line, first, last in zip(grid.rising, low, high, strict=True):
        if line.name not in used:
            continue
        way = truth_direction(expr, line.name, known)
        way = None if way is None else way * _along(line)
        ends = [first] if way in (0, 1) else [last] if way == -1 else list(range(first, last + 1))[:SUBSETS]
        options.append((line.name, [line.value_at(i) for i in ends]))
    for axis in grid.box.axes:  # axes that feed no Job field are not narrowed: the constraint must hold for all of them
        if axis.name in used and not axis.fields and isinstance(axis.domain, Choices):
            options.append((axis.name, list(axis.domain.values)))
        elif axis.name in used and not axis.fields and isinstance(axis.domain, Range):
            options.append((axis.name, [axis.domain.low, axis.domain.high]))
    for values in product(*(values for _, values in options)):
        yield dict(zip((name for name, _ in options), values, strict=True))
