"""What recorded runs used of what they had, by team and model, and whether their forecasts held."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from preflight.engine.ask import checked
from preflight.engine.job_by_hand import dotted
from preflight.machines.gpus import find_gpu, smallest_that_fits
from preflight.store.records import KeptRun
from preflight.store.votes import COVERAGE
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.usage import BackTest, Usage, UsedGroup
from preflight.vocabulary.watched import TIERS

CONFIDENCE = 1.96
"""Standard deviations of a normal distribution that 95 % lie within."""


def usage(
    teams: Mapping[str, Iterable[KeptRun]],
    name_of: Callable[[Mapping[str, object]], str],
    notes: Sequence[str] = (),
) -> Usage:
    """The report on runs by team. `name_of` says the name of a job's model.

    The forecast of a run is the one that was made before it ran, so that comparing the two is no fit.
    """
    groups: dict[tuple[str, str, str], list[KeptRun]] = {}
    every: list[tuple[str, KeptRun]] = []
    left_out = 0
    for team, runs in teams.items():
        for run in runs:
            if run.job is None:
                left_out += 1
                continue
            every.append((team, run))
            groups.setdefault((team, name_of(run.job), run.machine.gpu), []).append(run)
    rows = [_group(*key, runs) for key, runs in groups.items()]
    rows.sort(key=lambda one: (-one.unused_hours, one.team, one.model, one.gpu))
    tests = [test for tier in TIERS if (test := _tested(tier, every)) is not None]
    died = {(team, run.job_hash): _forecast_fitted(run) for team, run in every if run.outcome == "oom"}
    known = [fitted for fitted in died.values() if fitted is not None]
    jobs = len({(team, run.job_hash) for team, run in every})
    return Usage(tuple(rows), tuple(tests), COVERAGE, sum(known), len(known), len(every), jobs, left_out, tuple(notes))


def _group(team: str, model: str, gpu: str, runs: Sequence[KeptRun]) -> UsedGroup:
    jobs: dict[str | None, list[tuple[int, int]]] = {}
    for run in runs:
        law, peak = _law(run, "reserved"), run.peak("reserved")
        if law is not None and peak and run.outcome == "completed":
            jobs.setdefault(run.job_hash, []).append((law[1], peak))
    pairs = [
        (round(statistics.median(law for law, _ in found)), round(statistics.median(peak for _, peak in found)))
        for found in jobs.values()
    ]
    done = [run for run in runs if run.outcome == "completed"]
    used = [size for run in done if (size := _used(run)) is not None]
    capacity = max((run.machine.gpu_memory or 0 for run in runs), default=0) or None
    most = max(used, default=None)
    unused = [
        (max(0, run.machine.gpu_memory - size), run)
        for run in done
        if run.machine.gpu_memory and (size := _used(run)) is not None
    ]
    nodes = [(limit, max(0, limit - peak)) for run in done if (limit := run.host.get("limit")) and (peak := _node(run))]
    return UsedGroup(
        team,
        model,
        gpu,
        len(runs),
        len({run.job_hash for run in runs}),
        sum(run.outcome == "oom" for run in runs),
        _median([law for law, _ in pairs]),
        _median([peak for _, peak in pairs]),
        statistics.median([peak / law for law, peak in pairs if law] or [0.0]) or None,
        most,
        capacity,
        _median([size for size, _ in unused]),
        sum(size / 2**30 * run.world * run.seconds / 3600 for size, run in unused),
        _smaller(most, gpu, capacity, done),
        _median([limit for limit, _ in nodes]),
        _median([size for _, size in nodes]),
    )


def _used(run: KeptRun) -> int | None:
    """The peak of the fullest process. nvidia-smi is asked seldom and may miss it, so what PyTorch reserved counts too,
    with the context that the law has. None: neither is known."""
    seen, reserved = run.peak("process"), run.peak("reserved")
    process, law = _law(run, "process"), _law(run, "reserved")
    beside = process[1] - law[1] if process is not None and law is not None else None
    whole = reserved + max(0, beside) if reserved and beside is not None else None
    return max(seen, whole or 0) if seen else whole


def _node(run: KeptRun) -> int | None:
    return run.host.get("cgroup_peak")


def _smaller(most: int | None, gpu: str, capacity: int | None, runs: Sequence[KeptRun]) -> str | None:
    """The smallest GPU that holds a peak and can do what all of the jobs ask for; None where it is no smaller than the
    one that was used, or a job cannot be read any more."""
    own = find_gpu(gpu)
    has = own.capacity if own is not None else capacity
    if most is None or has is None:
        return None
    found = None
    for run in {one.job_hash: one for one in runs}.values():
        try:
            one = smallest_that_fits(most, checked(dotted(run.job or {})))
        except PreflightError:
            return None
        if one is None:
            return None
        found = one if found is None or one.capacity > found.capacity else found
    return found.name if found is not None and found.capacity < has else None


def _law(run: KeptRun, tier: str) -> tuple[int, int, int] | None:
    return next((one.law for one in run.peaks if one.tier == tier and one.law is not None), None)


def _forecast_fitted(run: KeptRun) -> bool | None:
    """Whether the whole forecast of a run that ran out of memory was below the GPU's; None: it had none."""
    law, capacity = _law(run, "process"), run.machine.gpu_memory
    return None if law is None or capacity is None else law[2] <= capacity


def _tested(tier: str, runs: Iterable[tuple[str, KeptRun]]) -> BackTest | None:
    """The intervals of a tier against what was measured. What died of its need is above: it would have taken more."""
    places: dict[tuple[str, str | None], list[int]] = {}
    for team, run in runs:
        law, peak = _law(run, tier), run.peak(tier)
        if law is None or not peak or run.outcome not in ("completed", "oom"):
            continue
        if tier == "process" and peak < (run.peak("reserved") or 0):
            continue  # nvidia-smi is asked seldom, and missed the peak
        place = -1 if peak < law[0] else 1 if peak > law[2] else 0
        if run.outcome == "oom":
            if place < 1 and not (run.machine.gpu_memory and law[2] <= run.machine.gpu_memory):
                continue  # how much more it would have taken is not known
            place = 1
        places.setdefault((team, run.job_hash), []).append(place)
    each = [statistics.median_high(found) for found in places.values()]
    if not each:
        return None
    count, inside = len(each), each.count(0)
    low, high = _wilson(inside, count)
    return BackTest(tier, count, inside, each.count(-1), each.count(1), inside / count, low, high)


def _wilson(successes: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (E. B. Wilson, 1927)."""
    share, square = successes / count, CONFIDENCE**2 / count
    middle = share + square / 2
    width = CONFIDENCE * math.sqrt(share * (1 - share) / count + square / (4 * count))
    low, high = (middle - width) / (1 + square), (middle + width) / (1 + square)
    return max(0.0, low), min(1.0, high)


def _median(sizes: Sequence[int]) -> int | None:
    return round(statistics.median(sizes)) if sizes else None
