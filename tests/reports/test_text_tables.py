"""Tables: what a cell holds never drives the terminal; a pipe gets a row a line, a terminal wraps within the column."""

from __future__ import annotations

import re

import pytest

from preflight.reports.streams import safe
from preflight.reports.style import Look, table

LONG = "word " * 30
PIPE, TERMINAL = Look(), Look(colour=True, width=60, terminal=True)
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.mark.parametrize("look", [PIPE, TERMINAL])
@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "[red]b[/]", "[/]", ":smile:", "\x1b[1m", "\u202eb", "\ud800"])
def test_text_of_a_cell_is_shown_and_not_obeyed(text: str, look: Look) -> None:
    [line] = table([[text, ("end", "bold")]], look)
    shown = safe(line, colour=look.colour)
    assert shown == line
    assert "\x1b" not in COLOUR.sub("", shown) if look.colour else "\x1b" not in shown
    assert ("[red]" in text) == ("[red]b[/]" in shown)


def test_a_row_is_one_line_of_a_pipe() -> None:
    assert table([["name", LONG]], PIPE) == ["  name  " + LONG.rstrip()]


def test_a_terminal_wraps_within_the_column() -> None:
    lines = [COLOUR.sub("", line) for line in table([["name", LONG]], TERMINAL)]
    assert len(lines) > 1
    assert max(map(len, lines)) <= TERMINAL.width
    assert all(line.startswith(" " * 8) for line in lines[1:])


def test_a_terminal_cuts_no_word_and_no_other_column() -> None:
    path = "a/very/long/path/that/is/wider/than/the/terminal/of/this/test.yaml:12:3"
    lines = [COLOUR.sub("", line) for line in table([["field", "value " * 9, f"{path} and so on"]], TERMINAL)]
    assert path in lines[0]
    assert "value " * 8 + "value" in lines[0]
    assert lines[1].strip() == "and so on"


def test_columns_are_aligned() -> None:
    lines = table([["a", "1.5", "x"], ["long", "22.5", ""]], PIPE, ("name", "GiB", ""), right=(1,), indent=0)
    assert lines == ["name   GiB", "a      1.5  x", "long  22.5"]


def test_an_empty_table_has_no_lines() -> None:
    assert table([], PIPE) == []


def test_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in "".join(table([[("a", "bold red")]], PIPE))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" in "".join(table([[("a", "bold red")]], TERMINAL))
