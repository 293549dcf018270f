"""What `preflight run` says: the peaks by phase beside the law, and how the run ended. For standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.watched import PHASES, TIERS, WatchedRank, WatchedRun
from preflight.vocabulary.words import gib, plural

_NAMES = {"step": "between steps"}
_OF = {"sample_bytes": "", "validation_sample_bytes": " in validation"}
ALLOCATOR = TIERS[:3]
"""The tiers that the process itself records."""
GROWTH = 0.02
"""Share of the first floor by which a later one has to be higher before it is told."""
FEW = 50
"""Steps below which growth means nothing: caches and states are still made."""


def summary(run: WatchedRun, law: DeviceEstimate | None = None) -> list[str]:
    """The lines about a run: its peaks, its host, and what is unusual."""
    lines = [*_peaks(run.ranks, law), *_host(run), *_notes(run)]
    return lines or [
        "nothing was recorded: no process that imports torch said anything (python -I and -E hide the recorder)"
    ]


def highest(ranks: Sequence[WatchedRank]) -> Mapping[str, Mapping[str, int]]:
    """The highest peaks of all ranks, by phase and tier."""
    found: dict[str, dict[str, int]] = {}
    for rank in ranks:
        for phase, peaks in rank.peaks.items():
            kept = found.setdefault(phase, {})
            for tier, size in peaks.items():
                kept[tier] = max(kept.get(tier, 0), size)
    return {phase: found[phase] for phase in PHASES if phase in found}


def _peaks(ranks: Sequence[WatchedRank], law: DeviceEstimate | None) -> Iterator[str]:
    rows = {phase: peaks for phase, peaks in highest(ranks).items() if peaks}
    if not rows:
        return
    steps = max(rank.steps for rank in ranks)
    named = next((rank.machine.gpu for rank in ranks if rank.machine.gpu), "")
    of = f" of {len(ranks)} ranks" if len(ranks) > 1 else ""
    yield f"peaks{of} over {plural(steps, 'step')}{f' on {named}' if named else ''}:"
    yield "  " + "".ljust(14) + "".join(tier.rjust(12) for tier in ALLOCATOR)
    for phase, peaks in rows.items():
        cells = (gib(peaks[tier]) if tier in peaks else "-" for tier in ALLOCATOR)
        yield "  " + _NAMES.get(phase, phase).ljust(14) + "".join(cell.rjust(12) for cell in cells)
    if law is not None and not law.lower_bound and all(rank.gpus < 2 for rank in ranks):
        cells = (gib(getattr(law, tier).expected) for tier in ALLOCATOR)
        yield "  " + "the law's peak".ljust(14) + "".join(cell.rjust(12) for cell in cells)


def _host(run: WatchedRun) -> Iterator[str]:
    host = run.host
    if host.resident:
        limit = f" of {gib(host.limit)}" if host.limit is not None else ""
        group = f"; the control group had {gib(host.peak)}{limit}" if host.peak is not None else ""
        workers = f", the largest that is no rank {gib(host.workers)}" if host.workers else ""
        yield f"host: {plural(host.processes, 'process')} took up to {gib(host.resident)}{workers}{group}"
    if host.growth:
        yield f"note: the processes beside the ranks grew by {gib(host.growth)} with each batch"
    sizes = [f"{size:,} bytes{_OF[name]}" for name, size in run.samples.items() if name in _OF]
    if sizes:
        yield f"one decoded sample: {', '.join(sizes)}"


def _notes(run: WatchedRun) -> Iterator[str]:
    for rank in run.ranks:
        name = f"rank {rank.rank}: " if len(run.ranks) > 1 else ""
        if rank.retries:
            times = plural(rank.retries, "time")
            yield f"note: {name}the allocator emptied its cache {times} to go on: the GPU is nearly full"
        if rank.floor is not None and rank.floor[2] >= FEW:
            first, last, steps = rank.floor
            if last - first > GROWTH * max(first, 1):
                grown = f"from {gib(first)} to {gib(last)} in {steps} steps"
                yield f"note: {name}memory between steps grew {grown}: something is kept"
        if rank.gpus > 1:
            yield f"note: {name}it uses {rank.gpus} GPUs, and the peaks are those of the fullest"
        if rank.stopped:
            yield f"note: {name}the records end early: {rank.stopped}"
    if run.others:
        held = ", ".join(f"{pid} ({gib(size)})" for pid, size in run.others[:4])
        yield f"note: other processes held memory of the GPUs at the start: {held}"
