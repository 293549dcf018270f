"""The freed samples that the heap of a DataLoader worker keeps. How many depends on the C library and the run.

A sample that torch makes is a block of posix_memalign. It is freed when its batch is collated, but memory near a small
block that is still in use stays with the process. There are such blocks: torch keeps weak references to the last 128
storages that it passed through shared memory (torch/multiprocessing/reductions.py, SharedCache). Each is a StorageImpl
in the heap; a batch of pictures and labels has two. glibc before 2.38 needs more than a freed block of the same size
(sourceware bugs 14581 and 30723), so almost every such block costs a sample until the reference is dropped.
"""

from __future__ import annotations

import math

from msgspec import Struct

from preflight.memory.host.constants import MIB, Measured
from preflight.vocabulary.notation import major_minor

REUSED_FROM = (2, 38)
"""From this glibc on, freed blocks are used again: 2.38 searches its bins for them, 2.39 joins pieces of memalign."""

PINS = 128
"""SharedCache.limit: storages that torch remembers (torch 2.13). Each keeps (pins) a small block in the heap."""

PIN = 0.95
"""Blocks (samples of one tensor, or tensors of a text) that one pin costs when all 128 are in use: 0.79, 0.84, 1.04,
1.08 and 1.10 in five runs of 160 to 210 batches per worker (batches of 2 to 64 samples)."""

PER_PIN = 0.6
"""The same while the number of pins grows: 0.5 to 0.7 between the tenth and the sixty-fourth batch; some runs of one
worker kept no more than at their start."""

SETTLED = 10
"""Batches per worker that `first` was measured over: 8 to 12."""

MANY_PER_PIN = 1.1
"""High end of PIN."""

REUSED = 4.0
"""Freed samples that a newer glibc keeps, apart from the batch: 3 to 8 in runs of 50 to 250 batches with glibc 2.41."""

FROM_NUMPY = 2.0
"""The same if numpy makes the samples, with any glibc: -8 to 4 in nine points with glibc 2.36, 12 in one."""

OF_STEP = Measured(0.0, 0.5, 1.1)
"""The part of a step's activations that one received batch costs the process that trains on the processor: it remembers
the storages of the last batches, too, and the tensors of a step are freed between those small blocks. 0.44 (activations
of 2.9 MiB, 79 batches, glibc 2.36), 0.50 (4.0 MiB, 122 batches); nothing without workers, nor with
MALLOC_MMAP_THRESHOLD_=131072 (the same programs)."""

STEP_MEASURED = 4 * MIB
"""The largest activations with which a heap was seen to grow so. Two convolutions with larger ones did not: nothing is
expected of them, and the high end reaches what these explain."""

MMAP_THRESHOLD_MAX = 32 * MIB
"""Bytes from which on glibc always takes a block from mmap, and returns it (malloc.c, DEFAULT_MMAP_THRESHOLD_MAX)."""


class Heap(Struct, frozen=True):
    """The properties that decide how much a worker's heap keeps, in addition to batch and sample.

    `old`: glibc is older than 2.38; `batches`: that a worker loads (None: not known); `tensors`: of a batch; `blocks`:
    tensors of a sample; `numpy`: numpy makes the samples.
    """

    old: bool | None = None
    batches: float | None = None
    tensors: int = 2
    blocks: int = 1
    numpy: bool = False


def is_old(glibc: str | None) -> bool | None:
    """Whether a glibc ("2.36", "glibc 2.36") is older than 2.38; None: not stated."""
    found = major_minor(glibc)
    return None if found is None else found < REUSED_FROM


def holes(heap: Heap, batch: int, single: float) -> Measured:
    """Freed samples that a worker's heap keeps, apart from one batch: low, expected, high.

    `single`: bytes of a sample that is one tensor; 0: it may be several. If the glibc is not known, an older one in a
    short run is expected, and the interval includes a newer one and a long run.
    """
    if single >= MMAP_THRESHOLD_MAX:
        return Measured(0.0, 0.0, 0.0)
    at_first = first(batch)
    per_batch = min(heap.tensors, batch * heap.blocks)  # a batch replaces no more blocks than it has
    batches = math.inf if heap.batches is None else heap.batches  # few batches are rare
    pins = min(PINS, heap.tensors * batches, per_batch * math.ceil(PINS / heap.tensors)) / heap.blocks
    most = max(at_first, MANY_PER_PIN * pins)
    if heap.numpy:
        return Measured(0.0, FROM_NUMPY, 3 * REUSED)
    if heap.old is False:
        return Measured(0.0, min(REUSED, at_first), 2 * REUSED)
    if heap.old is None:
        return Measured(0.0, at_first, max(at_first, PIN * pins))
    later = max(0.0, batches - SETTLED) * PER_PIN * per_batch / heap.blocks
    longest = PIN * min(PINS, per_batch * math.ceil(PINS / heap.tensors)) / heap.blocks
    return Measured(0.0, max(at_first, min(at_first + later, longest)), most)


def first(batch: int) -> float:
    """q: freed samples that are kept within the first ten batches of a worker, with a glibc before 2.38.

    Each batch leaves one or two (a batch of one at most one), fewer where many samples lie side by side and join.
    Measured: 5 for batches of 1 sample, 16 for 4, 11 for 8, 2 to 16 for 16, 4 to 10 from 32 on.
    """
    return min(5.0 * batch, max(8.0, 14.0 - 0.4 * max(0, batch - 4)))


def of_steps(heap: Heap, activations: float, workers: int, end: int) -> float:
    """Bytes of a step's tensors in holes of the heap of the process that trains on the processor. Without workers
    nothing is remembered."""
    if not workers or heap.old is False or (end < 2 and activations > STEP_MEASURED):
        return 0.0
    most = PINS / heap.tensors
    batches = (SETTLED if end < 2 else most) if heap.batches is None else workers * heap.batches
    return OF_STEP[end] * min(batches, most) * min(activations, STEP_MEASURED)
