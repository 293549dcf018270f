"""What recorded runs used of what they had, beside what was forecast. Sizes are bytes."""

from __future__ import annotations

from msgspec import Struct


class UsedGroup(Struct, frozen=True):
    """The runs of one team with one model on one kind of GPU. None: no run says it.

    `predicted` and `measured` are medians over jobs, of reserved bytes, and `ratio` the median of their ratios.
    `most`: the highest peak of the process that a run came to an end with. `unused` and `node_unused`: medians over
    runs of what was asked for and never used, on a GPU and on a node.
    """

    team: str
    model: str
    gpu: str
    runs: int
    jobs: int
    out_of_memory: int
    predicted: int | None = None
    measured: int | None = None
    ratio: float | None = None
    most: int | None = None
    capacity: int | None = None
    unused: int | None = None
    unused_hours: float = 0.0
    """GiB of GPUs that were held and not used, times hours."""
    smaller_gpu: str | None = None
    """The smallest GPU that holds `most` and can do what the jobs ask for, where the one that was used is larger."""
    node_limit: int | None = None
    node_unused: int | None = None


class BackTest(Struct, frozen=True):
    """How often a measured peak lay in the interval that was forecast for it, a job once for each team.

    `below` and `above` the interval; `share` inside, and the ends of the 95 % interval around it.
    """

    tier: str
    jobs: int
    inside: int
    below: int
    above: int
    share: float
    low: float
    high: float


class Usage(Struct, frozen=True):
    """The report. `promised`: the share of jobs that an interval is made for. `missed`: jobs that ran out of memory on
    a GPU that the whole forecast interval fitted, of `died` that ran out and had a forecast."""

    groups: tuple[UsedGroup, ...] = ()
    tests: tuple[BackTest, ...] = ()
    promised: float = 0.9
    missed: int = 0
    died: int = 0
    runs: int = 0
    jobs: int = 0
    left_out: int = 0
    """Runs whose command was not read, so that their job is not known."""
    notes: tuple[str, ...] = ()
    """Records that could not be read."""
