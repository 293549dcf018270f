"""Errors of usage and of settings. A mistake in a checked file is a finding, not an error."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class PreflightError(Exception):
    """The command cannot be carried out as asked; the message is one line for the user, exit status 2."""


class UsageError(PreflightError):
    """An argument names something that is not there, or two arguments contradict each other."""


class SettingsError(PreflightError):
    """`[tool.preflight]` or preflight.toml is malformed; the message starts with the file."""

    file: Path | None = None
    """The file, where it belongs to a project."""


class OutputError(PreflightError):
    """Standard output cannot be written: it is closed, or its disk is full."""


class ReaderGone(Exception):
    """The reader of standard output has closed it, as `| head` does."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` where a known name is close to `name`, else nothing."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def too_much(error: BaseException) -> str:
    """Which limit of Python an input exceeds, in words that follow "it"; "" for any other error, which is our bug."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    if isinstance(error, ValueError) and "integer string conversion" in str(error):
        return "holds a number of thousands of digits"
    return ""


def debugging() -> bool:
    """Whether the user asks for tracebacks, with PREFLIGHT_DEBUG=1."""
    return os.environ.get("PREFLIGHT_DEBUG", "") not in ("", "0")


def debug_traceback(error: BaseException) -> tuple[str, ...]:
    """The traceback's lines for PREFLIGHT_DEBUG=1, nothing otherwise."""
    if not debugging():
        return ()
    import traceback

    return tuple("".join(traceback.format_exception(error)).splitlines())


class MachineError(Exception):
    """A machine cannot be found or its file is wrong; the message says where (exit status 2)."""
