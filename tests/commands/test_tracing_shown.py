"""What a terminal shows while a model is traced; pipes show nothing."""

from __future__ import annotations

import io
import sys

import pytest

from preflight.commands.options import tracing_shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with tracing_shown()(name):
        pass
    return stream.getvalue()


def test_a_pipe_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), "gpt2", monkeypatch) == ""


def test_a_terminal_shows_the_name_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tracing my[red]model" in shown(Terminal(), "my[red]model\x1b[2J", monkeypatch)
