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


CUDA = Measured(114 * MIB, 900 * MIB, 1694 * MIB)
"""Host side of a rank's CUDA context and libraries: pytorch/pytorch#113326 has 322 MB without and 439 to 2057 MB with a
first CUDA tensor (torch 2.2, RTX 3090), pytorch/pytorch#12873 1122 + 594 MiB for a first convolution (torch 1.0). The
middle of the two ends is expected; NCCL's host buffers were not measured apart and lie within."""

SHUFFLE_PER_SAMPLE = 40
"""RandomSampler's permutation as a list of Python ints: a pointer of 8 bytes and an int of 32 per sample."""

SHUFFLE_TENSOR_PER_SAMPLE = 8
"""The int64 tensor that the list is made from (torch/utils/data/sampler.py, `torch.randperm(n).tolist()`), gone before
the first batch is asked for."""

WORKER_FORK = 11.0 * MIB
"""One forked worker before it loads anything: pages it writes to. 11.0 at 8 and 16 workers of tiny samples, whatever is
imported (10.6 with Trainer, 9.7 with lightning)."""

WORKER_FORK_MORE = 4 * MIB
"""High end: additional memory of a forked worker; 13 to 15 MiB in all were measured with Trainer imported."""

WORKER_SPAWN = 1.8 * MIB
"""One spawned worker, apart from the base of the program, whose imports it repeats (145.7 with torch alone, 325 with
Trainer and datasets, where the parents took 143.9 and 324.7)."""

SPAWN_TRACKER = 6 * MIB
"""The resource tracker that spawning starts once, 63 points; a fork server is as large."""

COLLECTED_PART = 0.23
"""The part of the base that a worker copies when Python's collector visits everything: it writes each object's header.
33 MiB of 143.5."""

YOUNG_HEAP = 150 * MIB
"""A base below which the workers' first full collection is near: torch alone. Python collects everything once a quarter
of what it last visited is new (gcmodule.c, long_lived_pending); with Trainer or datasets imported it did not happen."""

COLLECTION_THRESHOLD = 700
"""Objects that must be born and alive at once before Python collects (gc.get_threshold()[0]; 2000 from 3.13 on)."""

TRACKED_PER_SAMPLE = {"image-classification": 2, "causal-lm": 4, "masked-lm": 4, "sequence-classification": 4,
                      "token-classification": 4, "seq2seq-lm": 4}  # fmt: skip
"""Objects that Python's collector tracks, per sample of a task: a tensor in a tuple; three tensors in a dict. 1 for
others. Batches of 350 pictures set a collection off."""

COLLATE_BATCHES = 1.0
"""r: batches that a worker's heap keeps. The samples of a batch are freed once they are collated, but a small block
still in use above them keeps glibc from returning the pages. 0 where __getitem__ returns a view."""

DECODED_BATCHES = 1.2
"""r where pictures are decoded: temporaries of other sizes leave holes between the samples."""

DECODER = 5 * MIB
"""Memory that a worker loads to decode pictures: Pillow's plug-ins come with the first `Image.open`, after the fork."""

DECODERS = frozenset({"PIL", "torchvision", "cv2", "imageio", "skimage", "timm"})
"""Packages whose import says that samples are decoded pictures."""

SYNCHRONOUS_BATCHES = 3
SYNCHRONOUS_SAMPLES = 4.6
"""Batches alive without workers: the samples, their collation, the one in use (without the samples for views); and the
samples that holes of the heap keep."""

COPY_ON_WRITE = {"arrays": 0.0, "tensors": 0.0, "objects": 0.51, "strings": 0.94, "mapped": 0.0}
"""g where the number of samples is not known: the part of an in-memory dataset that each forked worker ends up with a
copy of, because reading a Python object writes its reference count. numpy 0, list of dicts 0.51, list of str 0.94; the
bound is 1. 63 points."""

WHOLE_ROWS = 0.9
"""The part of samples x their size that data in memory must have at least to be handed out as they are: what a process
takes for them is less than their bytes where pages were there before."""

PAGE = 4096
"""Bytes that a write copies: of an item that is larger, only the page that its count lies on."""

PICKLED = {"arrays": 1.0, "objects": 0.15, "strings": 0.6}
"""A dataset's pickle, relative to the dataset, while spawned workers start: measured 0.15 for dicts of numbers."""

UNTOUCHED_PER_ITEM = {"objects": 152, "strings": 8}
"""Bytes per item whose pages reading does not write to: the list's pointer (8), and for a dict its table of keys (128
for up to five string keys) and half of a number: in one measured kind a sample leaves one of 32 bytes unread."""

PINNED_BATCHES = 2
"""The pinning thread holds a batch while it copies it, and the step another (torch/utils/data/_utils/pin_memory.py)."""

PINNED_ROUNDING = 0.44
"""torch's caching host allocator rounds blocks up to powers of two: 1/ln 2 - 1 = 0.44 on average over sizes; high end
only (not measured)."""

MODEL_ERROR = (1 / 1.12, 1 / 0.86)
"""Under other conditions the loaders kept at most 12 % less (MALLOC_MMAP_THRESHOLD_ set) and 14 % more (temporaries)
than the law."""

PROCESSOR = (0.6, 1.6)
"""Of a model that the processor trains: the optimizer may take less than all gradients at once, a heap keeps holes, and
copies in the layouts of oneDNN live beside each other."""

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

OPTIMIZER_COPIES = {
    "adamw": 2, "adam": 2, "lion": 1, "sgd": 0, "sgd-momentum": 1, "adafactor": 0, "adamw-8bit": 0.5,
    "adamw-4bit": 0.25, "adamw-fp8": 0.5, "paged-adamw": 2, "paged-adamw-8bit": 0.5,
    "adamw-amsgrad": 3, "adam-amsgrad": 3, "adagrad": 1, "rmsprop": 1, "rmsprop-momentum": 2, "rmsprop-centered": 2,
}  # fmt: skip
"""Copies of the weights that an optimizer's states are, on the processor: two moments, one, or factors of them."""
