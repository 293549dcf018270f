"""The line that says on a terminal what is being done: drawn when a second has passed, removed at the end.

It is no part of the report. Pipes, logs and services see none of it, and a kept result holds none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from preflight.reports.streams import in_line, terminal
from preflight.reports.style import look_for
from preflight.vocabulary.progress import QUIET, Shown

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

WAIT_S = 1.0
"""Seconds that nobody wonders about."""
_SPINNER = 2
"""Columns of the sign before the text, and of the blank after it."""


class Timer(Protocol):
    """What calls a function once, unless it is cancelled before: `threading.Timer`."""

    def start(self) -> None: ...
    def cancel(self) -> None: ...


def _timer(seconds: float, call: Callable[[], None]) -> Timer:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    return timer


def shown_on(stream: TextIO | None, environment: Mapping[str, str], quiet: bool = False) -> Shown:
    """The line on a stream. Nothing where nobody looks at it: no terminal, a service's log, or `quiet`."""
    service = environment.get("CI", "").lower() not in ("", "0", "false")
    if quiet or service or environment.get("TERM") == "dumb" or stream is None or not terminal(stream):
        return QUIET.shown
    return Line(stream).shown


class Line:
    """One line on a terminal. It begins with the outermost context and ends with it; inner ones are parts of the text.

    A timer draws it, since what takes long may be a single step. rich is imported then: a short run pays nothing.
    """

    def __init__(self, stream: TextIO, timer: Callable[[float, Callable[[], None]], Timer] = _timer) -> None:
        self._stream, self._make_timer = stream, timer
        self._steps: list[str] = []
        self._timer: Timer | None = None
        self._status: Status | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    @contextmanager
    def shown(self, what: str) -> Iterator[None]:
        """The line says `what` in this context. A copy in another process says nothing."""
        if os.getpid() != self._process:
            yield
            return
        if not self._steps:
            self._timer = self._make_timer(WAIT_S, self._draw)
            self._timer.start()
        self._steps.append(what)
        self._renew()
        try:
            yield
        finally:
            self._steps.pop()
            if self._steps:
                self._renew()
            else:
                self._end()

    def __reduce__(self) -> tuple[type[_Nothing], tuple[()]]:
        return _Nothing, ()

    def _draw(self) -> None:
        """Begins to show the line; what the timer calls."""
        from rich.console import Console
        from rich.text import Text

        with self._lock:
            if not self._steps or self._status is not None:
                return
            spinner = "dots" if look_for(self._stream).unicode else "line"
            self._status = Console(file=self._stream).status(Text(), spinner=spinner)
            self._status.update(self._text(self._status))
            self._status.start()

    def _renew(self) -> None:
        with self._lock:
            if self._status is not None:
                self._status.update(self._text(self._status))

    def _text(self, status: Status) -> Text:
        """What is done, cut to the width of the terminal. A Text: brackets in a name are no markup."""
        from rich.text import Text

        text = Text(in_line(": ".join(self._steps), self._stream))
        text.truncate(max(status.console.width - _SPINNER - 1, 1), overflow="ellipsis")
        return text

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._status is not None:
                self._status.stop()
                self._status = None


class _Nothing:
    """What another process gets in place of the line."""

    shown = staticmethod(QUIET.shown)
