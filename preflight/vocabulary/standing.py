"""Standing: how well a value is known. Assumption: a value that is not known well, and that a verdict depends on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Standing(Enum):
    """How the value of a Job field is known. It decides which verdicts are allowed."""

    read = "read"
    """From files, the request or the user's own settings, with its origin."""
    by_name = "by-name"
    """From a setting whose name suggests the field."""
    default = "default"
    """Of a library, or of the Job, where nothing that was not read can change it."""
    assumed = "assumed"
    """A default, or a file of the checked tree, that something unread may replace."""
    dry_run = "dry-run"
    """Seen when the user's own command ran with CUDA faked."""
    measured = "measured"
    """Seen in a real run."""
    unknown = "unknown"

    @property
    def holds(self) -> bool:
        """Whether "fits" may stand on a value that is known in this way."""
        return self not in (Standing.by_name, Standing.assumed, Standing.unknown)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A Job field whose value is not known well, with the value that the estimate has and the reason.

    `why` is for the user and completes "train.batch_size = 8: ...".
    """

    field: str
    value: object
    standing: Standing
    why: str
