"""What will not fit, from what was seen so far: the law's figures for later phases, corrected by what was measured, and
the host's memory.

Tiers are not mixed: the law's process bytes of a phase without the context are reserved bytes, and only those are
compared with what the allocator reserved. The host has three signs: its law with the measured size of a sample, workers
that grow with each batch, and a control group that is nearly full or whose processes wait for memory. The last is the
earliest sign of a kill, and certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.watched import PLAUSIBLE, WatchedHost, WatchedRank
from preflight.vocabulary.words import gib

TRAINING = ("forward", "backward", "optimizer")
"""Phases that all have to be seen first: the peak of a step is in one of them."""
LATER = ("validation", "generation", "save")
STEPS = 2
"""Steps after which the optimizer's states are there."""


class Forecast(Struct, frozen=True):
    """A phase to come. `low` and `expected`: process bytes; `residual`: measured over expected."""

    phase: str
    low: int
    expected: int
    capacity: int
    residual: float

    @property
    def certain(self) -> bool:
        """Whether even the low end does not fit."""
        return self.low > self.capacity


def forecast(
    law: DeviceEstimate, seen: Mapping[str, Mapping[str, int]], steps: int, capacity: int | None,
    share: int | None = None,
) -> Forecast | None:  # fmt: skip
    """The first phase to come that is not expected to fit; None: there is none, or nothing can be said yet.

    `share`: what the allocator may reserve at most; the context comes on top.
    """
    context = law.process.expected - law.reserved.expected
    room = capacity or law.capacity
    if share is not None:
        room = min(room or share + context, share + context)
    if room is None or law.lower_bound or steps < STEPS or any(phase not in seen for phase in TRAINING):
        return None
    of_law = {phase: size - context for phase, size in law.phases.items()}
    expected = max((size for phase, size in of_law.items() if _base(phase) in TRAINING), default=0)
    measured = max((peaks.get("reserved", 0) for phase, peaks in seen.items() if phase in TRAINING), default=0)
    if expected <= 0 or measured <= 0:
        return None
    residual = measured / expected
    if not PLAUSIBLE[0] <= residual <= PLAUSIBLE[1]:
        return None
    for phase, size in of_law.items():
        if _base(phase) in LATER and _base(phase) not in seen:
            likely = round(size * residual) + context
            low = round(likely * law.process.low / law.process.expected)
            if likely > room:
                return Forecast(_base(phase), low, likely, room, residual)
    return None


def _base(phase: str) -> str:
    """The phase's name as it is recorded: the law says "optimizer step"."""
    return phase.partition(" ")[0]


PRESSING = 10.0
"""Per cent of the last ten seconds in which all processes waited for memory."""
NEARLY_FULL = 0.95
"""Of the limit."""


class HostForecast(Struct, frozen=True):
    """`kind`: law, growth or pressure; each is said once. `certain`: it is not only expected."""

    kind: str
    text: str
    certain: bool = False


def host_forecasts(
    host: WatchedHost, ranks: tuple[WatchedRank, ...], need: Callable[[int], HostEstimate | None]
) -> Iterator[HostForecast]:
    """What to say now. `need`: of the host, for so many bytes of a decoded sample."""
    limit = host.limit
    if host.pressure > PRESSING:
        words = f"all processes waited for memory in {host.pressure:.0f} % of the last ten seconds"
        yield HostForecast("pressure", words, True)
    elif limit is not None and host.used is not None and host.rising and host.used > NEARLY_FULL * limit:
        words = f"the control group has {gib(host.used)} of {gib(limit)}, and it rises"
        yield HostForecast("pressure", words, True)
    rank = max(ranks, key=lambda one: one.batches, default=None)
    if rank is not None and host.growth and host.used is not None and limit is not None and rank.epoch:
        end = host.used + host.growth * max(0, rank.epoch - rank.batches)
        if end > limit:
            grows = f"the workers grow by {gib(host.growth)} with each batch"
            yield HostForecast("growth", f"{grows}: {gib(end)} of {gib(limit)} at the end of the epoch")
    size = max((one.samples.get("sample_bytes", 0) for one in ranks), default=0)
    found = need(size) if size else None
    room = found.limit if found is not None and found.limit is not None else limit
    if found is not None and room is not None and found.per_node.expected > room:
        need_of_room = f"{gib(found.per_node.expected)} of {gib(room)} of the host's memory"
        words = f"with samples of {size:,} bytes, {found.peak} is expected to need {need_of_room}"
        yield HostForecast("law", words, found.per_node.low > room)
