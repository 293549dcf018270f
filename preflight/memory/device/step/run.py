"""One job's steps on one GPU: replayed through the allocator, and bounded by the law without a replay.

Both read the same effects (`effects.EFFECTS`), so that what one counts the other does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effect import Passage
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.loading import load
from preflight.memory.device.step.ready import Ready
from preflight.memory.device.step.replay import Phase, Replay, Replayed, Segment
from preflight.memory.device.step.timeline import Recorder

MIB = 2**20


def replayed(
    ready: Ready,
    beside: Sequence[Phase],
    limit: int | None,
    recorder: Recorder | None = None,
    earlier: Sequence[Mapping[str, int]] = (),
) -> Replayed:
    """What two training steps and the phases `beside` them take. `limit`: bytes that the allocator may reserve;
    `earlier`: lengths of batches before the two that count."""
    job = ready.job
    replay = Replay(_allocator(ready, limit), recorder)
    copies = 1 + (job.train.copies.reference or 0) + (job.train.copies.ema or 0)
    load(replay, ready.rank.rows, ready.resolved.setup.quantization, 1.0, copies)
    if ready.buffers:
        replay.hold([ready.buffers], "weights", "load")
    for effect in EFFECTS:
        for passage in effect.before(ready):
            _pass(replay, passage)
    tries = any(effect.tries_kernels(ready) for effect in EFFECTS)
    segments = [*(_segment(ready, lengths) for lengths in earlier), *[_segment(ready, {})] * 2]
    for iteration, segment in enumerate(segments):
        if recorder is not None:
            recorder.on = iteration == len(segments) - 1
        _iterate(replay, ready, segment, iteration == 0, tries)
    for phase in beside:
        loaded = replay.hold(phase.loaded, "temporary", phase.name)
        kept = replay.hold(phase.kept, "logits", phase.name)
        replay.run(phase.segment())
        replay.drop(replay.hold(phase.kept_again, "logits", phase.name))
        replay.drop([*kept, *loaded])
    left = [passage for effect in EFFECTS for passage in effect.after(ready)]
    for passage in left:
        _pass(replay, passage)
    if any(passage.kept for passage in left):  # training goes on beside it
        replay.run(segments[-1], accumulated=ready.in_backward or ready.zeros_stay)
    return replay.result()


def _allocator(ready: Ready, limit: int | None) -> CachingAllocator:
    options = ready.job.train.allocator
    split = options.max_split_size_mb
    threshold = options.garbage_collection_threshold if options.per_process_fraction else None
    return CachingAllocator(
        limit,
        bool(options.expandable_segments),
        split * MIB if split else None,
        round(threshold * limit) if threshold and limit else None,
    )


def _iterate(replay: Replay, ready: Ready, segment: Segment, first: bool, tries: bool) -> None:
    """One iteration: forward, backward, the optimizer's step."""
    replay.run(segment, accumulated=ready.in_backward or (ready.zeros_stay and not first), benchmarking=tries and first)
    if ready.accumulating and not (ready.in_backward or ready.zeros_stay):
        replay.run(segment, accumulated=True)
    replay.optimizer_step(ready.optimizer, first)
    if ready.job.train.outputs_kept != "loop":
        replay.forget_outputs()
    if not ready.zeros_stay:
        replay.zero_grad()
    if ready.job.train.empty_cache_every:
        replay.allocator.empty_cache()


def _pass(replay: Replay, passage: Passage) -> None:
    """Allocate storages, and free those that do not stay."""
    if passage.kept:
        replay.hold(passage.kept, passage.part, passage.phase)
    if passage.passing:
        replay.drop(replay.hold(passage.passing, passage.part, passage.phase))


def _segment(ready: Ready, lengths: Mapping[str, int]) -> Segment:
    dims = {**ready.dims, **lengths}
    segment = Segment.of(ready.laws.made.tape, dims, ready.outputs_kept)
    for effect in EFFECTS:
        segment = effect.step(ready, segment, dims)
    return segment


def requested_peak(ready: Ready, beside: Sequence[Phase] = (), smooth: bool = False) -> int:
    """The law's peak: sum of live tensors at the largest moment of any phase. `smooth`: see `Law.peak`."""
    before = [one for effect in EFFECTS for one in effect.before(ready) if not one.library]
    after = [one for effect in EFFECTS for one in effect.after(ready)]
    later = sum(ready.optimizer.states) + sum(sum(one.kept) for one in after)  # not there yet when training begins
    states = ready.weights + later + sum(sum(one.kept) for one in before)
    gradients = 0 if ready.in_backward else ready.gradients
    micro = _micro(ready, gradients, smooth)
    for effect in EFFECTS:
        micro = effect.raised(ready, micro)
    phases = [p.peak.bytes + sum(p.kept) + sum(p.loaded) for p in beside]
    phases += [sum(p.kept) + sum(p.kept_again) for p in beside]
    phases += [sum(one.passing) - later for one in before] + [sum(one.passing) for one in after]
    return states + max(micro, gradients + ready.optimizer.temporary + ready.outputs, *phases, 0)


def _micro(ready: Ready, gradients: int, smooth: bool) -> int:
    """The peak of forward and backward over a micro-batch, above what is there throughout."""

    def peak(accumulating: bool, kept: bool, phases: frozenset[str] | None = None) -> int:
        return ready.laws.reading(accumulating, kept).peak(ready.dims, phases, smooth).bytes

    found = peak(ready.in_backward, ready.outputs_kept)
    if ready.accumulating and not ready.in_backward:
        found = max(found, gradients + peak(True, ready.outputs_kept))
    if ready.job.train.outputs_kept == "loop":
        forward = peak(ready.accumulating, True, frozenset({"forward"}))
        found = max(found, ready.outputs + forward + (gradients if ready.accumulating else 0))
    return found


def requested_by_libraries(ready: Ready) -> int:
    """Bytes that libraries take for themselves."""
    return sum(sum(one.kept) for effect in EFFECTS for one in effect.before(ready) if one.library)
