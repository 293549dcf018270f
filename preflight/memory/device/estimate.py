"""Device memory of a Job: the law gives requested bytes, the replay allocated and reserved, the context the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from preflight.memory.device.law import loss_and_kernels
from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.open_settings import (
    at_least,
    at_most,
    fullest,
    has_an_end,
    has_few_values,
    over_candidates,
)
from preflight.memory.device.parallel.nccl import buffers as nccl_buffers
from preflight.memory.device.phases import computes_loss, note_on_images, phases_beside
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import convolution, intervals, varying_lengths
from preflight.memory.device.step.effect import Again
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.largest_allocation import largest_allocation
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase, Replayed
from preflight.memory.device.step.run import Recorder, replayed, requested_by_libraries, requested_peak, thinned
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.estimates import DeviceEstimate, Interval, StepMoment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown

_CALIBRATED: tuple[intervals.Tier, ...] = ("allocated", "reserved", "process")
MAX_BATCH = 1 << 20
REPLAYS = 4
"""Estimates of the largest batch that make it smaller by little."""
HALVINGS = 8
"""Estimates that then halve what is between a batch that fits and one that does not: exact up to 256 steps."""
CLEARLY = 1.1
"""Tensors whose interval ends at this many times the capacity do not fit, whatever a replay says: it adds what the
allocator rounds and keeps, and takes nothing away."""
UNKNOWN_CONTEXT = (round(0.09 * 2**30), round(0.34 * 2**30), round(0.75 * 2**30))
"""CUDA context and libraries of one process on a GPU that is not stated: range and median of 45 single-process
out-of-memory messages (docs/results/accuracy.md, "context")."""


def estimate(
    job: Job, gpu: Gpu | None, tracing: Tracing = TRACE, verdict_alone: bool = False
) -> DeviceEstimate | Unknown:
    """One GPU's memory over the phases of a job, or why it cannot be known.

    `gpu` None: the capacity is the job's `machine.gpu_memory` where stated, else the verdict is "unknown".
    `tracing`: whether models that no shipped law knows are traced. `verdict_alone`: the verdict is right, the reserved
    bytes may be too low (see `_full`).
    """
    prepared = prepare(job, gpu, True, tracing)
    if isinstance(prepared, Unknown):
        return _without_a_law(job, prepared, gpu, tracing, verdict_alone)
    try:
        found = fullest(
            [_full(one, verdict_alone) for one in (prepared, *prepared.peers)],
            [_full(one, verdict_alone) for one in prepared.alternatives],
        )
        return _in_samples(job, found)
    except NotRegular as error:
        return Unknown(
            f"the law of {prepared.resolved.name} does not hold for so few layers: {error}", Cause.not_modelled
        )


def _in_samples(job: Job, found: DeviceEstimate) -> DeviceEstimate:
    """The estimate with a largest batch that counts what the job's own batch counts."""
    each, search = job.train.sequences_per_sample or 1, found.find_largest_batch
    if each == 1:
        return found

    def largest() -> int | None:
        most = search()
        return None if most is None else most // each

    return replace(found, find_largest_batch=largest)


def _without_a_law(
    job: Job, reason: Unknown, gpu: Gpu | None, tracing: Tracing, verdict_alone: bool
) -> DeviceEstimate | Unknown:
    """The estimate of a job that has no law because a setting is not known: over all values of the setting, of its
    most where that fits, else a lower bound."""
    from preflight.memory.device.lower_bound import lower_bound

    estimated = partial(estimate, gpu=gpu, tracing=tracing, verdict_alone=verdict_alone)
    found = over_candidates(job, reason, estimated)
    if not isinstance(found, Unknown):
        return found
    longest = at_most(job, found, estimated, partial(may_fit, gpu=gpu, tracing=tracing))
    if longest is not None:
        return longest
    space = room(job, gpu)
    states = lower_bound(job, space, found)
    if space[0] is None or (not isinstance(states, Unknown) and states.verdict == "exceeds"):
        return states
    return at_least(job, found, partial(estimated, verdict_alone=True)) or states  # a full card keeps nothing cached


def tensors_on_processor(job: Job, tracing: Tracing) -> tuple[int, int] | Unknown:
    """Of a job that the processor trains: bytes of weights, gradients and optimizer states, and what a step has beside
    them at its peak. The tensors are those of its law; foreach and fused optimizers are chosen for CUDA alone
    (torch/optim/optimizer.py, _default_to_fused_or_foreach)."""
    ready = prepare(unchecked(job, {"train.optimizer_impl": "for-loop"}), tracing=tracing)
    if isinstance(ready, Unknown):
        return ready
    try:
        peak = requested_peak(ready, phases_beside(ready))
    except NotRegular as error:
        return Unknown(str(error), Cause.not_modelled)
    states = min(peak, ready.weights + ready.gradients + round(sum(ready.optimizer.states)))
    return states, peak - states


def may_fit(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> bool | None:
    """Whether the verdict of `estimate` will be "fits", told without a replay: False is certain, True is likely, None
    is not known."""
    prepared = prepare(job, gpu, True, tracing)
    if isinstance(prepared, Unknown):  # a lower bound never says that a job fits
        return None if has_few_values(prepared) or has_an_end(job, prepared) else False
    capacity, context = room_of(prepared)
    if capacity is None:
        return False
    trials = job.parallel.trials_per_gpu or 1
    try:
        tensors = requested_peak(prepared, phases_beside(prepared))
        if trials * (tensors * (1 + intervals.RESERVED[1]) + context.high) > CLEARLY * capacity:
            return False
        return True if not prepared.compiled and bounds_of(prepared)[1] <= capacity else None
    except NotRegular:
        return False


def _full(prepared: PreparedJob, verdict_alone: bool = False) -> DeviceEstimate:
    """`verdict_alone`: batches of other lengths are not replayed. What they leave cached is given back before memory
    runs out, so it raises the figures up to the capacity and moves no verdict."""
    job, beside = prepared.job, phases_beside(prepared)
    capacity, context = room_of(prepared)
    limit = capacity - context.expected if capacity else None
    found = replayed(prepared, beside, limit)
    requested = requested_peak(prepared, beside)
    extra = widths_of(prepared)
    trials = job.parallel.trials_per_gpu or 1

    def around(one: Replayed) -> Interval:
        return intervals.interval(one.reserved * trials, intervals.RESERVED, extra)

    steady = reserved = around(found)
    again = Again(
        lambda one, earlier: around(replayed(one, beside, limit, earlier=earlier)),
        None if capacity is None or verdict_alone else capacity - trials * context.high,
    )
    for effect in EFFECTS:
        reserved = effect.reserved(prepared, reserved, again)
    kind = kind_of(prepared)
    by = {tier: intervals.factors(tier, kind) for tier in _CALIBRATED}
    around_steady, whole = (_with_context(one, context, trials) for one in (steady, reserved))
    process = intervals.with_effects(around_steady, whole, by["process"])
    reserved = intervals.with_effects(steady, reserved, by["reserved"])
    allocated = intervals.interval(found.allocated * trials, intervals.ALLOCATED, extra)
    parts = {name: size * trials for name, size in found.parts.items()}
    parts["allocator"] = reserved.expected - sum(parts.values())
    parts["context"] = context.expected * trials
    above = process.expected - found.allocated * trials
    phases = {name: size * trials + above for name, size in found.phases.items()}
    top = max((p for p in beside if p.name == found.phase), key=lambda p: p.peak.bytes, default=None)
    where = top.peak.where if top is not None else _where(prepared, found.phase)
    estimated = DeviceEstimate(
        requested=intervals.stretched(
            intervals.interval(requested * trials, intervals.REQUESTED, extra), by["allocated"]
        ),
        allocated=intervals.stretched(allocated, by["allocated"]),
        reserved=reserved,
        process=process,
        phase=found.phase,
        where=where,
        breakdown=parts,
        phases=phases,
        largest_allocation=largest_allocation(prepared, beside),
        capacity=capacity,
        verdict=process.verdict(capacity),
        notes=(
            *_left_out(prepared, beside),
            *prepared.notes,
            *prepared.resolved.workload.notes(job, prepared.resolved),
            *note_on_images(prepared),
            *((prepared.laws.instead,) if prepared.laws.instead else ()),
            *loss_and_kernels.notes(job.train.fused_kernels, prepared.resolved.setup.kernels),
            *(note for effect in EFFECTS for note in effect.notes(prepared)),
        ),
        coverage=intervals.coverage("process", kind),
    )
    if capacity is None:
        return estimated
    if prepared.compiled:  # another law is read, which may not hold: then nothing is known of the job
        most = _most_of_compiled(prepared, beside, estimated)
        return replace(estimated, find_largest_batch=lambda: most)
    largest = partial(_largest_batch, prepared, beside, capacity)
    own = prepared.dims["b"] if estimated.verdict == "fits" else 0
    return replace(estimated, find_largest_batch=lambda: _proved(prepared, largest(), own))


def _most_of_compiled(prepared: PreparedJob, beside: Sequence[Phase], found: DeviceEstimate) -> int | None:
    """The largest batch that fits. The law of a compiled step holds at its own batch only. So the plain step is used,
    which mostly takes more; the job's own batch counts if it fits."""
    plain = prepare(prepared.job, prepared.gpu, tracing=prepared.tracing)
    if isinstance(plain, Unknown):
        return None
    own = prepared.dims["b"] if found.verdict == "fits" else 0
    return _proved(plain, _largest_batch(plain, beside, found.capacity or 0), own)


def _with_context(reserved: Interval, context: Interval, trials: int) -> Interval:
    return Interval(*(r + trials * c for r, c in zip(_triple(reserved), _triple(context), strict=True)))


def kind_of(prepared: PreparedJob) -> str:
    """The kind of job that its intervals are calibrated as."""
    varying = bool(varying_lengths.earlier(prepared.job, prepared.dims))
    return intervals.kind_of(prepared.job, prepared.resolved, prepared.rank.layout.sharded, varying)


def widths_of(prepared: PreparedJob) -> tuple[float, float]:
    """By how much the interval of every tier is wider, below and above, as fractions."""
    below, above = intervals.widen(
        prepared.job, prepared.resolved.workload.convolutional, prepared.rank.layout.sharded, prepared.compiled
    )
    less, more = prepared.resolved.workload.wider
    below, above = below + less, above + more
    unsure = prepared.laws.unsure(prepared.dims)
    above += unsure / requested_peak(prepared) if unsure else 0.0
    below += prepared.laws.spared
    for effect in EFFECTS:
        less, more = effect.wider(prepared)
        below, above = below + less, above + more
    return below, above


def _left_out(prepared: PreparedJob, beside: Sequence[Phase]) -> tuple[str, ...]:
    """Phases that the job has and no law covers."""
    job, generation = prepared.job, prepared.resolved.workload.generation_phase
    names = {phase.name for phase in beside}
    validates = job.validation.batch_size is not None and computes_loss(job.validation)
    runs = {"validation": validates, generation: bool(job.validation.generates)}
    return tuple(
        f"{name} is not counted: no law covers it" for name, is_run in runs.items() if is_run and name not in names
    )


def _proved(prepared: PreparedJob, batch: int, least: int) -> int:
    """The largest batch whose estimate says that it fits. The `batch` of the bound may be too large: it sees neither
    what the allocator keeps nor lengths that vary. `least` is known to fit. The search goes down by sixteenths, then
    halves what is between a batch that fits and one that does not."""
    failed = None
    for _ in range(REPLAYS):
        if batch <= least or _fits(prepared, batch):
            least = max(batch, least)
            break
        failed, batch = batch, batch - max(1, batch // 16)
    for _ in range(HALVINGS if failed is not None else 0):
        middle = (least + failed) // 2 if failed is not None else least
        if middle == least:
            break
        least, failed = (middle, failed) if _fits(prepared, middle) else (least, middle)
    return least


def _fits(prepared: PreparedJob, batch: int) -> bool:
    job = unchecked(prepared.job, {"train.batch_size": batch})
    one = prepare(job, prepared.gpu, tracing=prepared.tracing)
    if isinstance(one, Unknown):
        return False
    same, others = ([_full(each, True) for each in some] for some in ((one, *one.peers), one.alternatives))
    found = fullest(same, others)
    return found.verdict == "fits"


def _triple(interval: Interval) -> tuple[int, int, int]:
    return interval.low, interval.expected, interval.high


def room(job: Job, gpu: Gpu | None, convolutional: bool = False) -> tuple[int | None, Interval]:
    """The capacity that a job may use (None: not known), and the context of each of its processes.

    set_per_process_memory_fraction is a share of the whole GPU and limits what PyTorch reserves: the context comes on
    top.
    """
    capacity = job.machine.gpu_memory or (gpu.capacity if gpu is not None else None)
    low, expected, high = gpu.context if gpu is not None else UNKNOWN_CONTEXT
    if job.machine.context is not None:
        low = expected = high = job.machine.context
    else:
        low, expected, high = (a + b for a, b in zip((low, expected, high), nccl_buffers(job, gpu), strict=True))
        low, expected, high = _triple(convolution.loaded_at_once(job, gpu, Interval(low, expected, high)))
    context = Interval(low, expected, high)
    if convolutional and job.machine.context is None:
        context = convolution.context(job, gpu, context)
    fraction = job.train.allocator.per_process_fraction
    if capacity is not None and fraction is not None:
        allowed = round(fraction * capacity) + context.expected
        capacity = min(capacity, (job.parallel.trials_per_gpu or 1) * allowed)
    return capacity, context


def room_of(prepared: PreparedJob) -> tuple[int | None, Interval]:
    return room(prepared.job, prepared.gpu, prepared.resolved.workload.image_loop)


def timeline(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> tuple[StepMoment, ...]:
    """The second training step and what follows it, moment by moment; empty where there is no law."""
    prepared = prepare(job, gpu, True, tracing)
    if isinstance(prepared, Unknown):
        return ()
    capacity, context = room_of(prepared)
    recorder = Recorder()
    replayed(prepared, phases_beside(prepared), capacity - context.expected if capacity else None, recorder)
    return thinned(recorder.moments)


def reserved_after(prepared: PreparedJob, earlier: Sequence[Mapping[str, int]]) -> int:
    """Bytes reserved after batches of these lengths, and two of the job's own."""
    capacity, context = room_of(prepared)
    return replayed(prepared, (), capacity - context.expected if capacity else None, earlier=earlier).reserved


def _where(prepared: PreparedJob, phase: str) -> str:
    if phase == "optimizer":
        return f"{prepared.job.train.optimizer}.step"
    if phase == "load":
        return ""
    return (
        prepared.laws.reading(prepared.accumulating, prepared.outputs_kept)
        .peak(prepared.dims, frozenset({phase}))
        .where
    )


def bound(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> tuple[int, int] | None:
    """(expected, high) bytes of the process without a replay; grows with every numeric field. None: unknown.

    The replay of most jobs needs no more, and that of no job more than `intervals.blocks` times as much, apart from
    what lengths that vary leave cached, which is given back before memory runs out.
    """
    prepared = prepare(job, gpu, tracing=tracing)
    if isinstance(prepared, Unknown):
        return None
    try:
        return bounds_of(prepared)
    except NotRegular:
        return None


def bounds_of(prepared: PreparedJob) -> tuple[int, int]:
    """Bounds of the fullest rank; the high end covers the alternatives of the job as well."""
    ranks = [_bound(one, phases_beside(one, smooth=True)) for one in (prepared, *prepared.peers)]
    others = [_bound(one, phases_beside(one, smooth=True))[1] for one in prepared.alternatives]
    return max(low for low, _ in ranks), max([high for _, high in ranks] + others)


def _bound(prepared: PreparedJob, beside: Sequence[Phase]) -> tuple[int, int]:
    requested = requested_peak(prepared, beside, smooth=True) + requested_by_libraries(prepared)
    _, context = room_of(prepared)
    reserved = round(requested * (1 + intervals.ROUNDED))
    trials = prepared.job.parallel.trials_per_gpu or 1
    times, beside_it = high_end(prepared)
    high = round(reserved * times) + beside_it
    return (reserved + context.expected) * trials, high * trials


def high_end(prepared: PreparedJob) -> tuple[float, int]:
    """What reserved bytes are multiplied by for the high end of a process, and the bytes beside them."""
    wider = intervals.factors("process", kind_of(prepared)).above
    _, context = room_of(prepared)
    beside = context.expected + round(max(1.0, wider) * (context.high - context.expected))
    return 1 + wider * (intervals.RESERVED[1] + widths_of(prepared)[1]), beside


def _largest_batch(prepared: PreparedJob, beside: Sequence[Phase], capacity: int) -> int:
    """The largest micro-batch whose high end fits; 0: not even 1. All grows with the batch, so it is bisected."""

    def fits(batch: int) -> bool:
        return _bound(replace(prepared, dims={**prepared.dims, "b": batch}), beside)[1] <= capacity

    low, high = 0, 1
    while fits(high) and high < MAX_BATCH:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
