"""One process of a job for the host law: its libraries, loaders and data, from the fields of the Job."""

from __future__ import annotations

import math
from functools import partial

from msgspec import Struct

from preflight.memory.host import constants as c
from preflight.memory.host.base import base_of
from preflight.memory.host.checkpoint import ONE_COPY, Weights, copies
from preflight.memory.host.heap import Heap, is_old
from preflight.memory.host.law import Loader, Loaders
from preflight.memory.host.processor import UNTRAINED, Trained
from preflight.vocabulary.edits_of_job import in_sequences
from preflight.vocabulary.job import Job

TEXT_TASKS = frozenset({"causal-lm", "masked-lm", "sequence-classification", "token-classification", "seq2seq-lm"})


class HostRank(Struct, frozen=True):
    """One process: its own memory, its data loaders, the weights that it loads at the start."""

    base: c.Measured
    cuda: c.Measured
    loaders: Loaders
    checkpoint: int
    checkpoint_low: int
    trials: int
    copied: bool = False
    """Samples are known to be copies of the data in memory."""
    model: Trained = UNTRAINED
    """What the model takes if the CPU trains."""


def rank_of(
    job: Job,
    sample: int,
    weights: Weights | None,
    cuda: bool,
    bound: bool = False,
    trains: bool = True,
    model: Trained = UNTRAINED,
) -> HostRank:
    """The process of a job whose samples take `sample` bytes; `bound` and `trains`: as in `estimate_host`."""
    if job.data.sample_bytes is None:
        job = in_sequences(job)  # the bytes are those of a sequence; where they are stated, all of a sample's
    data, nothing = job.data, c.Measured(0, 0, 0)
    gpu = cuda and job.machine.accelerator != "cpu"
    objects = base_of(data.imports, trains=trains)
    base = base_of(data.imports, trains=trains, cuda=gpu)
    imported = base_of(data.imports, trains=False, cuda=gpu)  # a spawned worker makes no optimizer
    spawned = data.start_method in ("spawn", "forkserver")
    batch, prefetch = job.train.batch_size or 1, data.prefetch or 2
    make = partial(
        Loader,
        prefetch=prefetch,
        base=imported.expected,
        visited=objects.expected,
        spawned=spawned,
        views=_views(job, sample),
        single=job.task == "image-classification",
        decodes=bool(c.DECODERS & {name.partition(".")[0] for name in data.imports}),
        tracked=c.TRACKED_PER_SAMPLE.get(job.task or "", 1) if objects.expected < c.YOUNG_HEAP else 0,
    )
    validation = None
    if data.validation_workers is not None:
        size, workers = job.validation.batch_size or batch, data.validation_workers
        heap = _heap(job, job.validation.samples, size, workers, bound)
        validation = make(size, sample, workers, heap=heap)
    heap = _heap(job, data.samples, batch, data.workers or 0, bound)
    loaders = Loaders(
        train=make(batch, sample, data.workers or 0, own=data.worker_bytes or 0, heap=heap),
        validation=validation,
        dataset=0 if data.in_memory_kind == "mapped" else data.in_memory_bytes or 0,
        growth=_written_to(job),
        evaluated=_evaluated(job),
        pickled=c.PICKLED.get(data.in_memory_kind or "", 1.0),
        handed_over=data.in_memory_kind == "tensors",
        shuffled=(data.samples or 0) if data.shuffle else 0,
        ordered=data.shuffle is False,
        pinned=bool(data.pin_memory) and gpu,  # without one the loader does not pin (dataloader.py, pin_memory)
        persistent=bool(data.persistent_workers),
        stays=bool(data.persistent_workers if data.validation_persistent is None else data.validation_persistent),
        overlap=bool(data.validation_overlaps),
    )
    loading = 0.0 if weights is None else float(weights.bytes)
    if job.parallel.strategy in ONE_COPY:
        loading /= job.parallel.ranks_per_node or 1
    least, loaded = (round(loading * times) for times in copies(job))
    trials, copied = job.parallel.trials_per_gpu or 1, bool(data.copies_samples)
    return HostRank(base, c.CUDA if gpu else nothing, loaders, loaded, least, trials, copied, model)


def _evaluated(job: Job) -> float:
    """Bytes of the validation data in memory, by their share of the samples; 0: the number of samples is not known."""
    data, samples = job.data, job.validation.samples
    if not samples or not data.samples or not data.in_memory_bytes or data.in_memory_kind == "mapped":
        return 0.0
    return data.in_memory_bytes * min(1.0, samples / data.samples)


def _heap(job: Job, samples: int | None, batch: int, workers: int, bound: bool) -> Heap:
    """The heaps of a loader's workers: the C library, and how many batches each worker loads.

    Persistent workers load every epoch, others one. If the number of epochs is not known, persistent workers load two.
    """
    passes = 1 if not job.data.persistent_workers else job.data.epochs or 2
    batches = samples * passes / (batch * (workers or 1)) if samples else None
    old = is_old(job.software.get("glibc"))
    if bound:
        batches = math.inf
    text = job.task in TEXT_TASKS  # three tensors of equal length; else a tensor and a label
    return Heap(old, batches, 3 if text else 2, 3 if text else 1, job.data.samples_from == "numpy")


def _views(job: Job, sample: int) -> bool:
    """Whether samples are views of the data in memory: of an array whose rows are as large as a sample.

    Smaller rows (bytes that become floats) are copied when a sample is loaded.
    """
    data = job.data
    if data.in_memory_kind not in ("arrays", "tensors") or not data.in_memory_bytes or data.copies_samples:
        return False
    return data.samples is None or data.in_memory_bytes >= c.WHOLE_ROWS * data.samples * sample


def _written_to(job: Job) -> float:
    """g: the part of the dataset in memory that reading changes (reference counts); 1: the kind of data is unknown."""
    data = job.data
    if data.in_memory_kind is None:
        return 1.0
    least, untouched = c.COPY_ON_WRITE[data.in_memory_kind], c.UNTOUCHED_PER_ITEM.get(data.in_memory_kind)
    if untouched is None or not data.samples or not data.in_memory_bytes:
        return least
    each = data.in_memory_bytes / data.samples
    return c.PAGE / each if each > 2 * c.PAGE else max(least, 1 - untouched / each)
