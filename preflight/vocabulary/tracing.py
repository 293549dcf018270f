"""Tracing policy: whether models without a shipped law may be traced, and by which interpreter. It is decided once and
passed to all code that looks up laws."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

Shown = Callable[[str], AbstractContextManager[object]]


def anything(path: Path) -> bool:
    """Every file may be read: the caller wrote the Job."""
    return True


@dataclass(frozen=True)
class Tracing:
    """Whether models without a shipped law are traced, and by which Python (None: this one)."""

    allowed: bool = True
    interpreter: str | None = None
    trusted: bool = False
    """Whether import targets of the user's own may be imported (`--trust`)."""
    may_read: Callable[[Path], bool] = anything
    """Whether a law that a Job names by its file may be read."""
    shown: Shown = field(default=nullcontext, compare=False)
    """A context, entered with the model's name while it is traced, so that a terminal can show the name."""


TRACE = Tracing()
"""Models without a shipped law are traced by this Python, if it has torch."""
SHIPPED_ONLY = Tracing(allowed=False)
"""Nothing is traced."""
