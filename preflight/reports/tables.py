"""Tables: rich lays them out. On a terminal long cells wrap within their column; in a pipe a row is one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TypeAlias

from preflight.reports.streams import clean
from preflight.reports.style import Look

Cell: TypeAlias = "str | tuple[str, str]"
"""A text, or a text with a style like "bold red"."""
_ENDLESS = 10_000
"""Columns of a pipe: more than any row has."""


def table(
    rows: Iterable[Sequence[Cell]], look: Look, headings: Sequence[str] = (), right: Sequence[int] = (), indent: int = 2
) -> list[str]:
    """The lines of a table. `right`: the numbers of the columns that are aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(clean(one)) if isinstance(one, str) else Text(clean(one[0]), one[1]) for one in row] for row in rows]
    if not cells:
        return []
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings))
    for number in range(max(map(len, cells))):
        heading = Text(clean(headings[number])) if headings else ""
        drawn.add_column(heading, justify="right" if number in right else "left", header_style="bold", overflow="fold")
    for row in cells:
        drawn.add_row(*row)
    out = StringIO()
    width = look.width - indent if look.terminal else _ENDLESS
    console = Console(
        file=out, width=width, color_system="standard" if look.colour else None, force_terminal=look.colour, _environ={}
    )
    console.print(drawn)
    return [" " * indent + line.rstrip() for line in out.getvalue().splitlines()]
