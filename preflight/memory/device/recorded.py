"""Device memory of a run whose allocations were recorded: the same tiers as of a Job, from the recorded events.

The events go through the same replay of the allocator, with the same workspaces, context and intervals as a law's tape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device.estimate import room
from preflight.memory.device.law.tape import WORKSPACE
from preflight.memory.device.step import intervals
from preflight.memory.device.step.allocator import CachingAllocator
from preflight.memory.device.step.effects import workspaces
from preflight.memory.device.step.replay import Event, Replay, Replayed, Segment
from preflight.memory.device.step.run import Recorder, thinned
from preflight.vocabulary.estimates import ALL_PARTS, DeviceEstimate, Holder, Interval, LargestAllocation, StepMoment
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Assumption

MIB = 2**20
LOAD = "load"


class Recording(Struct, frozen=True):
    """Allocations of one process on one GPU, in order, and what is known of each."""

    events: Sequence[int]
    """Bytes of a birth, or -1 - the index of the birth that ends here."""
    phases: Sequence[str]
    """The phase of each event."""
    parts: Mapping[int, str]
    """The part (of ALL_PARTS) of each birth."""
    workspaces: frozenset[int] = frozenset()
    """Births that are workspaces of convolutions."""
    where: Mapping[int, str] = field(default_factory=dict)
    """The place of each birth, in words."""
    shapes: Mapping[int, str] = field(default_factory=dict)
    """The shapes of large births, in words."""
    lines: Mapping[int, str] = field(default_factory=dict)
    """The line of the user's file ("file:line") of births; "" for one that no line of the user made."""
    convolutional: bool = False


class Peak(Struct, frozen=True):
    """The largest moment of a recording: its bytes, and the births that are alive then."""

    bytes: int
    at: int
    alive: tuple[int, ...]


def peak(events: Sequence[int]) -> Peak:
    """The largest sum of live bytes, and what is alive at its first moment."""
    live = top = at = 0
    for index, event in enumerate(events):
        live += event if event >= 0 else -events[-1 - event]
        if live > top:
            top, at = live, index
    alive = dict.fromkeys(index for index, event in enumerate(events[: at + 1]) if event >= 0)
    for event in events[: at + 1]:
        if event < 0:
            del alive[-1 - event]
    return Peak(top, at, tuple(alive))


def holders(
    recording: Recording,
    alive: Sequence[int],
    names: Mapping[int, str],
    via: Mapping[int, str] | None = None,
    most: int = 10,
) -> tuple[Holder, ...]:
    """What is alive at a moment by name and part, the largest first. Births without a name are left out."""
    found: dict[tuple[str, str], Holder] = {}
    for at in alive:
        name, part = names.get(at, ""), recording.parts.get(at, "temporary")
        before = found.get((name, part), Holder(name, 0, 0, part))
        called = before.via or (via or {}).get(at, "")
        found[name, part] = Holder(name, before.bytes + recording.events[at], before.count + 1, part, called)
    return tuple(sorted((one for one in found.values() if one.name), key=lambda one: -one.bytes)[:most])


def estimate(recording: Recording, job: Job, gpu: Gpu | None) -> DeviceEstimate:
    """The four tiers of a recorded run. `job`: what is known of it beside its allocations (ranks, versions, the
    allocator's options, whether it was compiled)."""
    capacity, context = room(job, gpu, recording.convolutional)
    limit = capacity - context.expected if capacity else None
    segment = _segment(recording)
    found = _replayed(segment, job, gpu, limit)
    extra = intervals.widen(job, recording.convolutional, False)
    reserved = intervals.interval(found.reserved, intervals.RESERVED, extra)
    if job.train.cudnn_benchmark and recording.workspaces:
        tried = _replayed(segment, job, gpu, limit, benchmarking=True).reserved
        other = intervals.interval(tried, intervals.RESERVED, extra)
        reserved = Interval(min(reserved.low, other.low), reserved.expected, max(reserved.high, other.high))
    process = Interval(reserved.low + context.low, reserved.expected + context.expected, reserved.high + context.high)
    top = peak(recording.events)
    parts = {**found.parts, "allocator": reserved.expected - sum(found.parts.values()), "context": context.expected}
    above = process.expected - found.allocated
    return DeviceEstimate(
        requested=intervals.interval(top.bytes, intervals.REQUESTED, extra),
        allocated=intervals.interval(found.allocated, intervals.ALLOCATED, extra),
        reserved=reserved,
        process=process,
        phase=found.phase,
        where=recording.where.get(top.at, ""),
        breakdown=parts,
        phases={name: size + above for name, size in found.phases.items()},
        largest_allocation=_largest(recording),
        capacity=capacity,
        verdict=process.verdict(capacity),
    )


def judged(found: DeviceEstimate, whole: bool, doubts: tuple[Assumption, ...]) -> DeviceEstimate:
    """The estimate of a run with a verdict that says no more than was seen. `whole`: whether it was seen to its end;
    what comes later may take more. `doubts`: what the verdict depends on and the run did not show."""
    verdict = found.verdict
    if not whole:
        verdict = "exceeds" if verdict == "exceeds" else "unknown"
    elif verdict == "fits" and doubts:
        verdict = "fits-if"
    return replace(found, lower_bound=not whole, verdict=verdict, assumptions=doubts)


def bound(recording: Recording, job: Job, gpu: Gpu | None) -> tuple[int, int]:
    """(expected, high) bytes of the process from above, without a replay. It grows with every allocation."""
    _, context = room(job, gpu, recording.convolutional)
    requested = peak(recording.events).bytes + sum(workspaces(gpu))
    _, above = intervals.widen(job, recording.convolutional, False)
    reserved = round(requested * (1 + intervals.ROUNDED))
    return reserved + context.expected, round(reserved * (1 + intervals.RESERVED[1] + above)) + context.high


def timeline(recording: Recording, job: Job, gpu: Gpu | None) -> tuple[StepMoment, ...]:
    """The run, moment by moment."""
    capacity, context = room(job, gpu, recording.convolutional)
    recorder = Recorder()
    recorder.on = True
    limit = capacity - context.expected if capacity else None
    _replayed(_segment(recording), job, gpu, limit, recorder)
    return thinned(recorder.moments)


def _segment(recording: Recording) -> Segment:
    index = {name: number for number, name in enumerate(ALL_PARTS)}
    other = index["temporary"]
    events: list[Event] = []
    numbers: dict[int, int] = {}
    for at, (event, phase) in enumerate(zip(recording.events, recording.phases, strict=True)):
        if event < 0:
            events.append(("d", numbers[-1 - event], 0, 0, phase, ""))
            continue
        numbers[at] = len(numbers)
        part = index.get(recording.parts.get(at, ""), other)
        mark = WORKSPACE if at in recording.workspaces else ""
        events.append(("b", numbers[at], event, part, phase, mark))
    return Segment.listed(events)


def _replayed(
    segment: Segment, job: Job, gpu: Gpu | None, limit: int | None, recorder: Recorder | None = None,
    benchmarking: bool = False,
) -> Replayed:  # fmt: skip
    """The events through the caching allocator. cuBLAS takes its workspaces before the first of them."""
    options = job.train.allocator
    split = options.max_split_size_mb
    allocator = CachingAllocator(limit, bool(options.expandable_segments), split * MIB if split else None)
    replay = Replay(allocator, recorder)
    replay.hold(workspaces(gpu), "temporary", LOAD)
    replay.run(segment, benchmarking=benchmarking)
    return replay.result()


def _largest(recording: Recording) -> LargestAllocation | None:
    births = [at for at, event in enumerate(recording.events) if event >= 0]
    if not births:
        return None
    largest = max(births, key=recording.events.__getitem__)
    size = recording.events[largest]
    words = recording.shapes.get(largest, f"{size:,} bytes")
    return LargestAllocation(size, recording.where.get(largest, ""), words)
