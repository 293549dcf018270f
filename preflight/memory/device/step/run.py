"""The steps of one job on one GPU: replayed through the caching allocator, or bounded by the law without a replay.

Both read the same effects (`effects.EFFECTS`), so that what one counts the other does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effect import Passage
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.loading import load
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase, Replay, Replayed, Segment
from preflight.vocabulary.estimates import StepMoment

MIB = 2**20
MOST_POINTS = 400
"""Points that a drawing gets: a terminal has fewer columns, and a figure no finer pixels."""


def replayed(
    prepared: PreparedJob,
    beside: Sequence[Phase],
    limit: int | None,
    recorder: Recorder | None = None,
    earlier: Sequence[Mapping[str, int]] = (),
) -> Replayed:
    """Replays two training steps and the phases `beside` them. `limit`: bytes that the allocator may reserve;
    `earlier`: lengths of batches before these two."""
    job = prepared.job
    replay = Replay(_allocator(prepared, limit), recorder)
    copies = 1 + (job.train.copies.reference or 0) + (job.train.copies.ema or 0)
    load(replay, prepared.rank.rows, prepared.resolved.setup.quantization, 1.0, copies)
    if prepared.buffers:
        replay.hold([prepared.buffers], "weights", "load")
    for effect in EFFECTS:
        for passage in effect.before(prepared):
            _pass(replay, passage)
    tries = any(effect.tries_kernels(prepared) for effect in EFFECTS)
    segments = [*(_segment(prepared, lengths) for lengths in earlier), *[_segment(prepared, {})] * 2]
    for iteration, segment in enumerate(segments):
        if recorder is not None:
            recorder.on = iteration == len(segments) - 1
        _iterate(replay, prepared, segment, iteration == 0, tries)
    for phase in beside:
        loaded = replay.hold(phase.loaded, "temporary", phase.name)
        kept = replay.hold(phase.kept, "logits", phase.name)
        replay.run(phase.segment())
        replay.drop(replay.hold(phase.kept_again, "logits", phase.name))
        replay.drop([*kept, *loaded])
    left = [passage for effect in EFFECTS for passage in effect.after(prepared)]
    for passage in left:
        _pass(replay, passage)
    if any(passage.kept for passage in left):  # training continues with it on the GPU
        replay.run(segments[-1], accumulated=prepared.in_backward or prepared.zeros_stay)
    return replay.result()


def _allocator(prepared: PreparedJob, limit: int | None) -> CachingAllocator:
    options = prepared.job.train.allocator
    split = options.max_split_size_mb
    threshold = options.garbage_collection_threshold if options.per_process_fraction else None
    return CachingAllocator(
        limit,
        bool(options.expandable_segments),
        split * MIB if split else None,
        round(threshold * limit) if threshold and limit else None,
    )


def _iterate(replay: Replay, prepared: PreparedJob, segment: Segment, first: bool, tries: bool) -> None:
    """One iteration: forward, backward, the optimizer's step."""
    replay.run(
        segment, accumulated=prepared.in_backward or (prepared.zeros_stay and not first), benchmarking=tries and first
    )
    if prepared.accumulating and not (prepared.in_backward or prepared.zeros_stay):
        replay.run(segment, accumulated=True)
    replay.optimizer_step(prepared.optimizer, first)
    if prepared.job.train.outputs_kept != "loop":
        replay.forget_outputs()
    if not prepared.zeros_stay:
        replay.zero_grad()
    if prepared.job.train.empty_cache_every:
        replay.allocator.empty_cache()


def _pass(replay: Replay, passage: Passage) -> None:
    """Allocates the storages, and frees those that do not stay."""
    if passage.kept:
        replay.hold(passage.kept, passage.part, passage.phase)
    if passage.passing:
        replay.drop(replay.hold(passage.passing, passage.part, passage.phase))


def _segment(prepared: PreparedJob, lengths: Mapping[str, int]) -> Segment:
    dims = {**prepared.dims, **lengths}
    segment = Segment.of(prepared.laws.made.tape, dims, prepared.outputs_kept)
    for effect in EFFECTS:
        segment = effect.step(prepared, segment, dims)
    return segment


def requested_peak(prepared: PreparedJob, beside: Sequence[Phase] = (), smooth: bool = False) -> int:
    """Requested bytes at the largest moment of any phase: the sum of all tensors alive. `smooth`: see `Law.peak`."""
    before = [one for effect in EFFECTS for one in effect.before(prepared) if not one.library]
    after = [one for effect in EFFECTS for one in effect.after(prepared)]
    later = sum(prepared.optimizer.states) + sum(sum(one.kept) for one in after)  # not there yet when training begins
    states = prepared.weights + later + sum(sum(one.kept) for one in before)
    gradients = 0 if prepared.in_backward else prepared.gradients
    micro = _micro(prepared, gradients, smooth)
    for effect in EFFECTS:
        micro = effect.raised(prepared, micro)
    phases = [p.peak.bytes + sum(p.kept) + sum(p.loaded) for p in beside]
    phases += [sum(p.kept) + sum(p.kept_again) for p in beside]
    phases += [sum(one.passing) - later for one in before] + [sum(one.passing) for one in after]
    return states + max(micro, gradients + prepared.optimizer.temporary + prepared.outputs, *phases, 0)


def _micro(prepared: PreparedJob, gradients: int, smooth: bool) -> int:
    """The peak of forward and backward over a micro-batch, above the storages that are always there."""

    def peak(accumulating: bool, kept: bool, phases: frozenset[str] | None = None) -> int:
        return prepared.laws.reading(accumulating, kept).most(prepared.dims, phases, smooth)

    found = peak(prepared.in_backward, prepared.outputs_kept)
    if prepared.accumulating and not prepared.in_backward:
        found = max(found, gradients + peak(True, prepared.outputs_kept))
    if prepared.job.train.outputs_kept == "loop":
        forward = peak(prepared.accumulating, True, frozenset({"forward"}))
        found = max(found, prepared.outputs + forward + (gradients if prepared.accumulating else 0))
    return found


def requested_by_libraries(prepared: PreparedJob) -> int:
    """Bytes that libraries take for themselves."""
    return sum(sum(one.kept) for effect in EFFECTS for one in effect.before(prepared) if one.library)


class Recorder:
    """Records the allocated bytes of a replay after every event, while `on`."""

    def __init__(self) -> None:
        self.moments: list[StepMoment] = []
        self.on = False

    def note(self, phase: str, allocated: int, reserved: int, parts: Sequence[int]) -> None:
        if self.on:
            self.moments.append(StepMoment(phase, allocated, reserved, tuple(parts)))


def thinned(moments: Sequence[StepMoment], most: int = MOST_POINTS) -> tuple[StepMoment, ...]:
    """At most about `most` moments, in order: of each stretch of one phase its highest and its lowest, so that no peak
    is lost."""
    width = max(1, 2 * len(moments) // max(most, 2))
    kept: list[StepMoment] = []
    start = 0
    while start < len(moments):
        end = start + 1
        while end < min(start + width, len(moments)) and moments[end].phase == moments[start].phase:
            end += 1
        stretch = range(start, end)
        low = min(stretch, key=lambda i: moments[i].allocated)
        high = max(stretch, key=lambda i: moments[i].allocated)
        kept += [moments[i] for i in sorted({low, high})]
        start = end
    return tuple(kept)
