"""What the host's memory will not hold, from what was seen of it in the first minutes.

Three signs: the law with the measured size of a sample, workers that grow with each batch, and a control group that is
nearly full or whose processes wait for memory. The last is the earliest sign of a kill, and certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.watched import WatchedHost, WatchedRank
from preflight.vocabulary.words import gib

PRESSING = 10.0
"""Per cent of the last ten seconds in which all processes waited for memory."""
NEARLY_FULL = 0.95
"""Of the limit."""


@dataclass(frozen=True)
class HostForecast:
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
