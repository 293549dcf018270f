"""Host memory of a job on one node: the host law times the ranks, against what the job may use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from preflight.job import Job
from preflight.machines.sizes import format_gib
from preflight.memory.estimate import HostEstimate, Interval
from preflight.memory.host import constants as c
from preflight.memory.host.base import base_of
from preflight.memory.host.checkpoint import ONE_COPY, Weights, copies, weights_of
from preflight.memory.host.law import Loader, Loaders, Moment
from preflight.records import dataclass, replace
from preflight.values import Unknown

TOKEN_TENSORS = 3
"""Per token of a text sample: input_ids, attention_mask and labels (transformers' data collators)."""

TOKEN_BYTES = 8
"""torch.int64, what tokenizers and collators make."""

PIXEL_BYTES = 3 * 4
"""A decoded image as the model takes it: three float32 channels (torchvision's ToTensor)."""

TEXT_TASKS = frozenset({"causal-lm", "masked-lm", "sequence-classification", "token-classification", "seq2seq-lm"})

LOAD = "load"
"""The moment in which every rank holds the model's weights on the host."""

NOTEWORTHY = 10
"""Heaps that may grow by a tenth of what the loader takes are worth a note."""

LARGEST_SAMPLE = 2**50
"""Where the search for the largest sample ends: no sample is a pebibyte."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """One process: its own memory, the loaders, what it loads at the start."""

    base: c.Measured
    cuda: c.Measured
    loaders: Loaders
    checkpoint: int
    checkpoint_low: int
    trials: int


def limit_of(job: Job) -> tuple[int | None, str]:
    """Bytes that the job may use on a node, and which Job fields say so: a request counts before the node's memory."""
    machine = job.machine
    if machine.memory_limit is not None:
        if machine.node_memory is not None and machine.node_memory < machine.memory_limit:
            return machine.node_memory, "node_memory"
        return machine.memory_limit, "memory_limit"
    if machine.node_memory is None:
        return None, "unknown"
    if machine.swap:
        return machine.node_memory + machine.swap, "node_memory + swap"
    return machine.node_memory, "node_memory"


def sample_bytes(job: Job) -> tuple[int | None, str]:
    """Bytes of one decoded sample and how they are known; None where nothing says them.

    Stated by data.sample_bytes; for text tasks token tensors of the sequence length; for image classification the
    image as the model takes it.
    """
    if job.data.sample_bytes is not None:
        return job.data.sample_bytes, ""
    train = job.train
    if job.task in TEXT_TASKS and train.seq_len is not None:
        tokens = train.seq_len + (train.target_len or 0)
        return TOKEN_TENSORS * TOKEN_BYTES * tokens, f"one sample: {TOKEN_TENSORS} int64 tensors of {tokens} tokens"
    if job.task == "image-classification" and train.image_size is not None:
        return PIXEL_BYTES * train.image_size**2, f"one sample: {train.image_size} x {train.image_size} x 3 float32"
    return None, ""


def missing_fields(job: Job) -> tuple[str, ...]:
    """Job fields without which the node's memory cannot be known; data.sample_bytes is the usual one."""
    wanted: list[tuple[str, object]] = [
        ("data.workers", job.data.workers),
        ("train.batch_size", job.train.batch_size),
        ("data.in_memory_bytes", job.data.in_memory_bytes),
        ("data.worker_bytes", job.data.worker_bytes),
        ("parallel.ranks_per_node", job.parallel.ranks_per_node),
        ("parallel.trials_per_gpu", job.parallel.trials_per_gpu),
    ]
    if job.data.workers:
        wanted.append(("data.prefetch", job.data.prefetch))
    if job.parallel.offload != "none":
        wanted += [("parallel.offload", job.parallel.offload), ("parallel.nodes", job.parallel.nodes)]
    missing = [name for name, value in wanted if value is None]
    return (*missing, "data.sample_bytes") if sample_bytes(job)[0] is None else tuple(missing)


def estimate_host(job: Job, parameters: int | None = None, *, cuda: bool = True) -> HostEstimate | Unknown:
    """Memory of one node, or why it is unknown: with the largest sample that would still fit, where that can be said.

    `parameters`: the model's count, for its weights while they load and for offloaded states; None: the job's law says.
    A job that would not fit even with empty samples gets the estimate of those, a lower bound.
    """
    missing = missing_fields(job)
    weights = weights_of(job, parameters)
    if job.parallel.offload not in ("none", None) and weights is None:
        missing = (*missing, "model.parameters")
    if not missing:
        return _estimate(job, sample_bytes(job)[0] or 0, weights, cuda)
    if missing != ("data.sample_bytes",):
        return Unknown(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not known")
    empty = _estimate(job, 0, weights, cuda)
    if empty.verdict == "exceeds":
        note = "a lower bound: data.sample_bytes is unknown and samples are not counted"
        return replace(empty, notes=(*empty.notes, note))
    largest = solve_sample_bytes(job, parameters, cuda=cuda)
    if empty.limit is None:
        return Unknown("one decoded sample's size is unknown; declare data.sample_bytes")
    if largest is None:
        return Unknown("it is at risk even with empty samples; declare data.sample_bytes")
    return Unknown(f"fits only if one decoded sample is at most {format_gib(largest)}; declare data.sample_bytes")


def solve_sample_bytes(job: Job, parameters: int | None = None, *, cuda: bool = True) -> int | None:
    """The largest data.sample_bytes with which the node's memory fits (its high end too).

    None: another field is missing, no limit is known, or nothing fits. The law grows with the sample, so bisection
    finds the edge to the byte.
    """
    if limit_of(job)[0] is None or set(missing_fields(job)) - {"data.sample_bytes"}:
        return None
    weights = weights_of(job, parameters)
    return _largest(lambda size: _estimate(job, size, weights, cuda).verdict == "fits")


def samples_in_shared_memory(job: Job) -> int | None:
    """Decoded samples that lie in /dev/shm at one time, all ranks of a node together; None where a field is missing."""
    if set(missing_fields(job)) - {"data.sample_bytes", "data.in_memory_bytes", "data.worker_bytes"}:
        return None
    rank = _rank(job, 1, None, False)
    return round(rank.loaders.shared() * rank.trials * (job.parallel.ranks_per_node or 1))


def solve_in_memory_bytes(job: Job, parameters: int | None = None, *, cuda: bool = True) -> int | None:
    """The largest data.in_memory_bytes with which the node's memory fits; None as for `solve_sample_bytes`."""
    sample = sample_bytes(job)[0]
    if limit_of(job)[0] is None or sample is None or set(missing_fields(job)) - {"data.in_memory_bytes"}:
        return None
    weights = weights_of(job, parameters)

    def fits(size: int) -> bool:
        data = job.data.model_copy(update={"in_memory_bytes": size, "samples": None})
        return _estimate(job.model_copy(update={"data": data}), sample, weights, cuda).verdict == "fits"

    return _largest(fits)


def _largest(fits: Callable[[int], bool]) -> int | None:
    if not fits(0):
        return None
    low, high = 0, LARGEST_SAMPLE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _estimate(job: Job, sample: int, weights: Weights | None, cuda: bool) -> HostEstimate:
    rank = _rank(job, sample, weights, cuda)
    ranks = job.parallel.ranks_per_node or 1
    offload = _offload(job, weights)
    moments = _moments(rank)
    peak = max(moments, key=lambda moment: moment.total)
    interval = _interval(rank, moments, ranks, offload)
    breakdown = {name: round(size * ranks) for name, size in peak.terms.items()}
    if offload.expected:
        breakdown["offload"] = round(offload.expected)
    expected = sum(breakdown.values())
    interval = Interval(min(interval.low, expected), expected, max(interval.high, expected))
    limit, limited_by = limit_of(job)
    training = next(moment for moment in moments if moment.name == "training")
    spike = "validation" in peak.name
    found = HostEstimate(
        per_node=interval,
        breakdown=breakdown,
        limit=limit,
        limited_by=limited_by,
        verdict=interval.verdict(limit),
        peak="validation" if spike else peak.name,
        train_only=round(training.total * ranks + offload.expected) if spike else None,
        notes=_notes(job, rank, weights),
    )
    return _shared_memory(job, rank, ranks, found)


def _rank(job: Job, sample: int, weights: Weights | None, cuda: bool) -> _Rank:
    data, nothing = job.data, c.Measured(0, 0, 0)
    gpu = cuda and job.machine.accelerator != "cpu"
    base = base_of(data.imports, trains=weights is not None)
    spawned = data.start_method in ("spawn", "forkserver")
    batch, prefetch = job.train.batch_size or 1, data.prefetch or 2
    make = partial(
        Loader,
        prefetch=prefetch,
        base=base.expected,
        spawned=spawned,
        views=_views(job, sample),
        single=job.task == "image-classification",
        decodes=bool(c.DECODERS & {name.partition(".")[0] for name in data.imports}),
        tracked=c.TRACKED_PER_SAMPLE.get(job.task or "", 1) if base.expected < c.YOUNG_HEAP else 0,
    )
    validation = None
    if data.validation_workers is not None:
        validation = make(job.validation.batch_size or batch, sample, data.validation_workers)
    loaders = Loaders(
        train=make(batch, sample, data.workers or 0, own=data.worker_bytes or 0),
        validation=validation,
        dataset=0 if data.in_memory_kind == "mapped" else data.in_memory_bytes or 0,
        growth=_written_to(job),
        pickled=c.PICKLED.get(data.in_memory_kind or "", 1.0),
        shuffled=(data.samples or 0) if data.shuffle else 0,
        ordered=data.shuffle is False,
        pinned=bool(data.pin_memory) and gpu,  # without one the loader does not pin (dataloader.py, pin_memory)
        persistent=bool(data.persistent_workers),
        overlap=bool(data.validation_overlaps),
    )
    held = 0.0 if weights is None else float(weights.bytes)
    if job.parallel.strategy in ONE_COPY:
        held /= job.parallel.ranks_per_node or 1
    least, loaded = (round(held * times) for times in copies(job))
    return _Rank(base, c.CUDA if gpu else nothing, loaders, loaded, least, job.parallel.trials_per_gpu or 1)


def _views(job: Job, sample: int) -> bool:
    """Whether samples are handed out as they lie in memory: an array whose rows are as large as a sample.

    Rows that are smaller (bytes that become floats) are copied when they are asked for.
    """
    data = job.data
    if data.in_memory_kind != "arrays" or not data.in_memory_bytes:
        return False
    return data.samples is None or data.in_memory_bytes >= data.samples * sample


def _written_to(job: Job) -> float:
    """g: the part of the dataset in memory that reading writes to (reference counts); 1 where the kind is unknown."""
    data = job.data
    if data.in_memory_kind is None:
        return 1.0
    least, untouched = c.COPY_ON_WRITE[data.in_memory_kind], c.UNTOUCHED_PER_ITEM.get(data.in_memory_kind)
    if untouched is None or not data.samples or not data.in_memory_bytes:
        return least
    each = data.in_memory_bytes / data.samples
    return c.PAGE / each if each > 2 * c.PAGE else max(least, 1 - untouched / each)


def _moments(rank: _Rank) -> tuple[Moment, ...]:
    own = {"base": rank.base.expected, **({"cuda": rank.cuda.expected} if rank.cuda.expected else {})}
    moments = []
    for moment in rank.loaders.moments():
        terms = {name: size * rank.trials for name, size in moment.terms.items()}  # trials are threads of one process
        moments.append(Moment(moment.name, {**own, **terms}))
    if rank.checkpoint:
        dataset = {"dataset": float(rank.loaders.dataset)} if rank.loaders.dataset else {}
        moments.append(Moment(LOAD, {**own, **dataset, "checkpoint": float(rank.checkpoint * rank.trials)}))
    return tuple(moments)


def _interval(rank: _Rank, moments: tuple[Moment, ...], ranks: int, offload: c.Measured) -> Interval:
    """The model's error on what the loaders keep, beside each rank's own (low, high) of base and CUDA.

    An array in memory: __getitem__ may return views of it, of which workers keep nothing, or copies. Weights that are
    loaded are what they are, or pages of their file.
    """
    own = rank.base.expected + rank.cuda.expected
    least = most = moments
    if rank.loaders.dataset and not rank.loaders.growth:
        least = _moments(replace(rank, loaders=rank.loaders.with_views(True)))
        most = _moments(replace(rank, loaders=rank.loaders.with_views(False)))
    both = [rank.loaders.train, *([rank.loaders.validation] if rank.loaders.validation else [])]
    more = sum(loader.spread() for loader in both)
    if rank.loaders.pinned:
        more += c.PINNED_ROUNDING * rank.loaders.train.queue()
    unloaded = (rank.checkpoint - rank.checkpoint_low) * rank.trials
    low = max(one.total - own - unloaded if one.name == LOAD else (one.total - own) * c.MODEL_ERROR[0] for one in least)
    high = max(
        (one.total - own) if one.name == LOAD else (one.total - own) * c.MODEL_ERROR[1] + more * rank.trials
        for one in most
    )
    expected = max(one.total for one in moments)
    return Interval(
        round((rank.base.low + rank.cuda.low + low) * ranks + offload.low),
        round(expected * ranks + offload.expected),
        round((rank.base.high + rank.cuda.high + high) * ranks + offload.high),
    )


def _offload(job: Job, weights: Weights | None) -> c.Measured:
    """Bytes per node: states are split over all ranks, so a node holds its share of one copy."""
    kind = job.parallel.offload or "none"
    per = c.OFFLOAD_PER_PARAMETER[kind]
    if job.train.peft.method is not None:  # the adapters' own states are nothing beside the weights
        half = 2.0 if kind == "parameters" else 0.0
        per = c.Measured(half, half, half)
    share = (0 if weights is None else weights.parameters) / (job.parallel.nodes or 1)
    return c.Measured(*(each * share for each in per))


def _notes(job: Job, rank: _Rank, weights: Weights | None) -> tuple[str, ...]:
    notes = []
    how = sample_bytes(job)[1]
    if how:
        notes.append(how)
    if job.data.shuffle and job.data.samples is None:
        notes.append(f"shuffling keeps {c.SHUFFLE_PER_SAMPLE} bytes per sample: not counted, data.samples is unknown")
    if job.data.validation_workers is not None and job.validation.batch_size is None:
        notes.append("validation.batch_size is unknown: taken as train.batch_size")
    train = rank.loaders.train
    grown = train.growth()
    if grown * NOTEWORTHY > train.private() + train.queue():
        notes.append(
            f"in a long run the workers of a rank may keep up to {format_gib(round(grown))} more in holes of their "
            "heaps (glibc before 2.38, samples that torch allocates): MALLOC_MMAP_THRESHOLD_=131072 keeps them out"
        )
    if weights is None:
        notes.append("loading the model's weights is not counted: their number is unknown")
    return tuple(notes)


def _shared_memory(job: Job, rank: _Rank, ranks: int, found: HostEstimate) -> HostEstimate:
    """`found`, or the estimate of /dev/shm alone where that is what the job runs out of."""
    shm, need = job.machine.shm, round(rank.loaders.shared() * rank.trials * ranks)
    if shm is None or found.verdict == "exceeds" or need <= shm:
        return found
    return replace(
        found,
        per_node=Interval(need, need, need),
        breakdown={"queue": need},
        limit=shm,
        limited_by="/dev/shm",
        verdict="exceeds",
        peak="training",
        train_only=None,
        notes=("workers pass finished batches through /dev/shm", *found.notes),
    )
