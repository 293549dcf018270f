"""The look of text: colours, wrapped lines, tables. Colours are plain ANSI escapes; rich is imported for a table."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Literal, TextIO, TypeAlias

from msgspec import Struct

from preflight.reports.streams import clean, coloured, terminal
from preflight.vocabulary.findings import Severity
from preflight.vocabulary.words import VERDICTS

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
COLOURS = {Severity.error: "bold red", Severity.warning: "bold yellow", Severity.info: "bold cyan"}
_VERDICTS = {
    "fits": "bold green",
    "fits-if": "bold cyan",
    "unknown": "bold cyan",
    "at-risk": "bold yellow",
    "exceeds": "bold red",
}

Cell: TypeAlias = "str | tuple[str, str]"
"""A text, or a text with a style like "bold red"."""
Detail: TypeAlias = Literal["line", "short", "all"]
"""How much the text says of a finding: one line, at most eight, or everything."""
_ENDLESS = 10_000
"""Columns of a pipe: more than any row has."""


class Look(Struct, frozen=True):
    """How text may look: colours, characters beyond ASCII, columns, and whether it goes to a terminal."""

    colour: bool = False
    unicode: bool = True
    width: int = 100
    terminal: bool = False
    detail: Detail = "short"

    def paint(self, text: str, style: str) -> str:
        """`text` in a style like "bold red"; unchanged without colours."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"


def verdict(name: str, look: Look) -> str:
    """A verdict in words, in its colour."""
    return look.paint(VERDICTS.get(name, name), _VERDICTS[name])


def look_for(stream: TextIO | None, environment: Mapping[str, str] | None = None, detail: Detail = "short") -> Look:
    """The look for a stream: colours on a terminal unless NO_COLOR is set, and anywhere where FORCE_COLOR is."""
    env = os.environ if environment is None else environment
    width = 100
    if terminal(stream) or env.get("COLUMNS", "").isdecimal():
        width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 140))
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    unicode = encoding.startswith("utf") or encoding == "gb18030"
    return Look(coloured(stream, env), unicode, width, terminal(stream), detail)


def columns(text: str) -> int:
    """Terminal columns that a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def wrap(text: str, width: int, indent: str, used: int = 0) -> str:
    """`text` broken at spaces into lines of `width` columns, `used` of them already taken on the first.

    Following lines start with `indent`; blanks before the first word stay. A word longer than a line stays whole.
    """
    lead = text[: len(text) - len(text.lstrip(" "))]
    lines: list[str] = []
    line, used = "", used + len(lead)
    for word in text[len(lead) :].split(" "):
        room = width - (len(indent) if lines else used)
        if line and columns(line) + 1 + columns(word) > max(room, 20):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return lead + f"\n{indent}".join([*lines, line])


def note(kind: str, text: str, look: Look, gutter: int) -> Iterator[str]:
    """A remark under a finding: "= kind: text"."""
    lead = " " * (gutter + 1)
    indent = lead + "  " + " " * (len(kind) + 2)
    body = wrap(clean(text), look.width, indent, len(indent))
    yield f"{lead}{look.paint('=', 'bold blue')} {look.paint(kind, 'bold')}: {body}"


def table(
    rows: Iterable[Sequence[Cell]], look: Look, headings: Sequence[str] = (), right: Sequence[int] = (), indent: int = 2
) -> list[str]:
    """The lines of a table. `right`: the numbers of the columns that are aligned to the right.

    On a terminal the last column wraps between words. In a pipe a row is one line.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(clean(one)) if isinstance(one, str) else Text(clean(one[0]), one[1]) for one in row] for row in rows]
    if not cells:
        return []
    titles = [Text(clean(one)) for one in headings] or [Text() for _ in cells[0]]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(headings), header_style="bold")
    for number, title in enumerate(titles):
        drawn.add_column(title, justify="right" if number in right else "left", no_wrap=number < len(titles) - 1)
    for row in cells:
        drawn.add_row(*row)
    width = max(look.width - indent, _narrowest([[one.plain for one in row] for row in (titles, *cells)]))
    console = Console(
        file=StringIO(),
        width=width if look.terminal else _ENDLESS,
        color_system="standard" if look.colour else None,
        force_terminal=look.colour,
        _environ={},
    )
    with console.capture() as drawing:
        console.print(drawn)
    return [" " * indent + line.rstrip() for line in drawing.get().splitlines()]


def _narrowest(rows: Sequence[Sequence[str]]) -> int:
    """Columns without which a cell, or a word of the last column (a path, say), would be cut."""
    *fixed, last = zip(*rows, strict=True)
    words = [word for text in last for word in text.split()]
    return sum(max(map(columns, cells)) + 2 for cells in fixed) + max(map(columns, words), default=0)
