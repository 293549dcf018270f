"""Constants of the host law, each with the measurement it comes from.

"63 points": real DataLoaders (torch 2.13, Debian 12), the peak over the process tree of anonymous plus shared memory,
which is what a memory cgroup cannot reclaim; sampled at 13 to 20 Hz, repeats within 1 %.
"""

from __future__ import annotations

from typing import NamedTuple

MIB = 2**20


class Measured(NamedTuple):
    """Bytes (or bytes per something): low, expected, high."""

    low: float
    expected: float
    high: float


BASE = Measured(143 * MIB, 149 * MIB, (149 + 110) * MIB)
"""A process after `import torch` (142.9 MiB) and a first tensor (149.4); high: heavy packages that the files hide."""

BASE_TRANSFORMERS = Measured(17 * MIB, 110 * MIB, 110 * MIB)
"""Added by transformers: 17 MiB imported alone, 110 MiB once a model class and Trainer are loaded."""

TRANSFORMERS_USERS = frozenset(
    {"transformers", "trl", "peft", "sentence_transformers", "setfit", "axolotl", "llamafactory"}
)
"""Packages that load transformers' model classes."""

CUDA = Measured(114 * MIB, 900 * MIB, 1694 * MIB)
"""Host side of a rank's CUDA context and libraries: pytorch/pytorch#113326 has 322 MB without and 439 to 2057 MB with a
first CUDA tensor (torch 2.2, RTX 3090), pytorch/pytorch#12873 1122 + 594 MiB for a first convolution (torch 1.0). The
middle of the two ends is expected; NCCL's host buffers were not measured apart and lie within."""

SHUFFLE_PER_SAMPLE = 40
"""RandomSampler's permutation as a list of Python ints: bytes per sample of the dataset, 63 points."""

WORKER_FORK = 11.7 * MIB
"""One forked worker before it loads anything, 63 points."""

WORKER_SPAWN = 145 * MIB
"""One spawned worker (it imports torch again), 63 points."""

SPAWN_TRACKER = 6 * MIB
"""The resource tracker that spawning starts once, 63 points."""

COLLATE_BATCHES = 0.90
"""r: batches a worker keeps for itself (the collation copy). 0 where __getitem__ returns a view; 1.2 to 1.9 with
temporaries as decoding makes them. 25 fitted points."""

COLLATE_SAMPLES = 11.5
"""q: samples a worker keeps besides (what glibc does not give back). 25 fitted points."""

SYNCHRONOUS_BATCHES = 3
"""Batches alive without workers: the samples, their collation, the one in use. 25 fitted points."""

COPY_ON_WRITE = {"arrays": 0.0, "objects": 0.51, "strings": 0.94, "mapped": 0.0}
"""g: the part of an in-memory dataset that each forked worker ends up with a copy of, because reading a Python object
writes its reference count. numpy 0, list of dicts 0.51, list of str 0.94; the bound is 1. 63 points."""

PINNED_BATCHES = 2
"""The pinning thread holds a batch while it copies it, and the step another (torch/utils/data/_utils/pin_memory.py)."""

PINNED_ROUNDING = 0.44
"""torch's caching host allocator rounds blocks up to powers of two: 1/ln 2 - 1 = 0.44 on average over sizes; high end
only (not measured)."""

MODEL_ERROR = (1 / 1.12, 1 / 0.86)
"""The law's expected value was at most 12 % too high (MALLOC_MMAP_THRESHOLD_ set) and 14 % too low (decode-like numpy
temporaries) where conditions differed; on its own points it is 1.6 % off on average, 6.3 % at worst."""

OFFLOAD_PER_PARAMETER = {
    "none": Measured(0, 0, 0),
    "gradients": Measured(2, 4, 4),
    "optimizer": Measured(16, 22, 25),
    "parameters": Measured(18, 24, 25),
}
"""Host bytes per parameter that offloading keeps, over all ranks: public reports have 23 to 25 for ZeRO-3 with full
offload where 16 to 18 are the states; without the weights 2 less; gradients alone in half or full precision."""

WEIGHT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes per parameter of a checkpoint in memory."""
