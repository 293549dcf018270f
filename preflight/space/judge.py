"""Judges a study's search space: how many combinations fit, the worst one, and the largest part that is safe.

Combinations are not judged one by one. A bound that never falls along numeric axes judges corners (`grid`). Blocks
between corners of one verdict are counted as a whole (`counting`). The safe sub-space is found by its corner (`safe`).
Only the worst combination of each box gets the full estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import TypeAlias

from msgspec.structs import replace

from preflight.space.constraints import Constraint, in_box, parse_all
from preflight.space.counting import count, still_fitting, total
from preflight.space.grid import AT_RISK, EXCEEDS, FITS, Block, Grid, Index, Side, grid_of
from preflight.space.jobs import job_maker
from preflight.space.safe import largest, safe_box
from preflight.vocabulary.budgets import BOUNDS, CELLS, SAFE_BOUNDS
from preflight.vocabulary.estimates import ORDER, Estimates, Verdict
from preflight.vocabulary.job import Job
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Unbounded, Unknown, Value, shape
from preflight.vocabulary.verdicts import BoxVerdict, Counts, ModelVerdict, Point, SafeBox, SpaceVerdict

CONFIRMED = 8
"""Cells that do not fit by the bound, an upper one, and whose worst combination gets the full estimate."""

SEVERITY: Mapping[Verdict, int] = {verdict: rank for rank, verdict in enumerate(ORDER)}
_OF_BOUND = {FITS: SEVERITY["fits"], AT_RISK: SEVERITY["at-risk"], EXCEEDS: SEVERITY["exceeds"]}

_ONE: Mapping[Verdict, Counts] = {
    "fits": Counts(fits=1),
    "fits-if": Counts(fits_if=1),
    "at-risk": Counts(at_risk=1),
    "exceeds": Counts(exceeds=1),
    "unknown": Counts(unknown=1),
}

Estimate = Callable[[Job], Estimates]
Sides: TypeAlias = "tuple[Side | None, Side | None]"
"""The device's and the host's memory."""


def judge(
    study: Study,
    estimate: Estimate,
    device: Side | None = None,
    host: Side | None = None,
    constraints: Mapping[str, str] | None = None,
    budget: int = BOUNDS,
    doubted: Sides | None = None,
) -> SpaceVerdict:
    """Judge all boxes of a study. `estimate` is the full estimate, made for the worst combination of each box only.

    `device` and `host` have upper bounds of the memory (None: that side is not judged). `doubted`: the same where every
    value that is not known well is the worst that it may be; a combination that fits, and not with these, fits if the
    assumptions hold. None: every value is known well. `constraints` are the user's, by name. Raises ConstraintError for
    one that cannot be read.
    """
    parsed = parse_all(constraints or {})
    share = max(64, budget // max(1, len(study.boxes)))
    boxes = tuple(_box(box, estimate, (device, host), doubted, parsed, share) for box in study.boxes)
    worst = max((verdict.worst for verdict in boxes), key=lambda point: _weight(point.estimates))
    counts = total(verdict.counts for verdict in boxes)
    return SpaceVerdict(boxes, counts, worst, study.combinations)


def meaning(study: Study, constraints: Mapping[str, str]) -> Hashable:
    """What the verdict on a study's space says, beside the estimates: spaces of equal meaning have equal verdicts."""
    parsed = parse_all(constraints)
    return tuple((job_maker(box).meaning, tuple(shape(in_box(one, box)) for one in parsed)) for box in study.boxes)


def on_boxes(verdict: SpaceVerdict, study: Study, said: Callable[[Estimates], Estimates]) -> SpaceVerdict:
    """The verdict on a space as one on the space of a study of equal meaning. `said`: the estimates in its words."""
    worst = [replace(one.worst, estimates=said(one.worst.estimates)) for one in verdict.boxes]
    boxes = zip(verdict.boxes, study.boxes, worst, strict=True)
    at = next(number for number, one in enumerate(verdict.boxes) if one.worst is verdict.worst)
    return replace(
        verdict, boxes=tuple(replace(one, box=box, worst=point) for one, box, point in boxes), worst=worst[at]
    )


def not_judged(study: Study, why: Unknown) -> SpaceVerdict:
    """The verdict on a study that was not looked at: all its combinations are unknown."""
    job = job_maker(study.boxes[0]).at({}).job
    point = Point({}, job, Estimates(None, None, causes={"device": why, "host": why}))
    boxes = tuple(BoxVerdict(box, Counts(unknown=box.combinations or 0, exact=False), point) for box in study.boxes)
    return SpaceVerdict(boxes, total(verdict.counts for verdict in boxes), point, study.combinations)


def _weight(estimates: Estimates) -> tuple[int, int, int, int]:
    """Orders estimates: by the worse verdict, then expected device bytes (unknown is lowest), then host bytes."""
    device, host = estimates.device, estimates.host
    return (
        max(SEVERITY[estimates.verdict], SEVERITY["fits"]),
        1 if device is not None else 0,
        device.process.expected if device is not None else 0,
        host.per_node.expected if host is not None else 0,
    )


def _box(
    box: Box,
    estimate: Estimate,
    sides: Sides,
    doubted: Sides | None,
    constraints: tuple[Constraint, ...],
    budget: int,
) -> BoxVerdict:
    if not box.memory_axes:
        job = job_maker(box).at({}).job
        point = Point({}, job, estimate(job))
        return BoxVerdict(box, _single(point.estimates), point)
    grid = grid_of(box, *sides)
    cells = list(islice(grid.cells(), CELLS))
    point, sure = _worst(grid, cells, estimate)
    bounded = not any(isinstance(axis.domain, Unbounded) for axis in box.memory_axes)
    if box.combinations is None or not bounded:
        uncounted = Counts(exact=False)
        return BoxVerdict(box, uncounted, point, _safe(grid, cells, constraints) if bounded else None)
    counted = count(grid, cells, budget)
    per_cell = counted.cells
    fitting = any(counts.fits for counts in per_cell.values())
    if not grid.sides[0] and point.estimates.on_gpu:
        per_cell = {cell: _by_host_alone(counts) for cell, counts in per_cell.items()}
    if doubted is not None:
        per_cell = _without_doubt(grid, per_cell, counted.fitting, doubted, budget)
    counts = total(per_cell.values())
    left = (grid.cell_count - len(cells)) * prod(grid.shape)
    if left:
        counts = replace(counts, unknown=counts.unknown + left, exact=False)
    by_bound, counts = counts, _agreeing(counts, point.estimates, sure)
    if by_bound.unsafe and not counts.unsafe and not counts.unknown:  # the bound was too high: everything fits
        return BoxVerdict(box, counts, point)
    safe = _safe(grid, cells, constraints) if counts.unsafe and fitting else None
    unsafe_values = _unsafe_values(grid, cells)
    return BoxVerdict(box, counts, point, safe, unsafe_values, _by_model(grid, cells, per_cell, constraints))


def _by_host_alone(counts: Counts) -> Counts:
    """Counts of jobs whose GPU memory is not judged: that the host's fits does not say that they do."""
    return replace(counts, fits=0, unknown=counts.unknown + counts.fits)


def _without_doubt(
    grid: Grid,
    per_cell: Mapping[Index, Counts],
    fitting: Sequence[tuple[Index, Block]],
    doubted: Sides,
    budget: int,
) -> dict[Index, Counts]:
    """Counts of each cell, with the combinations that fit only if the assumptions hold apart from those that fit.

    `fitting`: the blocks that fit; no combination needs less with the worst values.
    """
    device, host = (side if judged else None for side, judged in zip(doubted, grid.sides, strict=True))
    worst = grid_of(grid.box, device, host)
    worst.sides = grid.sides
    sure = still_fitting(worst, fitting, budget) if any(counts.fits for counts in per_cell.values()) else {}
    found = {}
    for cell, counts in per_cell.items():
        fits = min(counts.fits, sure.get(cell, 0))
        found[cell] = replace(counts, fits=fits, fits_if=counts.fits - fits)
    return found


def _agreeing(counts: Counts, found: Estimates, sure: bool) -> Counts:
    """Counts that agree with the full estimate of the worst combination.

    If the estimate is worse than the counts, it is so for one combination at least. `sure`: no other combination can be
    worse, so that no combination has a worse verdict, though the upper bound may say so. A need that is not
    plausible in the worst combination is not plausible in the others that exceed either; a field that decides whether
    the worst one exceeds, and was not read, decides it for the others too.
    """
    worst = found.verdict
    doubtful = worst == "at-risk" and bool(found.assumptions)
    if worst == "exceeds" and not counts.exceeds:
        return _moved(counts, "exceeds")
    if worst == "at-risk" and not counts.unsafe:
        return _moved(counts, "at_risk")
    if worst == "fits-if" and counts.fits and not counts.unsafe + counts.fits_if:
        return _moved(counts, "fits_if")
    device = found.device
    if device is not None and device.verdict == "unknown" and device.assumptions and counts.unsafe:
        return replace(counts, unknown=counts.unknown + counts.unsafe, at_risk=0, exceeds=0)
    if doubtful and counts.exceeds:
        return replace(counts, at_risk=counts.unsafe, exceeds=0)
    if sure and counts.exceeds and worst == "at-risk":
        return replace(counts, at_risk=counts.unsafe, exceeds=0)
    if sure and counts.unsafe and worst == "fits":
        return replace(counts, fits=counts.fits + counts.unsafe, at_risk=0, exceeds=0)
    if sure and counts.unsafe and worst == "fits-if":
        return replace(counts, fits_if=counts.fits_if + counts.unsafe, at_risk=0, exceeds=0)
    return counts


def _moved(counts: Counts, to: str) -> Counts:
    """Counts with one combination moved to its verdict."""
    source = next(name for name in ("unknown", "at_risk", "fits_if", "fits") if getattr(counts, name) and name != to)
    total_ = counts.fitting + counts.unsafe + counts.unknown
    moved = {source: getattr(counts, source) - 1, to: getattr(counts, to) + 1}
    return replace(counts, **moved, exact=counts.exact and total_ == 1)


def _single(estimates: Estimates) -> Counts:
    """The count of one job, by its full estimate."""
    return _ONE[estimates.verdict]


def _worst(grid: Grid, cells: Sequence[Index], estimate: Estimate) -> tuple[Point, bool]:
    """The worst combination (by verdict, then by expected bytes), and whether no other can have a worse full estimate.

    It also notes in the grid which sides are judged.
    """
    weights: list[tuple[tuple[int, int, int, int], Index]] = []
    device_known = host_known = False
    for cell in cells:
        device, host, device_bytes, host_bytes = grid.evaluate(cell, grid.top)
        device_known |= device is not None
        host_known |= host is not None
        rank = max(device or FITS, host or FITS)
        known = device_bytes is not None
        weights.append(((rank, 1 if known else 0, device_bytes or 0, host_bytes or 0), cell))
    grid.sides = (device_known, host_known)
    grid.device, grid.host = grid.device if device_known else None, grid.host if host_known else None
    ordered = sorted(weights, key=lambda one: one[0], reverse=True)
    suspects = [weight for weight, _ in weights if weight[0] > FITS]
    best: Point | None = None
    for (rank, *_), cell in ordered[: max(1, min(len(suspects), CONFIRMED))]:
        point = _point(grid, cell, estimate)
        if best is None or SEVERITY[point.estimates.verdict] > SEVERITY[best.estimates.verdict]:
            best = point
        if SEVERITY[point.estimates.verdict] >= _OF_BOUND[rank]:
            break  # those that follow are no worse by the bound
    return best or _point(grid, next(iter(grid.cells())), estimate), len(suspects) <= CONFIRMED


def _point(grid: Grid, cell: Index, estimate: Estimate) -> Point:
    assignment = grid.assignment(cell, grid.top)
    job = grid.job(assignment)
    return Point(assignment, job, estimate(job))


def _safe(grid: Grid, cells: Sequence[Index], constraints: tuple[Constraint, ...]) -> SafeBox | None:
    if grid.cell_count > len(cells):
        return None
    found = largest(grid, cells, constraints, grid.evaluations + SAFE_BOUNDS)
    if found is None:
        return None
    box = safe_box(grid, found)
    return box if box.dropped else None


def _unsafe_values(grid: Grid, cells: Sequence[Index]) -> dict[str, tuple[Value, ...]]:
    """Axis values that fit nowhere, even with all other axes at their smallest."""
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
        if first < line.size and line.size - first <= CELLS:
            found[line.name] = tuple(line.value_at(i) for i in range(first, line.size))
    return found


def _first_unsafe(grid: Grid, cells: Sequence[Index], zero: Index, at: int, size: int) -> int:
    """The first index of a line from which no cell fits."""

    def unsafe(value: int) -> bool:
        index = (*zero[:at], value, *zero[at + 1 :])
        return not any(grid.verdict(cell, index) in (FITS, None) for cell in cells)

    low, high = 0, size  # bisect takes no ranges of more than 63 bits
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if unsafe(middle) else (middle + 1, high)
    return low


def _by_model(
    grid: Grid, cells: Sequence[Index], per_cell: Mapping[Index, Counts], constraints: tuple[Constraint, ...]
) -> tuple[ModelVerdict, ...]:
    """Counts and safe sub-space of each value of the axis that chooses the model."""
    at = next((i for i, line in enumerate(grid.loose) if any(_chooses(name) for name in line.axis.fields)), None)
    if at is None:
        return ()
    line = grid.loose[at]
    found = []
    for index in range(line.size):
        own = [cell for cell in cells if cell[at] == index]
        if not own:
            continue
        best = largest(grid, own, constraints, grid.evaluations + SAFE_BOUNDS // line.size)
        safe = None if best is None else _of_model(safe_box(grid, best), line.name)
        counts = total(per_cell[cell] for cell in own)
        found.append(ModelVerdict(line.name, line.value_at(index), counts, safe))
    return tuple(found)


def _of_model(safe: SafeBox, axis: str) -> SafeBox:
    """The box without the axis of the model: its other values were left out on purpose."""
    return replace(safe, dropped={name: values for name, values in safe.dropped.items() if name != axis})


def _chooses(field: str) -> bool:
    return field in ("model.name", "model.path", "model.target", "model.architecture", "model.config", "model.law")
