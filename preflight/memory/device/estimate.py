"""Device memory of a Job: law (requested) -> replay (allocated, reserved) -> context (process)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.lower import lower_bound
from preflight.memory.device.open_settings import over_candidates
from preflight.memory.device.parallel import fullest
from preflight.memory.device.parallel.nccl import buffers as nccl_buffers
from preflight.memory.device.prepare import Ready, prepare
from preflight.memory.device.step import convolution, generated, intervals, saving, softmax, varying_lengths
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.largest import largest_allocation
from preflight.memory.device.step.loading import load
from preflight.memory.device.step.replay import Replay, Replayed, Segment
from preflight.memory.device.step.timeline import Recorder, thinned
from preflight.memory.device.step.validation import Phase, phases_beside
from preflight.memory.device.workloads import remote_code_extras as own
from preflight.memory.device.workloads.image_models import is_image_model, waiting
from preflight.memory.device.workloads.registry import is_convolutional, wider
from preflight.vocabulary.estimates import DeviceEstimate, Interval, Moment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.values import Cause, Unknown

MIB = 2**20
CUBLAS_WORKSPACE = 8 * MIB + 128 * 1024
"""CUBLAS_WORKSPACE_CONFIG's default :4096:2:16:8, in bytes: 2 x 4,096 KiB + 8 x 16 KiB; 32 MiB from compute capability
9.0 on (ATen/cuda/CUDABlas.cpp, parseChosenWorkspaceSize). One per thread that multiplies: forward and backward."""
CUBLAS_WORKSPACE_HOPPER = 32 * MIB
MAX_BATCH = 1 << 20
REPLAYS = 4
"""Replays that the largest batch may cost."""
UNKNOWN_CONTEXT = (round(0.09 * 2**30), round(0.34 * 2**30), round(0.75 * 2**30))
"""CUDA context and libraries of one process on a GPU that nobody named: range and median of 45 single-process
out-of-memory messages (docs/accuracy.md, "context")."""


def estimate(job: Job, gpu: Gpu | None) -> DeviceEstimate | Unknown:
    """One GPU's memory over the phases of a job, or why it cannot be known.

    `gpu` None: the capacity is the job's `machine.gpu_memory` where stated, else the verdict is "unknown".
    """
    ready = prepare(job, gpu, compiled=True)
    if isinstance(ready, Unknown):
        found = over_candidates(job, ready, lambda one: estimate(one, gpu))
        return lower_bound(job, room(job, gpu), found) if isinstance(found, Unknown) else found
    try:
        ranks = [_full(one, phases_beside(one), gpu) for one in (ready, *ready.peers)]
        return fullest(ranks, [_full(one, phases_beside(one), gpu) for one in ready.others])
    except NotRegular as error:
        return Unknown(
            f"the law of {ready.resolved.name} does not reach down to this depth: {error}", Cause.not_modelled
        )


def _full(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None) -> DeviceEstimate:
    job = ready.job
    capacity, context = room(job, gpu, _convolutional(ready))
    replayed = _replay(ready, beside, gpu, capacity - context.expected if capacity else None)
    requested = requested_peak(ready, beside)
    extra = _extra(ready)
    trials = job.parallel.trials_per_gpu or 1
    reserved = intervals.interval(replayed.reserved * trials, intervals.RESERVED, extra)
    other_way = convolution.other_way(job, ready.resolved)
    if other_way is not None:
        other = _replay(replace(ready, job=other_way), beside, gpu, capacity - context.expected if capacity else None)
        reserved = convolution.either(reserved, intervals.interval(other.reserved * trials, intervals.RESERVED, extra))
    earlier = varying_lengths.earlier(job, ready.dims) if capacity is not None else ()
    if capacity is not None and earlier:
        again = _replay(ready, beside, gpu, capacity - context.expected, earlier=earlier).reserved * trials
        room_left = capacity - trials * context.high
        reserved = varying_lengths.interval(reserved, again, room_left, job.train.sequences == "dynamic")
    process = Interval(*(r + trials * c for r, c in zip(_triple(reserved), _triple(context), strict=True)))
    parts = {name: size * trials for name, size in replayed.parts.items()}
    parts["allocator"] = reserved.expected - sum(parts.values())
    parts["context"] = context.expected * trials
    above = process.expected - replayed.allocated * trials
    phases = {name: size * trials + above for name, size in replayed.phases.items()}
    top = max((p for p in beside if p.name == replayed.phase), key=lambda p: p.peak.bytes, default=None)
    where = top.peak.where if top is not None else _where(ready, replayed.phase)
    found = DeviceEstimate(
        requested=intervals.interval(requested * trials, intervals.REQUESTED, extra),
        allocated=intervals.interval(replayed.allocated * trials, intervals.ALLOCATED, extra),
        reserved=reserved,
        process=process,
        phase=replayed.phase,
        where=where,
        breakdown=parts,
        phases=phases,
        largest_allocation=largest_allocation(ready, beside),
        capacity=capacity,
        verdict=process.verdict(capacity),
        notes=(
            *_left_out(ready, beside),
            *ready.notes,
            *((ready.laws.instead,) if ready.laws.instead else ()),
            *convolution.notes(job, gpu, ready.resolved),
            *own.notes(ready.resolved),
            *saving.notes(job),
            *generated.notes(ready),
        ),
    )
    return found if capacity is None else replace(found, largest_batch_size=_most(ready, beside, gpu, found))


def _most(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None, found: DeviceEstimate) -> int | None:
    """The largest batch that fits. A compiled step has a law at its own batch alone: there the plain step stands in,
    which mostly takes more, and the job's own batch counts if it fits."""
    capacity = found.capacity or 0
    if not ready.fused:
        return _replayed(ready, beside, gpu, _largest_batch(ready, beside, gpu, capacity))
    plain = prepare(ready.job, gpu)
    if isinstance(plain, Unknown):
        return None
    own = ready.dims["b"] if found.verdict == "fits" else 0
    return max(own, _replayed(plain, beside, gpu, _largest_batch(plain, beside, gpu, capacity)))


def _extra(ready: Ready) -> tuple[float, float]:
    """What widens every tier's interval, below and above."""
    below, above = intervals.widen(ready.job, _varies(ready), ready.rank.layout.sharded, ready.fused)
    less, more = wider(ready.resolved)
    below, above = below + less, above + more
    unsure = ready.laws.unsure(ready.dims)
    above += unsure / requested_peak(ready) if unsure else 0.0
    like = ready.resolved.like
    return (below, above) if like is None else (below + like.wider[0], above + like.wider[1])


def _left_out(ready: Ready, beside: tuple[Phase, ...]) -> tuple[str, ...]:
    """Phases that the job has and no law covers."""
    job, generation = ready.job, generated.phase_of(ready)
    names = {phase.name for phase in beside}
    runs = {"validation": job.validation.batch_size is not None, generation: bool(job.validation.generates)}
    return tuple(
        f"{name} is not counted: no law covers it" for name, is_run in runs.items() if is_run and name not in names
    )


def _replayed(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None, batch: int) -> int:
    """The batch that the bound allows, made smaller until a replay, which sees fragmentation, agrees."""
    capacity, context = room(ready.job, gpu, _convolutional(ready))
    _, above = _extra(ready)
    trials = ready.job.parallel.trials_per_gpu or 1
    for _ in range(REPLAYS):
        if batch == 0 or capacity is None:
            break
        smaller = replace(ready, dims={**ready.dims, "b": batch})
        reserved = _replay(smaller, beside, gpu, capacity - context.expected).reserved
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
    if capacity is not None and fraction:
        allowed = round(fraction * capacity) + context.expected
        capacity = min(capacity, (job.parallel.trials_per_gpu or 1) * allowed)
    return capacity, context


def _convolutional(ready: Ready) -> bool:
    return is_image_model(ready.resolved)


def _varies(ready: Ready) -> bool:
    """Whether workspaces of convolutions are much of the job."""
    return _convolutional(ready) or is_convolutional(ready.resolved)


def _workspace(gpu: Gpu | None) -> int:
    return CUBLAS_WORKSPACE_HOPPER if gpu is not None and gpu.compute_capability >= (9, 0) else CUBLAS_WORKSPACE


def timeline(job: Job, gpu: Gpu | None) -> tuple[Moment, ...]:
    """The second training step and what follows it, moment by moment; empty where there is no law."""
    ready = prepare(job, gpu, compiled=True)
    if isinstance(ready, Unknown):
        return ()
    capacity, context = room(job, gpu, _convolutional(ready))
    recorder = Recorder()
    _replay(ready, phases_beside(ready), gpu, capacity - context.expected if capacity else None, recorder)
    return thinned(recorder.moments)


def reserved_after(ready: Ready, gpu: Gpu | None, earlier: Sequence[Mapping[str, int]]) -> int:
    """Bytes reserved after batches of these lengths, and two of the job's own."""
    capacity, context = room(ready.job, gpu, _convolutional(ready))
    return _replay(ready, (), gpu, capacity - context.expected if capacity else None, earlier=earlier).reserved


def _replay(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None, limit: int | None,
            recorder: Recorder | None = None, earlier: Sequence[Mapping[str, int]] = ()) -> Replayed:  # fmt: skip
    """`earlier`: lengths of batches before the two that count."""
    job = ready.job
    options = job.train.allocator
    split = options.max_split_size_mb
    threshold = options.garbage_collection_threshold if options.per_process_fraction else None
    allocator = CachingAllocator(limit, bool(options.expandable_segments), split * MIB if split else None,
                                 round(threshold * limit) if threshold and limit else None)  # fmt: skip
    replay = Replay(allocator, recorder)
    copies = 1 + (job.train.copies.reference or 0) + (job.train.copies.ema or 0)
    load(replay, ready.rank.rows, ready.resolved.setup.get("quantization"), 1.0, copies)
    if ready.buffers:
        replay.hold([ready.buffers], "weights", "load")
    if ready.gathered:
        replay.drop(replay.hold([ready.gathered], "weights", "load"))
    for each in ready.rank.held:
        replay.hold([each.nbytes], each.part, "load")
    _pass(replay, saving.resumed(ready))
    replay.hold([_workspace(gpu)] * 2, "temporary", "forward")
    replay.hold(waiting(ready.resolved, ready.dims), "temporary", "forward")
    replay.hold(own.held(ready.resolved, ready.dims), "temporary", "forward")
    benchmarks = convolution.benchmarks(job, ready.resolved)
    segments = [*(_segment(ready, lengths) for lengths in earlier), *[_segment(ready, {})] * 2]
    for iteration, segment in enumerate(segments):
        first = iteration == 0
        if recorder is not None:
            recorder.on = iteration == len(segments) - 1
        replay.run(segment, accumulated=ready.in_backward or (ready.zeros_stay and not first),
                   benchmarking=benchmarks and first)  # fmt: skip
        if ready.accumulating and not (ready.in_backward or ready.zeros_stay):
            replay.run(segment, accumulated=True)
        replay.optimizer_step(ready.optimizer, first)
        if job.train.outputs_kept != "loop":
            replay.forget_outputs()
        if not ready.zeros_stay:
            replay.zero_grad()
        if job.train.empty_cache_every:
            allocator.empty_cache()
    for phase in beside:
        loaded = replay.hold(phase.loaded, "temporary", phase.name)
        kept = replay.hold(phase.kept, "logits", phase.name)
        replay.run(phase.segment())
        replay.drop(replay.hold(phase.kept_again, "logits", phase.name))
        replay.drop([*kept, *loaded])
    checkpoint = saving.saved(ready)
    _pass(replay, checkpoint)
    if checkpoint.kept:  # training goes on beside it
        replay.run(segments[-1], accumulated=ready.in_backward or ready.zeros_stay)
    return replay.result()


def _pass(replay: Replay, checkpoint: saving.Checkpoint) -> None:
    """Allocate a checkpoint, and free what does not stay of it."""
    if checkpoint is saving.NOTHING:
        return
    replay.hold(checkpoint.kept, "weights", checkpoint.phase)
    replay.drop(replay.hold(checkpoint.passing, "weights", checkpoint.phase))


def _segment(ready: Ready, lengths: Mapping[str, int]) -> Segment:
    dims = {**ready.dims, **lengths}
    segment = Segment.of(ready.laws.made.tape, dims, ready.outputs_kept)
    if softmax.keeps_input(ready.job, ready.resolved):
        segment = softmax.doubled(segment, dims)
    return own.pulsed(segment, own.pulse(ready.resolved, dims))


def requested_peak(ready: Ready, beside: tuple[Phase, ...] = (), smooth: bool = False) -> int:
    """The law's peak: sum of live tensors at the largest moment of any phase. `smooth`: see `Law.peak`."""
    job = ready.job

    def peak(accumulating: bool, kept: bool, phases: frozenset[str] | None = None) -> int:
        return ready.laws.reading(accumulating, kept).peak(ready.dims, phases, smooth).bytes

    pulse = own.pulse(ready.resolved, ready.dims)
    states = ready.weights + ready.held + sum(ready.optimizer.states) + sum(waiting(ready.resolved, ready.dims))
    gradients = ready.gradients
    micro = peak(False, ready.outputs_kept)
    if ready.in_backward:
        gradients = 0
        micro = peak(True, ready.outputs_kept)
    elif ready.accumulating:
        micro = max(micro, gradients + peak(True, ready.outputs_kept))
    if job.train.outputs_kept == "loop":
        forward = peak(ready.accumulating, True, frozenset({"forward"}))
        micro = max(micro, ready.outputs + forward + (gradients if ready.accumulating else 0))
    if pulse:
        micro = max(micro, pulse + own.at_head(Segment.of(ready.laws.made.tape, ready.dims)))
    if softmax.keeps_input(job, ready.resolved):
        segment = Segment.of(ready.laws.made.tape, ready.dims)
        micro += sum(segment.sizes[birth] for birth in softmax.inputs(segment, ready.dims))
    phases = [p.peak.bytes + sum(p.kept) + sum(p.loaded) for p in beside]
    resumed, saved = saving.resumed(ready), saving.saved(ready)
    states += sum(resumed.kept) + sum(saved.kept)
    before = sum(ready.optimizer.states) + sum(saved.kept)  # what is not there yet when training begins
    phases += [ready.gathered - before, sum(resumed.passing) - before, sum(saved.passing)]
    phases += [sum(p.kept) + sum(p.kept_again) for p in beside]
    return states + max(micro, gradients + ready.optimizer.temporary + ready.outputs, *phases, 0)


def _where(ready: Ready, phase: str) -> str:
    if phase == "optimizer":
        return f"{ready.job.train.optimizer}.step"
    if phase == "load":
        return ""
    return ready.laws.reading(ready.accumulating, ready.outputs_kept).peak(ready.dims, frozenset({phase})).where


def bound(job: Job, gpu: Gpu | None) -> tuple[int, int] | None:
    """(expected, high) bytes of the process without a replay; grows with every numeric field. None: unknown."""
    ready = prepare(job, gpu)
    if isinstance(ready, Unknown):
        return None
    try:
        return _bounds(ready, gpu)
    except NotRegular:
        return None


def _bounds(ready: Ready, gpu: Gpu | None) -> tuple[int, int]:
    """The fullest rank's, and the high end of whatever the job may be."""
    ranks = [_bound(one, phases_beside(one, smooth=True), gpu) for one in (ready, *ready.peers)]
    others = [_bound(one, phases_beside(one, smooth=True), gpu)[1] for one in ready.others]
    return max(low for low, _ in ranks), max([high for _, high in ranks] + others)


def _bound(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None) -> tuple[int, int]:
    requested = requested_peak(ready, beside, smooth=True) + 2 * _workspace(gpu)
    _, context = room(ready.job, gpu, _convolutional(ready))
    _, above = _extra(ready)
    reserved = round(requested * (1 + intervals.ROUNDED))
    trials = ready.job.parallel.trials_per_gpu or 1
    high = round(reserved * (1 + intervals.RESERVED[1] + above)) + context.high
    return (reserved + context.expected) * trials, high * trials


def _largest_batch(ready: Ready, beside: tuple[Phase, ...], gpu: Gpu | None, capacity: int) -> int:
    """The largest micro-batch whose high end fits; 0: not even 1. All grows with the batch, so it is bisected."""

    def fits(batch: int) -> bool:
        return _bound(replace(ready, dims={**ready.dims, "b": batch}), beside, gpu)[1] <= capacity

    low, high = 0, 1
    while fits(high) and high < MAX_BATCH:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
