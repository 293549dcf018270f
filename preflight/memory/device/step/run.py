"""The steps of one job on one GPU: replayed through the caching allocator, or bounded by the law without a replay.

Both read the same effects (`effects.EFFECTS`), so that what one counts the other does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effect import Passage
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.loading import load
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase, Replay, Replayed, Segment
from preflight.vocabulary.estimates import StepMoment
from preflight.vocabulary.optimizer import Step

MIB = 2**20
MOST_POINTS = 400
"""Points that a drawing gets: a terminal has fewer columns, and a figure no finer pixels."""


class Plan(Struct, frozen=True):
    """All that a replay depends on. Jobs that differ in other fields (another node, another name of the same model)
    have the same plan."""

    limit: int | None
    """Bytes that the allocator may reserve."""
    expandable: bool
    split: int | None
    collect: int | None
    """As in `CachingAllocator`."""
    rows: tuple[Weight, ...]
    quantization: QuantizedWeights | None
    copies: int
    buffers: int
    before: tuple[Passage, ...]
    after: tuple[Passage, ...]
    segments: tuple[Segment, ...]
    """The steps, in order."""
    beside: tuple[Beside, ...]
    optimizer: Step
    tries_kernels: bool
    in_backward: bool
    accumulating: bool
    zeros_stay: bool
    outputs_stay: bool
    empties_cache: bool


class Beside(Struct, frozen=True):
    """A phase beside the steps, as in `replay.Phase`."""

    name: str
    loaded: tuple[int, ...]
    kept: tuple[int, ...]
    kept_again: tuple[int, ...]
    segment: Segment


def replayed(
    prepared: PreparedJob,
    beside: Sequence[Phase],
    limit: int | None,
    recorder: Recorder | None = None,
    earlier: Sequence[Mapping[str, int]] = (),
) -> Replayed:
    """Replays two training steps and the phases `beside` them. `limit`: bytes that the allocator may reserve;
    `earlier`: lengths of batches before these two."""
    plan = _planned(prepared, beside, limit, earlier)
    return _known(plan) if recorder is None else _run(plan, recorder)


def _planned(
    prepared: PreparedJob, beside: Sequence[Phase], limit: int | None, earlier: Sequence[Mapping[str, int]]
) -> Plan:
    train = prepared.job.train
    options, split = train.allocator, train.allocator.max_split_size_mb
    threshold = options.garbage_collection_threshold if options.per_process_fraction else None
    return Plan(
        limit,
        bool(options.expandable_segments),
        split * MIB if split else None,
        round(threshold * limit) if threshold and limit else None,
        tuple(prepared.rank.rows),
        prepared.resolved.setup.quantization,
        1 + (train.copies.reference or 0) + (train.copies.ema or 0),
        prepared.buffers,
        tuple(passage for effect in EFFECTS for passage in effect.before(prepared)),
        tuple(passage for effect in EFFECTS for passage in effect.after(prepared)),
        (*(_segment(prepared, lengths) for lengths in earlier), *[_segment(prepared, {})] * 2),
        tuple(Beside(p.name, p.loaded, p.kept, p.kept_again, p.segment()) for p in beside),
        prepared.optimizer,
        any(effect.tries_kernels(prepared) for effect in EFFECTS),
        prepared.in_backward,
        prepared.accumulating,
        prepared.zeros_stay,
        train.outputs_kept == "loop",
        bool(train.empty_cache_every),
    )


@lru_cache(maxsize=64)
def _known(plan: Plan) -> Replayed:
    """The replay of a plan: rules, fixes and searches ask for the same one again and again."""
    return _run(plan, None)


def _run(plan: Plan, recorder: Recorder | None) -> Replayed:
    replay = Replay(CachingAllocator(plan.limit, plan.expandable, plan.split, plan.collect), recorder)
    load(replay, plan.rows, plan.quantization, 1.0, plan.copies)
    if plan.buffers:
        replay.hold([plan.buffers], "weights", "load")
    for passage in plan.before:
        _pass(replay, passage)
    for iteration, segment in enumerate(plan.segments):
        if recorder is not None:
            recorder.on = iteration == len(plan.segments) - 1
        _iterate(replay, plan, segment, iteration == 0)
    for phase in plan.beside:
        loaded = replay.hold(phase.loaded, "temporary", phase.name)
        kept = replay.hold(phase.kept, "logits", phase.name)
        replay.run(phase.segment)
        replay.drop(replay.hold(phase.kept_again, "logits", phase.name))
        replay.drop([*kept, *loaded])
    for passage in plan.after:
        _pass(replay, passage)
    if any(passage.kept for passage in plan.after):  # training continues with it on the GPU
        replay.run(plan.segments[-1], accumulated=plan.in_backward or plan.zeros_stay)
    return replay.result()


def _iterate(replay: Replay, plan: Plan, segment: Segment, first: bool) -> None:
    """One iteration: forward, backward, the optimizer's step."""
    replay.run(
        segment,
        accumulated=plan.in_backward or (plan.zeros_stay and not first),
        benchmarking=plan.tries_kernels and first,
    )
    if plan.accumulating and not (plan.in_backward or plan.zeros_stay):
        replay.run(segment, accumulated=True)
    replay.optimizer_step(plan.optimizer, first)
    if not plan.outputs_stay:
        replay.forget_outputs()
    if not plan.zeros_stay:
        replay.zero_grad()
    if plan.empties_cache:
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
