"""A box as a grid: *rising* axes, along which memory never falls, and *loose* axes, which have no such order.

A *cell* is a combination of the loose axes, a *point* one of the rising axes within a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import product
from math import prod
from operator import le

from msgspec import Struct, field

from preflight.space.jobs import JobMaker, job_maker
from preflight.space.monotone import direction, increasing, ranges
from preflight.vocabulary.budgets import FULL_ESTIMATES
from preflight.vocabulary.job import Job
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Axis, Choices, Range, Unbounded, Value

Index = tuple[int, ...]
Bytes = tuple[int, int]
"""(expected, high)"""

Judged = tuple[int | None, int | None, int | None, int | None]
"""(device verdict, host verdict, device bytes, host bytes)"""

FITS, AT_RISK, EXCEEDS = 0, 1, 2

CONTINUOUS_STEPS = 256
"""Points at which a continuous range is judged if its ends are no whole numbers: the resolution of the safe range."""


class Side(Struct, frozen=True):
    """The device's or the host's memory: a bound of a job's need, and the capacity.

    `bound(job)` is (expected, high) bytes and never falls as numeric fields grow; None if the job is not known well
    enough. `capacity`: bytes, None if it is unknown, or a function of the job. `least(job)`: the least bytes that a job
    without a bound needs, if they exceed the capacity; else None. `close(job, found, limit)`: the verdict where the
    bound alone does not decide it.
    """

    bound: Callable[[Job], Bytes | None]
    capacity: int | Callable[[Job], int | None] | None
    least: Callable[[Job], int | None] | None = None
    close: Callable[[Job, Bytes, int], int | None] | None = None

    def judge(self, job: Job) -> tuple[int | None, int | None]:
        """Verdict (FITS, AT_RISK, EXCEEDS or None) and expected bytes of one job, by `bound`."""
        found = self.bound(job)
        if found is None:
            return None, None
        limit = self.capacity(job) if callable(self.capacity) else self.capacity
        if limit is None:
            return None, found[0]
        by_bound = EXCEEDS if found[0] > limit else AT_RISK if found[1] > limit else FITS
        return by_bound if self.close is None else self.close(job, found, limit), found[0]

    def judge_least(self, job: Job) -> tuple[int | None, int | None]:
        """The same by `least`: EXCEEDS, or None."""
        size = self.least(job) if self.least is not None else None
        return (None, None) if size is None else (EXCEEDS, size)


class GridLine(Struct, frozen=True):
    """An axis as a row of values. `rises`: memory never falls along it."""

    axis: Axis
    size: int
    rises: bool
    value_at: Callable[[int], Value]
    exact: bool = True
    """False for a continuous range, which is judged at some of its points."""

    @property
    def name(self) -> str:
        return self.axis.name


class Grid(Struct, dict=True):
    """The lines of a box, and the verdicts found so far."""

    box: Box
    rising: tuple[GridLine, ...]
    loose: tuple[GridLine, ...]
    device: Side | None
    host: Side | None
    evaluations: int = 0
    asked_least: int = 0
    sides: tuple[bool, bool] = (True, True)
    """Whether the device and the host are judged: whether any verdict of them is known."""
    _known: dict[tuple[Index, Index], Judged] = field(default_factory=dict)
    _equal: dict[tuple[str, ...], Judged] = field(default_factory=dict)
    _seen: dict[Index, tuple[list[Index], list[Index]]] = field(default_factory=dict)
    """For each cell, the highest points that fit and the lowest that exceed, of those judged so far."""

    @cached_property
    def _maker(self) -> JobMaker:
        return job_maker(self.box)

    @property
    def shape(self) -> Index:
        return tuple(line.size for line in self.rising)

    @property
    def top(self) -> Index:
        return tuple(line.size - 1 for line in self.rising)

    @property
    def cell_count(self) -> int:
        return prod(line.size for line in self.loose)

    def cells(self) -> Iterator[Index]:
        """Every combination of the loose axes, as indices of their values."""
        return product(*(range(line.size) for line in self.loose))

    def assignment(self, cell: Index, index: Index) -> dict[str, Value]:
        """The values of the axes at a point."""
        values = {line.name: line.value_at(i) for line, i in zip(self.loose, cell, strict=True)}
        values.update({line.name: line.value_at(i) for line, i in zip(self.rising, index, strict=True)})
        return values

    def job(self, assignment: Mapping[str, Value]) -> Job:
        return self._maker.at(assignment).job

    def key(self, cell: Index, index: Index) -> tuple[str, ...]:
        """The values that the memory of a point depends on."""
        return self._maker.key(self.assignment(cell, index))

    def evaluate(self, cell: Index, index: Index) -> Judged:
        """Judge a point; points with equal memory are judged once."""
        at = (cell, index)
        if at not in self._known:
            key = self.key(cell, index)
            if key not in self._equal:
                self.evaluations += 1
                job = self._maker.at(self.assignment(cell, index)).job
                device, host = self._side(self.device, job), self._side(self.host, job)
                self._equal[key] = (device[0], host[0], device[1], host[1])
            self._known[at] = self._equal[key]
        return self._known[at]

    def _side(self, side: Side | None, job: Job) -> tuple[int | None, int | None]:
        """Verdict and bytes of one side of a job: by its bound, else by its least bytes, while the budget lasts."""
        if side is None:
            return None, None
        found = side.judge(job)
        if found[1] is None and side.least is not None and self.asked_least < FULL_ESTIMATES:
            self.asked_least += 1
            return side.judge_least(job)
        return found

    def verdict(self, cell: Index, index: Index) -> int | None:
        """The worse verdict of the sides that are judged; None if one is unknown and none exceeds.

        A point below one that fits, or above one that exceeds, is not evaluated.
        """
        fitting, exceeding = self._seen.setdefault(cell, ([], []))
        if any(all(map(le, index, above)) for above in fitting):
            return FITS
        if any(all(map(le, below, index)) for below in exceeding):
            return EXCEEDS
        found = self._judged(cell, index)
        if found == FITS:
            fitting[:] = [*(other for other in fitting if not all(map(le, other, index))), index]
        elif found == EXCEEDS:
            exceeding[:] = [*(other for other in exceeding if not all(map(le, index, other))), index]
        return found

    def _judged(self, cell: Index, index: Index) -> int | None:
        device, host, _, _ = self.evaluate(cell, index)
        judged = [v for v, on in zip((device, host), self.sides, strict=True) if on]
        known = [v for v in judged if v is not None]
        if not known or (len(known) < len(judged) and max(known) < EXCEEDS):
            return None
        return max(known)


Block = tuple[Index, Index]
"""The points between a lowest and a highest corner, both included."""


def volume(low: Index, high: Index) -> int:
    """The number of points of a block."""
    return prod(last - first + 1 for first, last in zip(low, high, strict=True))


def halves(low: Index, high: Index) -> tuple[Block, Block]:
    """A block cut in two along its longest side."""
    sides = [last - first for first, last in zip(low, high, strict=True)]
    at = sides.index(max(sides))
    return cut_after(low, high, at, (low[at] + high[at]) // 2)


def cut_after(low: Index, high: Index, at: int, index: int) -> tuple[Block, Block]:
    """A block cut in two after an index of its line `at`."""
    return (low, (*high[:at], index, *high[at + 1 :])), ((*low[:at], index + 1, *low[at + 1 :]), high)


def grid_of(box: Box, device: Side | None, host: Side | None) -> Grid:
    """The grid of a box's memory axes. Unbounded axes are left out, and their fields are unknown."""
    known = ranges(box.axes)
    rising: list[GridLine] = []
    loose: list[GridLine] = []
    for axis in box.memory_axes:
        line = _line(axis, _direction(axis, box, known))
        if line is not None:
            (rising if line.rises else loose).append(line)
    return Grid(box, tuple(rising), tuple(loose), device, host)


def _direction(axis: Axis, box: Box, known: Mapping[str, tuple[float, float]]) -> int | None:
    """+1: memory never falls as the axis grows, through every field that it feeds. -1: never rises. None: unknown."""
    ways: set[int | None] = set()
    for name in axis.fields:
        way = direction(box.fields[name].expr, axis.name, known)
        ways.add(way if way == 0 or increasing(name) else None)
    ways.discard(0)
    return ways.pop() if len(ways) == 1 else 1 if not ways else None


def _line(axis: Axis, way: int | None) -> GridLine | None:
    domain = axis.domain
    if isinstance(domain, Unbounded):
        return None
    if isinstance(domain, Choices):
        return _choices(axis, domain, way)
    return _range(axis, domain, way)


def _choices(axis: Axis, domain: Choices, way: int | None) -> GridLine:
    values = domain.values
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if way is None or not numeric:
        return GridLine(axis, len(values), False, values.__getitem__)
    ordered: tuple[Value, ...] = tuple(sorted(values, reverse=way < 0))  # type: ignore[type-var]
    return GridLine(axis, len(ordered), True, ordered.__getitem__)


def _range(axis: Axis, domain: Range, way: int | None) -> GridLine | None:
    size, step = domain.size(), domain.step
    exact = size is not None and step is not None
    if size is None or step is None:
        whole = domain.high - domain.low >= 2 and float(domain.high).is_integer() and float(domain.low).is_integer()
        step = 1 if whole else (domain.high - domain.low) / (CONTINUOUS_STEPS - 1)
        size = round(domain.high - domain.low) + 1 if whole else CONTINUOUS_STEPS
    if size < 1:
        return None
    low, last = domain.low, size - 1
    integer = domain.integer or isinstance(step, int)

    def value_at(index: int) -> Value:
        value = low + step * (last - index if way is not None and way < 0 else index)
        return round(value) if integer else value

    return GridLine(axis, size, way is not None, value_at, exact)
