"""Tracing policy: whether models without a shipped law may be traced, and by which interpreter. It is decided once and
passed to all code that looks up laws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from preflight.vocabulary.budgets import TraceTime
from preflight.vocabulary.progress import QUIET, Progress


def anything(path: Path) -> bool:
    """Every file may be read: the caller wrote the Job."""
    return True


class Tracing(Struct, frozen=True, eq=False):
    """Whether models without a shipped law are traced, and by which Python (None: this one)."""

    allowed: bool = True
    interpreter: str | None = None
    trusted: bool = False
    """Whether import targets of the user's own may be imported (`--trust`)."""
    may_read: Callable[[Path], bool] = anything
    """Whether a law that a Job names by its file may be read. Not compared: each check has a function of its own, that
    says the same where the trust is the same (`CheckSetup.trust`)."""
    progress: Progress = QUIET
    """What says which model is traced, and until when traces and estimates may be made."""
    compiled: bool = True
    """Whether steps under torch.compile are traced too; if not, the law of the plain step and a wider interval stand
    for them."""
    time: TraceTime | None = None
    """What the traces of a check may use together; None: each has its own limit alone."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tracing) and self._policy == other._policy

    def __hash__(self) -> int:
        return hash(self._policy)

    @property
    def _policy(self) -> tuple[bool, str | None, bool, bool]:
        return self.allowed, self.interpreter, self.trusted, self.compiled


TRACE = Tracing()
"""Models without a shipped law are traced by this Python, if it has torch."""
SHIPPED_ONLY = Tracing(allowed=False)
"""Nothing is traced."""
