"""What recorded runs teach about an estimate: the same job that ran before, and the context of this machine.

Everything that changes a figure says so, with the number of runs. An interval never becomes narrower than what it
stands on: repeats of the same job give their own spread, and a residual needs enough jobs for its interval. Runs that
died are not left out: they say that the need is higher than the card, and leaving them out would make figures too low.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight import __version__
from preflight.store.records import KeptRun, kind_of
from preflight.store.votes import ends, release, votes_of
from preflight.system import observed
from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.words import gib, plural

EPOCH = "2016"
"""Before it there was no torch: a clock that says so is wrong."""
ENOUGH_CONTEXTS = 3
"""Completed runs from which their median context replaces the published figure."""
DRIFT = 0.05
"""By how much the ends are wider where runs were made with another minor release of torch."""
PRIOR = 9
"""Jobs that count for the shipped figures, whose median residual is 1."""


class Learnt(Struct, frozen=True):
    """Runs on one kind of GPU: those of the same job, and all others."""

    same: tuple[KeptRun, ...] = ()
    others: tuple[KeptRun, ...] = ()
    torch: str = ""
    """The release of torch that the job states; "": that of the newest run is taken."""


def calibrated(found: DeviceEstimate, learnt: Learnt, dynamic: bool = False) -> DeviceEstimate:
    """The estimate with what was learnt, and a line for each thing that was. `dynamic`: samples of the job differ in
    length, so a peak of the past is the least that it needs."""
    if found.lower_bound:  # of a model that is known by its size alone: others have the same
        return found
    found = _context(found, learnt.others + learnt.same, learnt.torch)
    done = [one for one in learnt.same if one.outcome == "completed" and one.peak("reserved")]
    if done:
        return _judged(_same_job(found, done, dynamic))
    died = [one for one in learnt.same if one.outcome == "oom"]
    found = _residual(found, learnt.others, learnt.torch)
    if died:
        found = _judged(found)
        words = f"this job ran out of GPU memory before, on this GPU: {_runs(died)}"
        verdict = "at-risk" if found.verdict in ("fits", "fits-if") else found.verdict
        return replace(found, verdict=verdict, recorded=(*found.recorded, words))
    return _judged(found)


def _judged(found: DeviceEstimate) -> DeviceEstimate:
    """With the verdict of the new figures; a lower bound keeps its own."""
    if not found.recorded or found.lower_bound or found.capacity is None:
        return found
    return replace(found, verdict=found.process.verdict(found.capacity))


def told(runs: Sequence[KeptRun]) -> str:
    """What runs of the same job say where there is no estimate to compare them with; "" if nothing."""
    done = [one for one in runs if one.outcome == "completed" and one.peak("reserved")]
    if not done:
        died = [one for one in runs if one.outcome == "oom"]
        return f"this job ran out of GPU memory before, on {died[0].machine.gpu}: {_runs(died)}" if died else ""
    most = max(done, key=lambda one: one.peak("reserved") or 0)
    tier = "process" if most.peak("process") else "reserved"
    return f"ran before: peak {gib(most.peak(tier) or 0)} ({tier}) on {most.machine.gpu} ({_runs(done)})"


def _runs(runs: Sequence[KeptRun]) -> str:
    return f"{plural(len(runs), 'run')}, newest {newest(runs)}"


def newest(runs: Sequence[KeptRun]) -> str:
    """The day of the newest run. A clock that is ahead of this machine's says nothing."""
    today = observed.today()
    return max((day for one in runs if EPOCH <= (day := one.started[:10]) <= today), default="on an unknown day")


# --- the same job --------------------------------------------------------------------


def _same_job(found: DeviceEstimate, done: Sequence[KeptRun], dynamic: bool) -> DeviceEstimate:
    """The measured peaks in place of the law's."""
    tiers: dict[str, Interval] = {}
    for tier in ("requested", "allocated", "reserved"):
        sizes = sorted(size for one in done if (size := one.peak(tier)))
        if sizes:
            tiers[tier] = Interval(sizes[0], round(statistics.median(sizes)), sizes[-1])
    context = _difference(found)
    processes = sorted(size for one in done if (size := one.peak("process")))
    reserved = tiers["reserved"]
    process = Interval(*(size + extra for size, extra in zip(_ends(reserved), _ends(context), strict=True)))
    if len(processes) == len(done):  # nvidia-smi is asked seldom: it may have missed the peak, and shows the least
        process = Interval(*(max(size, seen) for size, seen in zip(_ends(process), processes[:1] * 3, strict=True)))
    words = f"ran before: peak {gib(process.expected)} on this GPU ({_runs(done)})"
    words += f"; the law says {gib(found.process.expected)}"
    if dynamic:
        words += "; its samples differ in length, so this is the least that it needs"
        low = max(process.low, found.process.low)
        if found.process.expected >= process.expected:
            return replace(
                found,
                process=replace(found.process, low=min(low, found.process.expected)),
                recorded=(*found.recorded, words),
            )
        process = Interval(process.low, process.expected, max(process.high, found.process.high))
    return _with(replace(found, **tiers), process, (*found.recorded, words))  # type: ignore[arg-type]


def _difference(found: DeviceEstimate) -> Interval:
    """Process minus reserved bytes of an estimate."""
    ends = zip(_ends(found.process), _ends(found.reserved), strict=True)
    low, middle, high = sorted(max(0, one - other) for one, other in ends)
    return Interval(low, middle, high)


def _ends(of: Interval) -> tuple[int, int, int]:
    return of.low, of.expected, of.high


def _with(found: DeviceEstimate, process: Interval, words: tuple[str, ...]) -> DeviceEstimate:
    """Another process tier. The parts still add up: the rest is the allocator's."""
    rest = process.expected - sum(size for name, size in found.breakdown.items() if name != "allocator")
    parts: Mapping[str, int] = {**found.breakdown, "allocator": rest}
    return replace(found, process=process, breakdown=parts, recorded=words)


# --- context and residual ------------------------------------------------------------


def _context(found: DeviceEstimate, runs: Sequence[KeptRun], torch: str) -> DeviceEstimate:
    """The median context of completed runs with the same libraries in place of the published one."""
    sets: dict[tuple[str, ...], list[int]] = {}
    for one in runs:  # the newest first
        process, reserved = one.peak("process"), one.peak("reserved")
        if one.outcome != "completed" or not process or not reserved or process <= reserved:
            continue
        if not torch or release(one.machine.torch) == release(torch):
            libraries = (release(one.machine.torch), one.machine.cuda, one.machine.driver)
            sets.setdefault(libraries, []).append(process - reserved)
    sizes = sorted(next((of for of in sets.values() if len(of) >= ENOUGH_CONTEXTS), []))
    if not sizes or found.lower_bound:
        return found
    middle = round(statistics.median(sizes))
    old = found.breakdown.get("context", 0)
    ends = zip(_ends(found.reserved), (sizes[0], middle, sizes[-1]), strict=True)
    process_tier = Interval(*(reserved + size for reserved, size in ends))
    words = f"context of {gib(middle)} by {plural(len(sizes), 'run')} here, in place of {gib(old)}"
    return replace(
        found, process=process_tier, breakdown={**found.breakdown, "context": process_tier.expected - _without(found)},
        recorded=(*found.recorded, words),
    )  # fmt: skip


def _without(found: DeviceEstimate) -> int:
    return sum(size for name, size in found.breakdown.items() if name != "context")


def _residual(found: DeviceEstimate, runs: Sequence[KeptRun], torch: str) -> DeviceEstimate:
    """The whole scale moved by what other jobs as hard as this took on this GPU, if there are enough of them."""
    votes = votes_of(runs, kind_of(found), __version__)
    factors = ends(votes)
    if factors is None or found.lower_bound:
        return found
    low, middle, high = factors
    middle = math.exp(math.log(middle) * votes.jobs / (votes.jobs + PRIOR))
    used = torch or next((one.machine.torch for one in runs if one.machine.torch), "")
    older = sum(release(one.machine.torch) != release(used) for one in votes.runs)
    drift = DRIFT if older else 0.0
    changed = {}
    for tier in ("requested", "allocated", "reserved"):
        of: Interval = getattr(found, tier)
        expected = round(of.expected * middle)
        least = (1 - drift) * min(of.expected * low, of.low * middle)
        most = (1 + drift) * max(of.expected * high, of.high * middle)
        changed[tier] = Interval(min(round(least), expected), expected, max(round(most), expected))
    context = _difference(found)
    sizes = zip(_ends(changed["reserved"]), _ends(context), strict=True)
    others = f", {older} of them with another torch" if older else ""
    by = f"calibrated by {plural(votes.jobs, 'job')} on this GPU ({_runs(votes.runs)}{others})"
    words = f"{by}: {middle:.2f} of the law's figure"
    return _with(replace(found, **changed), Interval(*(one + other for one, other in sizes)), (*found.recorded, words))  # type: ignore[arg-type]
