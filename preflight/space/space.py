"""A study's search space, judged: how many combinations fit, the worst one, and the largest part that is safe.

Nothing is enumerated. A bound that never falls along numeric axes judges corners (`grid`), blocks between equal
corners are counted as a whole (`counting`), the safe sub-space is found over corners (`safe`). The worst combination
of each box alone is estimated at full depth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import prod

from preflight.space.constraints import Constraint, parse_all
from preflight.space.counting import count, total
from preflight.space.grid import EXCEEDS, FITS, Grid, Index, Side, grid_of
from preflight.space.jobs import JobMaker
from preflight.space.safe import largest, safe_box
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.records import replace
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Unbounded, Value
from preflight.vocabulary.verdicts import BoxVerdict, Counts, ModelVerdict, Point, SafeBox, SpaceVerdict

MAX_CELLS = 1024
"""Combinations of unordered axes (models, precisions, switches) that are judged one by one; the rest is unknown."""

BUDGET = 700
"""Evaluations of the bound that counting a study may take: a third of a second, at half a millisecond each."""

SAFE_BUDGET = 250
"""Further evaluations that the search for the safe sub-space may take."""

Estimate = Callable[[Job], Estimates]


def judge(
    study: Study,
    estimate: Estimate,
    device: Side | None = None,
    host: Side | None = None,
    constraints: Mapping[str, str] | None = None,
    budget: int = BUDGET,
) -> SpaceVerdict:
    """All boxes of a study. `estimate` is the full estimate, asked for the worst combination of each box only.

    `device` and `host` bound the two sides from above (None: that side is not judged). `constraints` are the user's
    own, by name. Raises ConstraintError for one that cannot be read.
    """
    parsed = parse_all(constraints or {})
    share = max(64, budget // max(1, len(study.boxes)))
    boxes = tuple(_box(box, estimate, device, host, parsed, share) for box in study.boxes)
    worst = max((verdict.worst for verdict in boxes), key=lambda point: _weight(point.estimates))
    counts = total(verdict.counts for verdict in boxes)
    return SpaceVerdict(boxes, counts, worst, study.combinations)


def _weight(estimates: Estimates) -> tuple[int, int, int]:
    """Orders estimates: expected device bytes, then host bytes, an unknown device below a known one."""
    device, host = estimates.device, estimates.host
    return (
        1 if device is not None else 0,
        device.process.expected if device is not None else 0,
        host.per_node.expected if host is not None else 0,
    )


def _box(
    box: Box,
    estimate: Estimate,
    device: Side | None,
    host: Side | None,
    constraints: tuple[Constraint, ...],
    budget: int,
) -> BoxVerdict:
    if not box.memory_axes:
        job = JobMaker(box).at({}).job
        point = Point({}, job, estimate(job))
        return BoxVerdict(box, _single(point.estimates), point)
    grid = grid_of(box, device, host)
    cells = list(islice(grid.cells(), MAX_CELLS))
    worst_cell, worst_index = _worst(grid, cells)
    assignment = grid.assignment(worst_cell, worst_index)
    job = grid.job(assignment)
    point = Point(assignment, job, estimate(job))
    bounded = not any(isinstance(axis.domain, Unbounded) for axis in box.memory_axes)
    if box.combinations is None or not bounded:
        nothing = Counts(exact=False)
        return BoxVerdict(box, nothing, point, _safe(grid, cells, constraints) if bounded else None)
    per_cell = count(grid, cells, budget)
    counts = total(per_cell.values())
    left = (grid.cell_count - len(cells)) * prod(grid.shape)
    if left:
        counts = replace(counts, unknown=counts.unknown + left, exact=False)
    if counts.unsafe and not counts.unknown and _fits(point.estimates):  # the bound was too rough: the worst does fit
        counts = Counts(fits=counts.fits + counts.unsafe)
        return BoxVerdict(box, counts, point)
    if counts.fits and not counts.unsafe and not counts.unknown:
        counts = _with_worst(counts, _single(point.estimates))
    safe = _safe(grid, cells, constraints) if counts.unsafe and counts.fits else None
    return BoxVerdict(
        box, counts, point, safe, _unsafe_values(grid, cells), _by_model(grid, cells, per_cell, constraints)
    )  # fmt: skip


def _with_worst(counts: Counts, worst: Counts) -> Counts:
    """All fit by the bound; where the full estimate of the worst disagrees, that one at least does not."""
    if not worst.unsafe:
        return counts
    return replace(
        counts, fits=counts.fits - 1, at_risk=worst.at_risk, exceeds=worst.exceeds, exact=counts.fits == 1
    )  # fmt: skip


def _single(estimates: Estimates) -> Counts:
    """The count of one job, by its full estimate."""
    verdicts = [side.verdict for side in (estimates.device, estimates.host) if side is not None]
    if "exceeds" in verdicts:
        return Counts(exceeds=1)
    known = [verdict for verdict in verdicts if verdict != "unknown"]
    if not known:
        return Counts(unknown=1)
    return Counts(at_risk=1) if "at-risk" in known else Counts(fits=1)


def _fits(estimates: Estimates) -> bool:
    sides = [side.verdict for side in (estimates.device, estimates.host) if side is not None]
    return "fits" in sides and not {"exceeds", "at-risk"} & set(sides)


def _worst(grid: Grid, cells: Sequence[Index]) -> tuple[Index, Index]:
    """The combination with the largest expected bytes; says on the way which sides are known at all."""
    best: tuple[tuple[int, int, int], Index] | None = None
    device_known = host_known = False
    for cell in cells:
        device, host, device_bytes, host_bytes = grid.evaluate(cell, grid.top)
        device_known |= device is not None
        host_known |= host is not None
        weight = (1 if device_bytes is not None else 0, device_bytes or 0, host_bytes or 0)
        if best is None or weight > best[0]:
            best = (weight, cell)
    grid.sides = (device_known, host_known)
    grid.device, grid.host = grid.device if device_known else None, grid.host if host_known else None
    return (best[1] if best is not None else next(iter(grid.cells()))), grid.top


def _safe(grid: Grid, cells: Sequence[Index], constraints: tuple[Constraint, ...]) -> SafeBox | None:
    if grid.cell_count > len(cells):
        return None
    found = largest(grid, cells, constraints, grid.evaluations + SAFE_BUDGET)
    if found is None:
        return None
    box = safe_box(grid, found)
    return box if box.dropped else None


def _unsafe_values(grid: Grid, cells: Sequence[Index]) -> dict[str, tuple[Value, ...]]:
    """Axis values that fit nowhere, judged with everything else at its smallest."""
    zero = tuple(0 for _ in grid.shape)
    found: dict[str, tuple[Value, ...]] = {}
    open_cells = [cell for cell in cells if grid.verdict(cell, zero) in (FITS, None)]
    for at, line in enumerate(grid.loose):
        fine = {cell[at] for cell in open_cells}
        gone = tuple(line.value_at(i) for i in range(line.size) if i not in fine)
        if gone and len(cells) == grid.cell_count:
            found[line.name] = gone
    for at, line in enumerate(grid.rising):
        first = _first_unsafe(grid, open_cells, zero, at, line.size)
        if first < line.size and line.size - first <= MAX_CELLS:
            found[line.name] = tuple(line.value_at(i) for i in range(first, line.size))
    return found


def _first_unsafe(grid: Grid, cells: Sequence[Index], zero: Index, at: int, size: int) -> int:
    """The first index of a line from which no cell fits."""

    def unsafe(value: int) -> bool:
        index = (*zero[:at], value, *zero[at + 1 :])
        return not any(grid.verdict(cell, index) in (FITS, None) for cell in cells)

    return bisect_left(range(size), True, key=unsafe)


def _by_model(
    grid: Grid, cells: Sequence[Index], per_cell: Mapping[Index, Counts], constraints: tuple[Constraint, ...]
) -> tuple[ModelVerdict, ...]:
    """The same questions for each value of the axis that chooses the model."""
    at = next((i for i, line in enumerate(grid.loose) if any(_chooses(name) for name in line.axis.fields)), None)
    if at is None:
        return ()
    line = grid.loose[at]
    found = []
    for index in range(line.size):
        own = [cell for cell in cells if cell[at] == index]
        if not own:
            continue
        best = largest(grid, own, constraints, grid.evaluations + SAFE_BUDGET // line.size)
        safe = None if best is None else _of_model(safe_box(grid, best), line.name)
        counts = total(per_cell[cell] for cell in own)
        found.append(ModelVerdict(line.name, line.value_at(index), counts, safe))
    return tuple(found)


def _of_model(safe: SafeBox, axis: str) -> SafeBox:
    """The box without the model's own axis, of which the other values were left out on purpose."""
    return replace(safe, dropped={name: values for name, values in safe.dropped.items() if name != axis})


def _chooses(field: str) -> bool:
    return field in ("model.name", "model.path", "model.target", "model.architecture", "model.config", "model.law")


__all__ = ["BUDGET", "EXCEEDS", "Side", "judge"]
