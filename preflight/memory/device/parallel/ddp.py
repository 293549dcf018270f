"""DistributedDataParallel: gradients are copied into flat buckets that are reduced, or are views of them.

torch/nn/parallel/distributed.py (_BucketCapacityConfig, _ddp_init_helper) and torch/csrc/distributed/c10d/reducer.cpp
(compute_bucket_assignment_by_size, initialize_buckets, rebuild_buckets). Buckets are made with the module, as one
(unless find_unused_parameters), and again before the second iteration, in the order in which gradients came; the old
ones are freed first, and the bytes are the same. A static graph changes when they are reduced, not what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.parallel.edit import TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.zero import copied

MIB = 2**20
FIRST_BUCKET = MIB
"""kDefaultFirstBucketBytes of reducer.hpp: used with the default capacity only."""
BUCKET_MIB = 25


def bucket_sizes(params: Sequence[tuple[int, int]], limits: Sequence[int]) -> list[list[int]]:
    """Indices of the parameters (elements, bytes per element) of each bucket, in the order the buckets are filled.

    Each type fills a bucket of its own; one is closed as soon as it holds its limit, and the last limit goes on
    holding (compute_bucket_assignment_by_size). Types are told apart by their width alone.
    """
    open_ones: dict[int, tuple[list[int], int]] = {}
    turns: dict[int, int] = {}
    closed: list[list[int]] = []
    for index, (elements, nbytes) in enumerate(params):
        indices, held = open_ones.get(nbytes, ([], 0))
        indices, held = [*indices, index], held + elements * nbytes
        turn = turns.get(nbytes, 0)
        if held >= limits[turn]:
            closed.append(indices)
            indices, held = [], 0
            turns[nbytes] = min(turn + 1, len(limits) - 1)
        open_ones[nbytes] = (indices, held)
    closed += [indices for indices, _ in open_ones.values() if indices]
    return sorted(closed, key=min)


def limits(layout: ShardLayout) -> tuple[int, ...]:
    """Bytes at which the first bucket and the following ones are closed, once they have been rebuilt."""
    cap = layout.options.count("bucket_cap_mb")
    if cap is None:
        return FIRST_BUCKET, BUCKET_MIB * MIB
    return (cap * MIB,)


def bucket_bytes(trainable: Sequence[tuple[int, int]], layout: ShardLayout) -> list[int]:
    """Bytes of each rebuilt bucket; gradients come in the reverse order of the parameters."""
    if layout.data == 1:
        return []
    params = list(reversed(trainable))
    return [sum(params[n][0] * params[n][1] for n in each) for each in bucket_sizes(params, limits(layout))]


def rank_tape(made: MadeLaw, layout: ShardLayout) -> Tape:
    """The tape of one rank: with gradient_as_bucket_view a gradient dies when it has been copied into its bucket."""
    if layout.data == 1 or not layout.options.flag("gradient_as_bucket_view"):
        return made.tape
    script = TapeEdits(made.tape)
    for edit in script.edits:
        edit.rewrite = copied
    return script.done()
