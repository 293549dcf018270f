"""Memory during a step, drawn with characters. A column is a part of the step, its height the memory of the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Protocol

from preflight.reports.style import Look

HEIGHT = 8
NARROWEST = 24
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_AXIS = 11
"""Columns of the figures to the left of the drawing."""


class TimelinePoint(Protocol):
    """A moment of a step; bytes."""

    @property
    def phase(self) -> str: ...
    @property
    def allocated(self) -> int: ...


def drawn(points: Sequence[TimelinePoint], outside: int, capacity: int | None, look: Look) -> list[str]:
    """The lines of the drawing; none if there is no room. `outside`: bytes of the process that the points do not hold
    (the cache of the allocator and the context). They are the base of every column."""
    width = look.width - _AXIS - 2
    if not points or width < NARROWEST:
        return []
    columns = _columns(points, width)
    heights = [outside + max(point.allocated for point in column) for column in columns]
    peak = max(heights)
    # A capacity far above the peak would make the drawing flat, so it is left out.
    near = capacity if capacity is not None and peak / 3 <= capacity <= 4 * peak else None
    top = max(peak, near or 0)
    lines = [*_rows(heights, top, near, look)]
    return [*lines, *_phases([column[0].phase for column in columns], look)]


def _columns(points: Sequence[TimelinePoint], width: int) -> list[list[TimelinePoint]]:
    """Points in at most `width` columns. No column has two phases."""
    runs = [list(run) for _, run in groupby(points, key=lambda point: point.phase)]
    free = max(width - len(runs), 0)
    found: list[list[TimelinePoint]] = []
    for run in runs:
        count = max(1, min(len(run), 1 + free * len(run) // len(points)))
        edges = [round(i * len(run) / count) for i in range(count + 1)]
        found += [run[a:b] for a, b in pairwise(edges) if b > a]
    return found[:width]


def _rows(heights: Sequence[int], top: int, capacity: int | None, look: Look) -> Iterator[str]:
    line = None if capacity is None else min(int(capacity * HEIGHT / top), HEIGHT - 1)
    for row in range(HEIGHT - 1, -1, -1):
        cells = []
        for height in heights:
            filled = height * HEIGHT / top - row
            cell = _EIGHTHS[max(0, min(8, round(filled * 8)))]
            if not look.unicode:
                cell = "#" if filled >= 0.5 else " "
            if row == line and cell == " ":
                cell = "-" if not look.unicode else "┄"
            over = capacity is not None and height > capacity
            cells.append(look.paint(cell, "red" if over else "blue") if cell.strip("┄- ") else look.paint(cell, "dim"))
        label = (
            f"{top * (row + 1) / HEIGHT / 2**30:8.1f} ┤"
            if look.unicode
            else f"{top * (row + 1) / HEIGHT / 2**30:8.1f} |"
        )
        limit = " " + look.paint("GPU", "dim") if row == line else ""
        yield f"  {label if row % 2 else ' ' * 9 + label[-1]}" + "".join(cells).rstrip() + limit


def _phases(phases: Sequence[str], look: Look) -> Iterator[str]:
    text = ""
    for phase, run in groupby(phases):
        width = len(list(run))
        name = phase if len(phase) < width else phase[: max(width - 1, 0)]
        text += ("└" if look.unicode else "'") + name.ljust(width - 1) if width > 1 else ("└" if look.unicode else "'")
    yield " " * (_AXIS + 1) + look.paint(text.rstrip(), "dim")
