"""What the drawings show, before anything is drawn: the course of a step, the map of what fits, a run beside its law.

The terminal (`drawings`) and the page (`svg`, `html`) draw the same description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import Protocol

from msgspec import Struct

from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import ALL_PARTS, LENGTHS, DeviceEstimate, Estimates, HostEstimate, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.watched import TIERS, MeasuredRun

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
MARKS = ">= a lower bound, * if what is assumed holds, ~ at risk, ? no verdict, !"
"""The marks of figures, in words; the capacity that the last one exceeds follows."""
DOUBTED = "!*"
"""It exceeds if what is assumed holds."""
SIGNS = {"fits-if": "*", "at-risk": "~", "exceeds": "!"}
OUTSIDE = "context and cache"
"""What no part of a step holds: the context of CUDA, and what the allocator keeps."""
IMAGES = (128, 160, 192, 224, 256, 384, 512)


class StepPoint(Protocol):
    """A moment of a step; bytes. `parts` in the order of ALL_PARTS."""

    @property
    def phase(self) -> str: ...
    @property
    def allocated(self) -> int: ...
    @property
    def parts(self) -> tuple[int, ...]: ...


class StepColumn(Struct, frozen=True):
    """The highest moment of a piece of a step: the memory of the process, and its parts."""

    phase: str
    height: int
    parts: tuple[int, ...]


class StepFigure(Struct, frozen=True, dict=True):
    """A step in columns from left to right. `outside`: bytes of the process that no part holds, below all parts.

    `capacity`: None also where it is so far from the peak that the drawing would be flat.
    """

    columns: tuple[StepColumn, ...]
    outside: int
    capacity: int | None

    @cached_property
    def peak(self) -> StepColumn:
        return max(self.columns, key=lambda column: column.height)

    @property
    def top(self) -> int:
        """The highest value that is drawn."""
        return max(self.peak.height, self.capacity or 0)

    @property
    def layers(self) -> list[tuple[str, list[int]]]:
        """The parts that have bytes, from the bottom up, with their bytes in each column."""
        found = [(OUTSIDE, [self.outside] * len(self.columns))]
        found += [(name, [column.parts[at] for column in self.columns]) for at, name in enumerate(ALL_PARTS)]
        return [(name, sizes) for name, sizes in found if any(sizes)]


def mark(found: DeviceEstimate | HostEstimate | None) -> str:
    """What stands before a figure of an estimate, as MARKS says. Without a mark it fits, or no capacity is known."""
    if found is None:
        return "?"
    least = ">=" if isinstance(found, DeviceEstimate) and found.lower_bound else ""
    room = found.capacity if isinstance(found, DeviceEstimate) else found.limit
    if found.assumptions and room is not None and not found.fitting:
        return DOUBTED + least
    if found.verdict != "unknown":
        return SIGNS.get(found.verdict, "") + least
    return least or ("*" if found.assumptions else "" if room is None else "?")


def outside_of(points: Sequence[StepPoint], estimate: DeviceEstimate) -> int:
    """Bytes of the process that the moments of its step do not hold: its context, and the cache of the allocator."""
    return estimate.process.expected - max((point.allocated for point in points), default=0)


def step_figure(points: Sequence[StepPoint], outside: int, capacity: int | None, width: int) -> StepFigure | None:
    """A step in at most `width` columns; None if it has no moments."""
    if not points or width < 1:
        return None
    highest = [max(column, key=lambda point: point.allocated) for column in _columns(points, width)]
    columns = tuple(StepColumn(point.phase, outside + point.allocated, point.parts) for point in highest)
    peak = max(column.height for column in columns)
    near = capacity if capacity is not None and peak / 3 <= capacity <= 4 * peak else None
    return StepFigure(columns, outside, near)


def _columns(points: Sequence[StepPoint], width: int) -> list[list[StepPoint]]:
    """Points in at most `width` columns. No column has two phases."""
    runs = [list(run) for _, run in groupby(points, key=lambda point: point.phase)]
    free = max(width - len(runs), 0)
    found: list[list[StepPoint]] = []
    for run in runs:
        count = max(1, min(len(run), 1 + free * len(run) // len(points)))
        edges = [round(i * len(run) / count) for i in range(count + 1)]
        found += [run[a:b] for a, b in pairwise(edges) if b > a]
    return found[:width]


class MapFigure(Struct, frozen=True):
    """The memory of the process: a column for each length (or size of image) that the model accepts, a row for each
    batch until nothing fits. None: unknown. A single column of no size: the memory was not seen to depend on one."""

    what: str
    sizes: tuple[int | None, ...]
    rows: tuple[tuple[int, tuple[DeviceEstimate | None, ...]], ...]
    card: str
    """The GPU whose capacity is known; "": none is."""

    @property
    def by(self) -> str:
        """What the rows and columns are, in words."""
        return f"batch and {self.what}" if self.sizes != (None,) else "batch"

    @property
    def headings(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(f"{size:,}" if size is not None else "GiB" for size in self.sizes)

    @property
    def legend(self) -> str:
        """What the figures are, with the marks that there are."""
        marks = "".join(mark(cell) for _, cells in self.rows for cell in cells)
        shown = [one for one in MARKS.split(", ") if one.split(" ")[0] in marks]
        words = ", ".join(shown) + (f" exceeds {self.card}" if "!" in marks else "")
        return f"GiB of the process by {self.by}" + (f"; {words}" if shown else "")


def in_map(cell: DeviceEstimate | None) -> str:
    """The figure of a cell after its mark."""
    return mark(cell) + (f"{cell.process.expected / 2**30:,.1f}" if cell is not None else "")


def map_figure(job: Job, estimate: Callable[[Job], Estimates], gpu: str) -> MapFigure:
    """The map of a Job on a GPU. It has no column if the memory is unknown everywhere."""
    field, what, sizes = _axis(job)
    first = {size: _cell(job, estimate, {field: size, "train.batch_size": 1}) for size in sizes}
    known = tuple(size for size in sizes if first[size] is not None)
    rows = []
    for batch in _batches(job) if known else ():
        cells = tuple(_cell(job, estimate, {field: size, "train.batch_size": batch}) for size in known)
        rows.append((batch, cells))
        if all(cell is None or "!" in mark(cell) for cell in cells):
            break
    card = (gpu or "the GPU") if any(one is not None and one.capacity for one in first.values()) else ""
    if len(known) > 1 and all(len({cell and cell.process.expected for cell in cells}) == 1 for _, cells in rows):
        # Nothing was seen of a size, as in a dry run without one: a column for each would say that all of them fit.
        own = tuple((batch, (_cell(job, estimate, {"train.batch_size": batch}),)) for batch, _ in rows)
        return MapFigure(what, (None,), own, card)
    return MapFigure(what, known, tuple(rows), card)


def _batches(job: Job) -> tuple[int, ...]:
    """The rows: up to the job's own batch at least."""
    found, own = list(BATCHES), job.train.batch_size or 0
    while found[-1] < own:
        found.append(2 * found[-1])
    return tuple(found)


def _axis(job: Job) -> tuple[str, str, tuple[int, ...]]:
    """The Job field of the columns, its name in words, and its values."""
    train = job.train
    images = job.task in ("image-classification", "diffusion") or (
        train.seq_len is None and train.image_size is not None
    )
    if images:
        stated = (train.image_size,) if train.image_size else ()
        return "train.image_size", "image size", tuple(sorted({*IMAGES, *stated}))
    stated = (train.seq_len,) if train.seq_len else ()
    return "train.seq_len", "length", tuple(sorted({*LENGTHS, *stated}))


def _cell(job: Job, estimate: Callable[[Job], Estimates], values: dict[str, int | None]) -> DeviceEstimate | None:
    return estimate(with_fields(job, values)).device


class MeasuredTier(Struct, frozen=True):
    """One tier of a recorded run: the peak of each phase, and what the law said of the highest of them."""

    tier: str
    phases: tuple[tuple[str, int], ...]
    law: Interval | None

    @property
    def peak(self) -> int:
        return max(size for _, size in self.phases)

    @property
    def share(self) -> float | None:
        """Measured over predicted bytes."""
        return self.peak / self.law.expected if self.law is not None and self.law.expected > 0 else None


class MeasuredFigure(Struct, frozen=True):
    """A recorded run beside its law."""

    tiers: tuple[MeasuredTier, ...]

    @property
    def top(self) -> int:
        """The highest value that is drawn."""
        return max(max(one.peak, one.law.high if one.law is not None else 0) for one in self.tiers)


def measured_figure(run: MeasuredRun, estimate: DeviceEstimate | None = None) -> MeasuredFigure | None:
    """A run with the law's figures that were recorded with it; where none were, those of `estimate`, unless recorded
    runs are in that. None: no peak of a GPU was recorded."""
    own = estimate is not None and not estimate.recorded and not estimate.lower_bound
    tiers = []
    for tier in TIERS:
        phases = tuple((one.phase, one.bytes) for one in run.peaks if one.tier == tier)
        law = run.laws.get(tier)
        if law is None and not run.laws and own:
            law = getattr(estimate, tier)
        if phases:
            tiers.append(MeasuredTier(tier, phases, law))
    return MeasuredFigure(tuple(tiers)) if tiers else None
