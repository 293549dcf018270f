"""Whether models that no shipped law knows may be traced: decided once, and passed to whoever asks for laws."""

from __future__ import annotations

from preflight.records import dataclass


@dataclass(frozen=True)
class Tracing:
    """Whether unknown models are traced, and by which Python (None: this one)."""

    allowed: bool = True
    interpreter: str | None = None
    trusted: bool = False
    """Whether import targets of the user's own may be imported (`--trust`)."""


TRACE = Tracing()
"""Unknown models are traced by this Python, where it has torch."""
SHIPPED_ONLY = Tracing(allowed=False)
"""Nothing is traced."""
