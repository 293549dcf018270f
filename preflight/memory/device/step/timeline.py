"""What lies on the GPU through one training step: the second iteration of the replay, moment by moment."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.vocabulary.estimates import Moment

MOST_POINTS = 400
"""Points that a drawing gets: a terminal has fewer columns, and a figure no finer pixels."""


class Recorder:
    """Writes down what a replay holds after every event, while it is on."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.on = False

    def note(self, phase: str, allocated: int, reserved: int, parts: Sequence[int]) -> None:
        if self.on:
            self.moments.append(Moment(phase, allocated, reserved, tuple(parts)))


def thinned(moments: Sequence[Moment], most: int = MOST_POINTS) -> tuple[Moment, ...]:
    """At most about `most` moments, in order: of each stretch of one phase its highest and its lowest, so that no peak
    is lost."""
    width = max(1, 2 * len(moments) // max(most, 2))
    kept: list[Moment] = []
    start = 0
    while start < len(moments):
        end = start + 1
        while end < min(start + width, len(moments)) and moments[end].phase == moments[start].phase:
            end += 1
        stretch = range(start, end)
        low = min(stretch, key=lambda i: moments[i].allocated)
        high = max(stretch, key=lambda i: moments[i].allocated)
        kept += [moments[i] for i in sorted({low, high})]
        start = end
    return tuple(kept)
