"""Drawings with characters: memory during a step, and the map of `preflight estimate --map`.

A column of a step is a part of it, its height the memory of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from preflight.reports.figures import StepPoint, in_map, map_figure, step_figure
from preflight.reports.style import Cell, Look, table
from preflight.vocabulary.estimates import DeviceEstimate, Estimates
from preflight.vocabulary.job import Job

HEIGHT = 8
NARROWEST = 24
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_AXIS = 11
"""Columns of the figures to the left of the drawing."""
_STYLES = {"fits": "green", "fits-if": "cyan", "at-risk": "yellow", "exceeds": "bold red", "unknown": ""}


def drawn(points: Sequence[StepPoint], outside: int, capacity: int | None, look: Look) -> list[str]:
    """The lines of the drawing; none if there is no room. `outside`: bytes of the process that the points do not hold
    (the cache of the allocator and the context). They are the base of every column."""
    width = look.width - _AXIS - 2
    figure = step_figure(points, outside, capacity, width) if width >= NARROWEST else None
    if figure is None:
        return []
    lines = [*_rows([column.height for column in figure.columns], figure.top, figure.capacity, look)]
    return [*lines, *_phases([column.phase for column in figure.columns], look)]


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


def drawn_map(job: Job, estimate: Callable[[Job], Estimates], gpu: str, look: Look) -> Iterator[str]:
    """The lines: a column for each length that the model accepts, a row for each batch until nothing fits."""
    found = map_figure(job, estimate, gpu)
    if not found.sizes:
        yield f"no map: the memory of this model is unknown at every {found.what}"
        return
    yield look.paint(found.legend, "bold")
    rows: list[list[Cell]] = [[str(batch), *map(_text, cells)] for batch, cells in found.rows]
    headings = ("batch", *found.headings)
    yield from table(rows, look, headings, right=range(len(headings)))


def _text(cell: DeviceEstimate | None) -> tuple[str, str]:
    """A figure after its mark, and its style."""
    return in_map(cell), "" if cell is None else _STYLES[cell.verdict]
