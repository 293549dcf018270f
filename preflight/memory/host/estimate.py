"""Host memory of a job on one node: the host law times the ranks, compared with the limit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from msgspec.structs import replace

from preflight.memory.host import constants as c
from preflight.memory.host.checkpoint import Weights, weights_of
from preflight.memory.host.heap import of_steps
from preflight.memory.host.law import EXPECTED, HIGH, LOW, Moment
from preflight.memory.host.processor import UNTRAINED, Trained, least_of, trained_here
from preflight.memory.host.rank import TEXT_TASKS, HostRank, rank_of
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.estimates import HostEstimate, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.words import at_most, gib

TOKEN_TENSORS = 3
"""Per token of a text sample: input_ids, attention_mask and labels (transformers' data collators)."""

TOKEN_BYTES = 8
"""torch.int64, the dtype of tokenizers and collators."""

PIXEL_BYTES = 3 * 4
"""A decoded image as the model takes it: three float32 channels (torchvision's ToTensor)."""

LOAD = "load"
"""The moment when every rank loads the weights of the model."""

NOTEWORTHY = 10
"""A note is written when heaps can grow by more than one part in this many of what the loaders take."""

NOTHING = {
    "data.sample_bytes": "samples",
    "data.in_memory_bytes": "data in memory",
    "data.worker_bytes": "the workers' own data",
}
"""Fields whose lowest value is 0 -> the memory that is then not counted."""

LARGEST_SAMPLE = 2**50
"""Where the search for the largest sample ends: no sample is a pebibyte."""


def limit_of(job: Job) -> tuple[int | None, str]:
    """Bytes that a job may use on a node, and the Job fields that say so; a request comes before the node's memory."""
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
    """Bytes of one decoded sample and a note on their source; None: not known.

    From data.sample_bytes; else for text tasks from the tensors of tokens, for image classification from the image as
    the model takes it.
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
    """Job fields that are unknown and needed for the host memory; data.sample_bytes is the usual one."""
    wanted: list[tuple[str, object]] = [
        ("data.workers", job.data.workers),
        ("train.batch_size", job.train.batch_size),
        ("train.sequences_per_sample", job.train.sequences_per_sample),
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


def estimate_host(
    job: Job,
    parameters: int | None = None,
    *,
    cuda: bool = True,
    bound: bool = False,
    tracing: Tracing = SHIPPED_ONLY,
    trains: bool = True,
) -> HostEstimate | Unknown:
    """Memory of one node, or why it is unknown, with the largest sample that still fits if that is known.

    `parameters`: the model's count, for the weights while they load and for offloaded states; None: from the job's law.
    `tracing`: the tracing policy for that law.
    `bound`: an upper bound that never falls as a numeric field grows (workers that load fewer batches each keep less).
    `trains`: the process makes an optimizer, as a training does; a process that only loads data does not.
    If a job does not fit even with empty samples, or without its unknown data in memory, the estimate is a lower bound.
    """
    missing = missing_fields(job)
    weights = weights_of(job, parameters, tracing)
    if job.parallel.offload not in ("none", None) and weights is None:
        missing = (*missing, "model.parameters")
    here = trained_here(job, weights, tracing) if trains and job.machine.accelerator == "cpu" else UNTRAINED
    model = least_of(job, weights) if isinstance(here, Unknown) else here
    if not missing:
        found = _estimate(job, sample_bytes(job)[0] or 0, weights, cuda, bound, trains, model)
        return _at_least(found, here) if isinstance(here, Unknown) else found
    unknown = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not known"
    if not set(missing) <= set(NOTHING):
        return Unknown(unknown, Cause.not_set, missing)
    empty = _estimate(job, sample_bytes(job)[0] or 0, weights, cuda, bound, trains, model)
    if isinstance(here, Unknown):
        return _at_least(empty, replace(here, fields=(*missing, *here.fields)))
    if empty.verdict == "exceeds":
        left_out = " and ".join(NOTHING[name] for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        note = f"a lower bound: {', '.join(missing)} {verb} unknown, so {left_out} are not counted"
        return replace(empty, notes=(*empty.notes, note))
    if missing != ("data.sample_bytes",):
        return Unknown(unknown, Cause.not_set, missing)
    largest = solve_sample_bytes(job, parameters, cuda=cuda, tracing=tracing)
    if empty.limit is None:
        return Unknown("the size of one decoded sample is unknown: set data.sample_bytes", Cause.not_set, missing)
    if largest is None:
        return Unknown("it is at risk even with empty samples: set data.sample_bytes", Cause.not_set, missing)
    return Unknown(
        f"it fits only if one decoded sample is at most {at_most(largest)}: set data.sample_bytes",
        Cause.not_set,
        missing,
    )


def _at_least(least: HostEstimate, why: Unknown) -> HostEstimate | Unknown:
    """The estimate of a training on the processor whose model is not known: it can exceed, and never fits."""
    low = least.per_node.low
    if least.limit is None or low <= least.limit:
        return replace(why, words=f"{why.words}; it takes at least {gib(low)}")
    note = "a lower bound: activations of a training on the processor are not counted"
    return replace(least, verdict="exceeds", notes=(*least.notes, note))


def _solvable(job: Job) -> bool:
    """Whether the largest value of a field that fits can be told: there is a limit, and the law has all of the need."""
    return limit_of(job)[0] is not None and job.machine.accelerator != "cpu"


def solve_sample_bytes(
    job: Job, parameters: int | None = None, *, cuda: bool = True, tracing: Tracing = SHIPPED_ONLY
) -> int | None:
    """The largest data.sample_bytes with which even the high end of the estimate fits.

    None: another field is unknown, no limit is known, or nothing fits. The law grows with the sample, so bisection
    finds the largest size to the byte.
    """
    if not _solvable(job) or set(missing_fields(job)) - {"data.sample_bytes"}:
        return None
    weights = weights_of(job, parameters, tracing)
    return _largest(lambda size: _estimate(job, size, weights, cuda).verdict == "fits")


def samples_in_shared_memory(job: Job) -> int | None:
    """Decoded samples that are in /dev/shm at the same time, of all ranks of a node; None: a field is unknown."""
    if set(missing_fields(job)) - {"data.sample_bytes", "data.in_memory_bytes", "data.worker_bytes"}:
        return None
    rank = rank_of(job, 1, None, False)
    return round(rank.loaders.shared() * rank.trials * (job.parallel.ranks_per_node or 1))


def solve_in_memory_bytes(
    job: Job, parameters: int | None = None, *, cuda: bool = True, tracing: Tracing = SHIPPED_ONLY
) -> int | None:
    """The largest data.in_memory_bytes with which the estimate fits; None as for `solve_sample_bytes`."""
    sample = sample_bytes(job)[0]
    if not _solvable(job) or sample is None or set(missing_fields(job)) - {"data.in_memory_bytes"}:
        return None
    weights = weights_of(job, parameters, tracing)

    def fits(size: int) -> bool:
        sized = unchecked(job, {"data.in_memory_bytes": size, "data.samples": None})
        return _estimate(sized, sample, weights, cuda).verdict == "fits"

    return _largest(fits)


def solve_parameters(job: Job, *, tracing: Tracing = SHIPPED_ONLY) -> int | None:
    """The largest number of parameters with which the estimate fits, where that number is unknown and their loading is
    not counted; None where it is counted, or where nothing fits."""
    if not _solvable(job) or missing_fields(job) or weights_of(job, None, tracing) is not None:
        return None
    sample = sample_bytes(job)[0] or 0
    return _largest(lambda count: _estimate(job, sample, weights_of(job, count), True).verdict == "fits")


def _largest(fits: Callable[[int], bool]) -> int | None:
    if not fits(0):
        return None
    return bisect_left(range(1, LARGEST_SAMPLE), True, key=lambda size: not fits(size))


def _estimate(
    job: Job,
    sample: int,
    weights: Weights | None,
    cuda: bool,
    bound: bool = False,
    trains: bool = True,
    model: Trained = UNTRAINED,
) -> HostEstimate:
    rank = rank_of(job, sample, weights, cuda, bound, trains, model)
    ranks = job.parallel.ranks_per_node or 1
    offload = _offload(job, weights)
    moments = moments_of(rank)
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


def moments_of(rank: HostRank) -> tuple[Moment, ...]:
    """The moments of one process that can be its peak."""
    own = {"base": rank.base.expected, **({"cuda": rank.cuda.expected} if rank.cuda.expected else {})}
    moments = []
    for moment in rank.loaders.moments():
        terms = {name: size * rank.trials for name, size in moment.terms.items()}  # trials are threads of one process
        if rank.model.states:
            terms["model"] = float(rank.model.states * rank.trials)
        if rank.model.activations:
            terms["activations"] = float(rank.model.activations * rank.trials)
        if holes := _of_steps(rank, EXPECTED):
            terms["step_holes"] = holes
        moments.append(Moment(moment.name, {**own, **terms}))
    if rank.checkpoint:
        dataset = {"dataset": float(rank.loaders.dataset)} if rank.loaders.dataset else {}
        moments.append(Moment(LOAD, {**own, **dataset, "checkpoint": float(rank.checkpoint * rank.trials)}))
    return tuple(moments)


def _of_steps(rank: HostRank, end: int) -> float:
    """What the heap of the process keeps of the steps that the processor trains."""
    train = rank.loaders.train
    return rank.trials * of_steps(train.heap, rank.model.activations, train.workers, end)


def _interval(rank: HostRank, moments: tuple[Moment, ...], ranks: int, offload: c.Measured) -> Interval:
    """The interval: the error of the law for the loaders, and the intervals of base and CUDA.

    For an array in memory __getitem__ may return views, of which workers keep nothing, or copies. Loaded weights take
    their size, or nothing if they are pages of their file.
    """
    model = (rank.model.states + rank.model.activations) * rank.trials
    own, holes = rank.base.expected + rank.cuda.expected, _of_steps(rank, HIGH)
    rank = replace(rank, model=UNTRAINED)
    array = bool(rank.loaders.dataset and not rank.loaders.growth and not rank.copied)
    least = moments_of(replace(rank, loaders=rank.loaders.at(LOW, True if array else None)))
    most = moments_of(replace(rank, loaders=rank.loaders.at(EXPECTED, False if array else None)))
    grown = moments_of(replace(rank, loaders=rank.loaders.at(HIGH, False if array else None)))
    spreads = [one.spread() for one in (rank.loaders.train, rank.loaders.validation) if one is not None]
    more = sum(spreads) if rank.loaders.overlap or rank.loaders.persistent else max(spreads)
    if rank.loaders.pinned:
        more += c.PINNED_ROUNDING * rank.loaders.train.queue()
    unloaded = (rank.checkpoint - rank.checkpoint_low) * rank.trials
    low = max(one.total - own - unloaded if one.name == LOAD else (one.total - own) * c.MODEL_ERROR[0] for one in least)
    high = max(
        (one.total - own)
        if one.name == LOAD
        else (one.total - own) * c.MODEL_ERROR[1] + (long.total - one.total) + more * rank.trials
        for one, long in zip(most, grown, strict=True)
    )
    expected = max(one.total for one in moments)
    least_model, most_model = c.PROCESSOR[0] * model, c.PROCESSOR[1] * model
    return Interval(
        round((rank.base.low + rank.cuda.low + low + least_model) * ranks + offload.low),
        round(expected * ranks + offload.expected),
        round((rank.base.high + rank.cuda.high + high + most_model + holes) * ranks + offload.high),
    )


def _offload(job: Job, weights: Weights | None) -> c.Measured:
    """Bytes per node of offloaded states. They are split over all ranks, so a node has its share of one copy."""
    kind = job.parallel.offload or "none"
    per = c.OFFLOAD_PER_PARAMETER[kind]
    if job.train.peft.method is not None:  # the states of the adapters are tiny compared with the weights
        half = 2.0 if kind == "parameters" else 0.0
        per = c.Measured(half, half, half)
    share = (0 if weights is None else weights.parameters) / (job.parallel.nodes or 1)
    return c.Measured(*(each * share for each in per))


def _notes(job: Job, rank: HostRank, weights: Weights | None) -> tuple[str, ...]:
    notes = []
    how = sample_bytes(job)[1]
    if how:
        notes.append(how)
    if job.data.shuffle and job.data.samples is None:
        notes.append(f"shuffling takes {c.SHUFFLE_PER_SAMPLE} bytes per sample: not counted, data.samples is unknown")
    if job.data.validation_workers is not None and job.validation.batch_size is None:
        notes.append("validation.batch_size is unknown: train.batch_size is used")
    train = rank.loaders.train
    grown = train.growth()
    if train.heap.old is not False and grown * NOTEWORTHY > train.private() + train.queue():
        unknown = "" if train.heap.old else ", which is assumed; set software.glibc"
        notes.append(
            f"in a long run the heaps of a rank's workers can keep up to {gib(round(grown))} more of freed samples "
            f"(glibc before 2.38{unknown}); the environment variable MALLOC_MMAP_THRESHOLD_=131072 prevents this"
        )
    if weights is None:
        notes.append("loading the weights of the model is not counted, because their number is unknown")
    return tuple(notes)


def _shared_memory(job: Job, rank: HostRank, ranks: int, found: HostEstimate) -> HostEstimate:
    """`found`; or the estimate of /dev/shm alone, if the job runs out of that."""
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
