"""The line of progress: where it must not appear, what it must not contain, and what it says."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest

from preflight.reports.progress import Line, shown_on
from preflight.vocabulary.progress import QUIET

TERM = {"TERM": "xterm"}


class Terminal(io.StringIO):
    """80 columns, no encoding of its own."""

    def isatty(self) -> bool:
        return True


class Timer:
    """Calls when the test says so."""

    made: list[Timer]

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds, self.call, self.running = seconds, call, False
        Timer.made.append(self)

    def start(self) -> None:
        self.running = True

    def cancel(self) -> None:
        self.running = False


@pytest.fixture(autouse=True)
def no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    Timer.made = []
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("stream", "environment", "quiet"),
    [
        (None, TERM, False),
        (io.StringIO(), TERM, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {**TERM, "CI": "true"}, False),
        (Terminal(), {**TERM, "CI": "1"}, False),
        (Terminal(), TERM, True),
    ],
)
def test_where_nobody_looks_nothing_is_shown(
    stream: io.StringIO | None, environment: dict[str, str], quiet: bool
) -> None:
    assert shown_on(stream, environment, quiet) is QUIET.shown


@pytest.mark.parametrize("environment", [TERM, {}, {**TERM, "CI": "false"}, {**TERM, "CI": ""}])
def test_a_terminal_gets_the_line(environment: dict[str, str]) -> None:
    assert shown_on(Terminal(), environment) is not QUIET.shown


def test_a_short_run_writes_nothing_and_does_not_import_rich() -> None:
    code = (
        "import io, sys\n"
        "from preflight.reports.progress import Line\n"
        "class T(io.StringIO):\n"
        "    isatty = lambda self: True\n"
        "stream = T()\n"
        "with Line(stream).shown('checking'):\n"
        "    pass\n"
        "print(repr(stream.getvalue()), 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert done.stdout == "'' False\n"


def test_the_line_begins_after_a_second_and_is_gone_at_the_end() -> None:
    stream = Terminal()
    line = Line(stream, Timer)
    with line.shown("reading 1 of 2 files (a.py)"):
        assert stream.getvalue() == ""
        [timer] = Timer.made
        assert (timer.seconds, timer.running) == (1.0, True)
        timer.call()
    assert not timer.running
    said = stream.getvalue()
    assert "reading 1 of 2 files (a.py)" in said
    assert said.endswith("\x1b[1A\x1b[2K")  # one line up, and cleared
    timer.call()  # a timer that was about to call when the run ended
    assert stream.getvalue() == said


def test_the_line_follows_what_is_done() -> None:
    stream = Terminal()
    line = Line(stream, Timer)
    with line.shown("preflight"):
        Timer.made[0].call()
        with line.shown("judging study 1 of 1 (s.yaml)"), line.shown("tracing gpt2"):
            assert line._status is not None
            assert str(line._status.status) == "preflight: judging study 1 of 1 (s.yaml): tracing gpt2"
        assert str(line._status.status) == "preflight"


def test_the_line_goes_when_the_run_fails() -> None:
    stream = Terminal()
    line = Line(stream, Timer)

    def interrupted() -> None:
        with line.shown("preflight"):
            Timer.made[0].call()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert line._status is None
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


def test_names_of_files_are_harmless() -> None:
    stream = Terminal()
    line = Line(stream, Timer)
    with line.shown("reading my[red]model\x1b[2J\x07\n\u202e\udcff.py"):
        Timer.made[0].call()
    said = stream.getvalue()
    assert "reading my[red]model\\x1b[2J\\x07 \\u202e\\udcff.py" in said
    assert "\x1b[2J" not in said
    assert "\x07" not in said


def test_the_line_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    line = Line(stream, Timer)
    with line.shown("x" * 500):
        Timer.made[0].call()
        assert line._status is not None
        assert len(str(line._status.status)) == 37
    assert all(len(part) < 80 for part in stream.getvalue().split("\n"))


def test_a_copy_in_another_process_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    line = Line(stream, Timer)
    assert pickle.loads(pickle.dumps(line.shown)) is QUIET.shown  # a process that was started
    with line.shown("preflight"):
        monkeypatch.setattr(os, "getpid", lambda: -1)  # a process that was forked
        with line.shown("judging"):
            assert line._steps == ["preflight"]
        monkeypatch.undo()
