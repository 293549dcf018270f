"""Whether models that no shipped law knows may be traced: decided once, and passed to whoever asks for laws."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

Shown = Callable[[str], AbstractContextManager[object]]


def anything(path: Path) -> bool:
    """Every file may be read: the Job is the caller's own."""
    return True


@dataclass(frozen=True)
class Tracing:
    """Whether unknown models are traced, and by which Python (None: this one)."""

    allowed: bool = True
    interpreter: str | None = None
    trusted: bool = False
    """Whether import targets of the user's own may be imported (`--trust`)."""
    may_read: Callable[[Path], bool] = anything
    """Whether a law that a Job names by its file may be read."""
    shown: Shown = field(default=nullcontext, compare=False)
    """Entered with the model's name for as long as it is traced: a terminal says what it waits for."""


TRACE = Tracing()
"""Unknown models are traced by this Python, where it has torch."""
SHIPPED_ONLY = Tracing(allowed=False)
"""Nothing is traced."""
