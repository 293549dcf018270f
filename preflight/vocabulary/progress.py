"""What a run says while it works, and until when it may work. Both are decided by the command, and passed to all loops
that may take long.

Nothing here interrupts anything: a loop asks between two of its steps. `Progress.check` ends what is under way, by an
exception that the engine turns into "not judged". Nobody else may take it for a failure, or keep it as a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct

from preflight.system import observed
from preflight.vocabulary.errors import PreflightError

Shown = Callable[[str], AbstractContextManager[object]]
"""A context, entered with what is being done: "judging study 2 of 5 (train.sh)". Contexts in it are its parts."""

OPTION = "--time-limit"


class TimeOver(PreflightError):
    """The time limit is over, and what was under way is not known. Where no loop stops at it, the command fails."""


class Deadline(Struct, frozen=True):
    """When a run has to end: the `seconds` that it was given, and that moment on its clock."""

    seconds: float
    end: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """So many seconds from now on."""
        return cls(seconds, clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds that are left, none when it is over."""
        return max(0.0, self.end - self.clock())

    def __str__(self) -> str:
        return f"within {self.seconds:g} s ({OPTION})"


class Progress(Struct, frozen=True):
    """What loops ask: say what is done (`shown`), and stop when the time is over."""

    shown: Shown = nullcontext
    deadline: Deadline | None = None

    def over(self) -> bool:
        """Whether the time is over. A result that depends on it holds for this run alone."""
        if self.deadline is None or self.deadline.left > 0:
            return False
        observed.not_final(f"not finished {self.deadline}")
        return True

    def check(self) -> None:
        """Raises TimeOver when the time is over."""
        if self.over():
            raise TimeOver(f"not finished {self.deadline}")

    def seconds(self, most: float) -> float:
        """How long a program may run that gets at most so many seconds. Raises TimeOver."""
        self.check()
        return most if self.deadline is None else min(most, self.deadline.left)


QUIET = Progress()
"""Says nothing, and has all the time there is."""
