"""How sure an estimate is: the interval of each tier, as fractions of the figure.

The widths are what the decoders measured in docs/accuracy.md need (allocated within 0.1 %, reserved from -6.5 % to
+0.4 %), rounded up for what those runs do not cover; they are meant to hold nine runs of ten and have been checked on
few. What is known to be harder widens them.
"""

from __future__ import annotations

from preflight.job import Job
from preflight.memory.estimate import Interval

# (below, above) as fractions of the expected bytes.
REQUESTED = (0.01, 0.01)
ALLOCATED = (0.02, 0.03)
RESERVED = (0.04, 0.06)
"""Which cached block serves a request depends on details of timing that no tape has."""
ROUNDED = 0.04
"""What reserved is usually above requested: blocks of 512 bytes and 2 MiB segments, and what is cached at the peak."""
SHARDED = (0.10, 0.15)
COMPILED = (0.30, 0.10)
"""Inductor recomputes and fuses: it mostly saves, and sometimes adds (max-autotune workspaces)."""
CONVOLUTION = (0.10, 0.40)
"""cuDNN workspaces: outside of what the tape knows, up to gigabytes on large feature maps."""


def widen(job: Job, convolutional: bool, sharded: bool) -> tuple[float, float]:
    """What comes on top of a tier's own interval, by what is hard about the job."""
    below = above = 0.0
    for hard, (less, more) in (
        (sharded, SHARDED),
        (bool(job.train.compile), COMPILED),
        (convolutional, CONVOLUTION),
    ):
        if hard:
            below, above = below + less, above + more
    return below, above


def interval(expected: int, base: tuple[float, float], extra: tuple[float, float]) -> Interval:
    """An interval around a figure."""
    return Interval(round(expected * (1 - base[0] - extra[0])), expected, round(expected * (1 + base[1] + extra[1])))
