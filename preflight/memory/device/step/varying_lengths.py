"""Batches of varying lengths: cached blocks of shorter batches, from a replay of some before the
longest.

A block that a shorter batch left is too small for a longer one, and only in part taken by a shorter one. So where a
collator pads to the longest sample of each batch, reserved memory grows with every new longest batch, by all that this
batch holds, until the card is full and cached segments are given back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from preflight.memory.device.step.effect import Again, Effect
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.job import Job

EARLIER = 8
"""Batches before the longest."""
MOST = 2.5
"""How much of what these batches leave cached a run may have: of 56 measured runs whose lengths vary (ms-swift's) 52
have from none to 2.3 times it, and four more, up to 5 times; replays of 200 batches of random lengths 0.5 to 2.5."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_LENGTHS = ("s", "t")


class VaryingLengths(Effect):
    """Cached blocks that batches of other lengths leave in the allocator."""

    def reserved(self, prepared: PreparedJob, found: Interval, again: Again) -> Interval:
        batches = earlier(prepared.job, prepared.dims)
        dynamic = prepared.job.train.sequences == "dynamic"
        if not batches or again.room is None or again.room <= (found.expected if dynamic else found.high):
            return found  # a full GPU keeps nothing of the batches before
        varied = again.reserved(prepared, batches).expected
        return interval(found, varied, again.room, dynamic)


def earlier(job: Job, dims: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """Lengths of the batches before the longest, where the job says that they vary; none where it does not say.

    Which lengths the data have is not known. These are spread evenly over all that are allowed, in the order of the
    golden ratio's multiples, which is as even after any number of them.
    """
    said = "sequences" in job.train.model_fields_set and job.train.sequences in ("dynamic", "bound")
    free = [name for name in _LENGTHS if name in dims]
    if not said or not free or job.train.image_size is not None:
        return ()
    shares = ((0.5 + n * _GOLDEN) % 1 for n in range(EARLIER))
    return tuple({name: max(1, math.ceil(share * dims[name])) for name in free} for share in shares)


def interval(steady: Interval, varied: int, room: int, dynamic: bool) -> Interval:
    """Reserved bytes where lengths vary, from those of equal batches (`steady`) and those of a replay with `earlier`.

    `room`: what can be reserved of the card. Cached blocks are given back before memory runs out, so they do not make
    a job exceed it. `dynamic`: samples of the longest length are rare, since nothing is cut to it; where they are cut
    it may come first, and then nothing is left behind.
    """
    kept = max(0, varied - steady.expected)
    expected = steady.expected + (kept if dynamic else 0)
    high = max(steady.high, steady.expected + round(MOST * kept))
    return Interval(steady.low, max(steady.expected, min(expected, room)), max(steady.high, min(high, room)))
