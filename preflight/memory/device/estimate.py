"""Device memory of a Job: law (requested) -> replay (allocated, reserved) -> context (process)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.lower import lower_bound
from preflight.memory.device.open_settings import at_least, fullest, over_candidates
from preflight.memory.device.parallel.nccl import buffers as nccl_buffers
from preflight.memory.device.phases import note_on_images, phases_beside
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import convolution, intervals
from preflight.memory.device.step.effect import Again
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.largest import largest_allocation
from preflight.memory.device.step.ready import Ready
from preflight.memory.device.step.replay import Phase, Replayed
from preflight.memory.device.step.run import replayed, requested_by_libraries, requested_peak
from preflight.memory.device.step.timeline import Recorder, thinned
from preflight.vocabulary.estimates import DeviceEstimate, Interval, Moment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown

MAX_BATCH = 1 << 20
REPLAYS = 4
"""Replays that the largest batch may cost."""
UNKNOWN_CONTEXT = (round(0.09 * 2**30), round(0.34 * 2**30), round(0.75 * 2**30))
"""CUDA context and libraries of one process on a GPU that nobody named: range and median of 45 single-process
out-of-memory messages (docs/accuracy.md, "context")."""


def estimate(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> DeviceEstimate | Unknown:
    """One GPU's memory over the phases of a job, or why it cannot be known.

    `gpu` None: the capacity is the job's `machine.gpu_memory` where stated, else the verdict is "unknown".
    `tracing`: whether models that no shipped law knows are traced.
    """
    ready = prepare(job, gpu, True, tracing)
    if isinstance(ready, Unknown):
        return _without_a_law(job, ready, gpu, tracing)
    try:
        return fullest([_full(one) for one in (ready, *ready.peers)], [_full(one) for one in ready.others])
    except NotRegular as error:
        return Unknown(f"the law of {ready.resolved.name} does not hold for so few layers: {error}", Cause.not_modelled)


def _without_a_law(job: Job, reason: Unknown, gpu: Gpu | None, tracing: Tracing) -> DeviceEstimate | Unknown:
    """What is certain of a job that leaves something open: of all that it may be, else of the least that it may be."""
    found = over_candidates(job, reason, lambda one: estimate(one, gpu, tracing))
    if not isinstance(found, Unknown):
        return found
    space = room(job, gpu)
    states = lower_bound(job, space, found)
    if space[0] is None or (not isinstance(states, Unknown) and states.verdict == "exceeds"):
        return states
    return at_least(job, found, lambda one: estimate(one, gpu, tracing)) or states


def _full(ready: Ready) -> DeviceEstimate:
    job, beside = ready.job, phases_beside(ready)
    capacity, context = _room(ready)
    limit = capacity - context.expected if capacity else None
    found = replayed(ready, beside, limit)
    requested = requested_peak(ready, beside)
    extra = _extra(ready)
    trials = job.parallel.trials_per_gpu or 1

    def around(one: Replayed) -> Interval:
        return intervals.interval(one.reserved * trials, intervals.RESERVED, extra)

    reserved = around(found)
    again = Again(
        lambda one, earlier: around(replayed(one, beside, limit, earlier=earlier)),
        None if capacity is None else capacity - trials * context.high,
    )
    for effect in EFFECTS:
        reserved = effect.reserved(ready, reserved, again)
    process = Interval(*(r + trials * c for r, c in zip(_triple(reserved), _triple(context), strict=True)))
    parts = {name: size * trials for name, size in found.parts.items()}
    parts["allocator"] = reserved.expected - sum(parts.values())
    parts["context"] = context.expected * trials
    above = process.expected - found.allocated * trials
    phases = {name: size * trials + above for name, size in found.phases.items()}
    top = max((p for p in beside if p.name == found.phase), key=lambda p: p.peak.bytes, default=None)
    where = top.peak.where if top is not None else _where(ready, found.phase)
    estimated = DeviceEstimate(
        requested=intervals.interval(requested * trials, intervals.REQUESTED, extra),
        allocated=intervals.interval(found.allocated * trials, intervals.ALLOCATED, extra),
        reserved=reserved,
        process=process,
        phase=found.phase,
        where=where,
        breakdown=parts,
        phases=phases,
        largest_allocation=largest_allocation(ready, beside),
        capacity=capacity,
        verdict=process.verdict(capacity),
        notes=(
            *_left_out(ready, beside),
            *ready.notes,
            *ready.resolved.workload.notes(job, ready.resolved),
            *note_on_images(ready),
            *((ready.laws.instead,) if ready.laws.instead else ()),
            *(note for effect in EFFECTS for note in effect.notes(ready)),
        ),
    )
    return estimated if capacity is None else replace(estimated, largest_batch_size=_most(ready, beside, estimated))


def _most(ready: Ready, beside: Sequence[Phase], found: DeviceEstimate) -> int | None:
    """The largest batch that fits. A compiled step has a law at its own batch alone: there the plain step stands in,
    which mostly takes more, and the job's own batch counts if it fits."""
    capacity = found.capacity or 0
    if not ready.fused:
        return _proved(ready, beside, _largest_batch(ready, beside, capacity))
    plain = prepare(ready.job, ready.gpu, tracing=ready.tracing)
    if isinstance(plain, Unknown):
        return None
    own = ready.dims["b"] if found.verdict == "fits" else 0
    return max(own, _proved(plain, beside, _largest_batch(plain, beside, capacity)))


def _extra(ready: Ready) -> tuple[float, float]:
    """What widens every tier's interval, below and above."""
    below, above = intervals.widen(
        ready.job, ready.resolved.workload.convolutional, ready.rank.layout.sharded, ready.fused
    )
    less, more = ready.resolved.workload.wider
    below, above = below + less, above + more
    unsure = ready.laws.unsure(ready.dims)
    above += unsure / requested_peak(ready) if unsure else 0.0
    for effect in EFFECTS:
        less, more = effect.wider(ready)
        below, above = below + less, above + more
    return below, above


def _left_out(ready: Ready, beside: Sequence[Phase]) -> tuple[str, ...]:
    """Phases that the job has and no law covers."""
    job, generation = ready.job, ready.resolved.workload.generation_phase
    names = {phase.name for phase in beside}
    runs = {"validation": job.validation.batch_size is not None, generation: bool(job.validation.generates)}
    return tuple(
        f"{name} is not counted: no law covers it" for name, is_run in runs.items() if is_run and name not in names
    )


def _proved(ready: Ready, beside: Sequence[Phase], batch: int) -> int:
    """The batch that the bound allows, made smaller until a replay, which sees fragmentation, agrees."""
    capacity, context = _room(ready)
    _, above = _extra(ready)
    trials = ready.job.parallel.trials_per_gpu or 1
    for _ in range(REPLAYS):
        if batch == 0 or capacity is None:
            break
        smaller = replace(ready, dims={**ready.dims, "b": batch})
        reserved = replayed(smaller, beside, capacity - context.expected).reserved
        if trials * (reserved * (1 + intervals.RESERVED[1] + above) + context.high) <= capacity:
            break
        batch -= max(1, batch // 16)
    return batch


def _triple(interval: Interval) -> tuple[int, int, int]:
    return interval.low, interval.expected, interval.high


def room(job: Job, gpu: Gpu | None, convolutional: bool = False) -> tuple[int | None, Interval]:
    """What a job can have of the GPU, and the context of each of its processes: (capacity or None, context).

    set_per_process_memory_fraction is of the whole GPU, and of what PyTorch reserves: the context comes on top.
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


def _room(ready: Ready) -> tuple[int | None, Interval]:
    return room(ready.job, ready.gpu, ready.resolved.workload.image_loop)


def timeline(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> tuple[Moment, ...]:
    """The second training step and what follows it, moment by moment; empty where there is no law."""
    ready = prepare(job, gpu, True, tracing)
    if isinstance(ready, Unknown):
        return ()
    capacity, context = _room(ready)
    recorder = Recorder()
    replayed(ready, phases_beside(ready), capacity - context.expected if capacity else None, recorder)
    return thinned(recorder.moments)


def reserved_after(ready: Ready, earlier: Sequence[Mapping[str, int]]) -> int:
    """Bytes reserved after batches of these lengths, and two of the job's own."""
    capacity, context = _room(ready)
    return replayed(ready, (), capacity - context.expected if capacity else None, earlier=earlier).reserved


def _where(ready: Ready, phase: str) -> str:
    if phase == "optimizer":
        return f"{ready.job.train.optimizer}.step"
    if phase == "load":
        return ""
    return ready.laws.reading(ready.accumulating, ready.outputs_kept).peak(ready.dims, frozenset({phase})).where


def bound(job: Job, gpu: Gpu | None, tracing: Tracing = TRACE) -> tuple[int, int] | None:
    """(expected, high) bytes of the process without a replay; grows with every numeric field. None: unknown."""
    ready = prepare(job, gpu, tracing=tracing)
    if isinstance(ready, Unknown):
        return None
    try:
        return _bounds(ready)
    except NotRegular:
        return None


def _bounds(ready: Ready) -> tuple[int, int]:
    """The fullest rank's, and the high end of whatever the job may be."""
    ranks = [_bound(one, phases_beside(one, smooth=True)) for one in (ready, *ready.peers)]
    others = [_bound(one, phases_beside(one, smooth=True))[1] for one in ready.others]
    return max(low for low, _ in ranks), max([high for _, high in ranks] + others)


def _bound(ready: Ready, beside: Sequence[Phase]) -> tuple[int, int]:
    requested = requested_peak(ready, beside, smooth=True) + requested_by_libraries(ready)
    _, context = _room(ready)
    _, above = _extra(ready)
    reserved = round(requested * (1 + intervals.ROUNDED))
    trials = ready.job.parallel.trials_per_gpu or 1
    high = round(reserved * (1 + intervals.RESERVED[1] + above)) + context.high
    return (reserved + context.expected) * trials, high * trials


def _largest_batch(ready: Ready, beside: Sequence[Phase], capacity: int) -> int:
    """The largest micro-batch whose high end fits; 0: not even 1. All grows with the batch, so it is bisected."""

    def fits(batch: int) -> bool:
        return _bound(replace(ready, dims={**ready.dims, "b": batch}), beside)[1] <= capacity

    low, high = 0, 1
    while fits(high) and high < MAX_BATCH:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
