"""NCCL's buffers: nvidia-smi counts them, PyTorch's allocator does not.

A communicator has, per channel and connection, a buffer of each protocol (NCCL, src/init.cc, computeBuffSizes): LL with
8 lines x 512 threads x 8 steps x 16 bytes, LL128 with 120 elements x 640 threads x 8 steps x 8 bytes, Simple with 4 MiB
(NCCL_BUFFSIZE). Rings connect to one rank a channel, trees to up to four. Channels are 2 to 32, by topology
(NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS), which no file of a job states: so a range, and the measured one of the GPU's
family (preflight/machines/gpus.json) where there is one communicator.
"""

from __future__ import annotations

from preflight.memory.device.parallel.layout import layouts
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.values import Unknown

STEPS = 8
LL_BYTES = 8 * 512 * STEPS * 16
LL128_BYTES = 120 * 640 * STEPS * 8
SIMPLE_BYTES = 4 * 2**20
CHANNELS = (2, 16, 32)
CONNECTIONS = (1, 2, 5)
"""The next rank of a ring; with it a neighbour in the tree; with it all four of a tree's."""


def connection_bytes() -> int:
    """Bytes of one connection of one channel."""
    return LL_BYTES + LL128_BYTES + SIMPLE_BYTES


def communicator_bytes(channels: int, connections: int) -> int:
    """Bytes of one communicator on one GPU."""
    return channels * connections * connection_bytes()


def buffers(job: Job, gpu: Gpu | None) -> tuple[int, int, int]:
    """(low, expected, high) bytes on one GPU over all communicators.

    A family's measured figure is for one communicator; each further one adds at least a ring of the fewest channels.
    """
    found = layouts(job)
    layout = None if isinstance(found, Unknown) else found.ranks[0]
    ranks = (job.parallel.ranks_per_node or 1) * (job.parallel.nodes or 1)
    if max(ranks, layout.ranks if layout is not None else 1) == 1:
        return 0, 0, 0
    least, usual, most = (communicator_bytes(c, n) for c, n in zip(CHANNELS, CONNECTIONS, strict=True))
    further = max(0, layout.groups - 1) if layout is not None else 0
    first = gpu.nccl if gpu is not None else (least, usual, most)
    return first[0] + further * least, first[1] + further * usual, first[2] + further * most
