"""Compares the logs with the estimate, tier by tier: allocated with allocated, a node with a node."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from preflight.engine.what_if import states
from preflight.postmortem.configuration import ConfigurationFile
from preflight.postmortem.diagnosis import GPU_LIMITS, HOST_LIMITS, Diagnosis
from preflight.postmortem.evidence import GpuOom
from preflight.postmortem.gpu_message import ROUNDING, elsewhere, in_use, own
from preflight.postmortem.units import LARGEST
from preflight.reports.places import place
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate, Interval
from preflight.vocabulary.words import at_most, gib, sum_of

SEGMENT = 2 << 20
"""PyTorch asks the driver for multiples of 2 MiB (kRoundLarge, c10/cuda/CUDACachingAllocator); messages show that."""

CAPACITY_DIFFERS = 0.03
"""Drivers report capacities of one card that differ by less: 7.57 to 7.79 GiB for RTX 3070 is the widest range seen."""


class ComparisonRow(Struct, frozen=True):
    """One tier: bytes at the failure, bytes with the failed request, and the estimated peak."""

    tier: str
    seen: int
    needed: int | None
    estimate: Interval | None


class Compared(Struct, frozen=True):
    """A study compared with a diagnosis: the tiers, and the conclusions in words."""

    candidate: ConfigurationFile
    cause: Diagnosis
    rows: tuple[ComparisonRow, ...]
    words: tuple[str, ...]


def compare(candidate: ConfigurationFile, cause: Diagnosis) -> Compared:
    """The comparison of a study with a diagnosis."""
    if cause.limit in GPU_LIMITS and cause.gpu is not None:
        return Compared(
            candidate, cause, tuple(_tiers(cause.gpu, candidate)), tuple(_gpu_words(candidate, cause, cause.gpu))
        )
    if cause.limit in HOST_LIMITS and cause.host is not None:
        return Compared(candidate, cause, tuple(_host_rows(candidate, cause)), tuple(_host_words(candidate, cause)))
    if cause.limit == "time":
        return Compared(candidate, cause, (), tuple(_time_words(candidate)))
    return Compared(candidate, cause, (), ())


# --- GPU ------------------------------------------------------------------------------------------------------------


def _tiers(one: GpuOom, candidate: ConfigurationFile) -> Iterator[ComparisonRow]:
    device, asked = candidate.estimates.device, one.tried
    for tier, seen in (("allocated", one.allocated), ("reserved", one.reserved), ("process", own(one))):
        if seen is None:
            continue
        # reserved but unused memory cannot serve the request (or it would have), so it comes on top of the process
        needed = seen + asked if asked is not None and tier != "reserved" else None
        yield ComparisonRow(tier, seen, needed, getattr(device, tier) if device is not None else None)


def _gpu_words(candidate: ConfigurationFile, cause: Diagnosis, one: GpuOom) -> Iterator[str]:
    device = candidate.estimates.device
    if device is None:
        reason = candidate.estimates.reasons.get("device", "the reason is not known")
        yield f"the GPU memory cannot be estimated: {reason}"
        return
    yield from _capacity(device, one)
    yield _verdict(candidate, cause, device, one)
    kept = sum(states(candidate.job, device, candidate.estimate).values())
    used = own(one) or in_use(one)
    if kept:
        total = f"; {gib(used)} was in use" if used is not None else ""
        yield f"weights, gradients and optimizer states alone need {gib(kept)} from the first step on{total}"
    yield from _request(device, one)
    yield from _moment(device, cause)
    yield from _explanations(candidate, device, one)


def _capacity(device: DeviceEstimate, one: GpuOom) -> Iterator[str]:
    if device.capacity is None or one.capacity is None:
        return
    if abs(device.capacity - one.capacity) > CAPACITY_DIFFERS * one.capacity:
        yield (
            f"the GPU of the log has {gib(one.capacity)}, that of the configuration {gib(device.capacity)}: "
            "the job ran on another GPU than the one that is configured"
        )


def _verdict(candidate: ConfigurationFile, cause: Diagnosis, device: DeviceEstimate, one: GpuOom) -> str:
    """Whether the estimate predicts the failure, and the likely reason if it does not."""
    need, capacity = device.process, one.capacity or device.capacity
    bound = "at least " if device.lower_bound else ""
    peak = f"estimated need of the process: {bound}{gib(need.expected)} ({gib(need.low)} to {gib(need.high)})"
    if capacity is None:
        return peak
    peak += f"; the GPU has {gib(capacity)}"
    verdict = need.verdict(capacity)
    others = elsewhere(one) or 0
    if verdict == "exceeds":
        also = ", with or without other processes" if cause.limit == "gpu-shared" else ""
        return f"{peak}: {_sure(need, capacity)}{also}"
    if device.lower_bound:
        return f"{peak}: no memory law is known for this model, so only its states are counted, and the rest is unknown"
    if need.expected + others > capacity:
        return f"{peak}: it fits alone, but not together with the {gib(others)} of other processes"
    if verdict == "at-risk":
        return f"{peak}: at risk, because the high end of the estimate is above that"
    seen = (one.allocated or 0) + (one.tried or 0)
    if one.allocated is not None and seen > device.allocated.high + ROUNDING:
        return f"{peak}: it fits, but the run already needed more: the estimate is too low for this job"
    return f"{peak}: it fits; what filled the GPU is not in the estimate, or these files are not those of the run"


def _sure(need: Interval, capacity: int) -> str:
    """The conclusion from an estimate above the capacity: certain or likely, by its low end."""
    return "it had to fail" if need.low > capacity else "it was likely to fail"


def _request(device: DeviceEstimate, one: GpuOom) -> Iterator[str]:
    largest = device.largest_allocation
    if largest is None or one.tried is None:
        return
    what = f"{largest.product}, in {largest.where}"
    if -ROUNDING <= one.tried - largest.bytes <= SEGMENT + ROUNDING:
        yield f"the requested {gib(one.tried)} is the largest tensor of the estimate: {what}"
    elif largest.bytes and abs(one.tried - 2 * largest.bytes) <= SEGMENT + ROUNDING:
        yield f"the requested {gib(one.tried)} is twice the largest tensor of the estimate: {what}"


def _moment(device: DeviceEstimate, cause: Diagnosis) -> Iterator[str]:
    phase = cause.when.phase
    if not phase or phase == device.phase:
        return
    size = device.phases.get(phase)
    if size is not None:
        yield f"it failed in {phase}, for which the estimate is {gib(size)}; the estimated peak is in {device.phase}"
    elif phase in ("validation", "generation"):
        yield f"it failed in {phase}, which the estimate for these files does not include: it covers training alone"


def _explanations(candidate: ConfigurationFile, device: DeviceEstimate, one: GpuOom) -> Iterator[str]:
    """Settings with which the estimate would be as high as the memory that the process needed."""
    mine = own(one)
    if mine is None or one.tried is None or mine + one.tried <= device.process.high + ROUNDING:
        return
    from preflight.engine.what_if import compare as measured

    yield f"the process needed at least {gib(mine + one.tried)}, more than the high end of the estimate"
    for found in measured(mine + one.tried, candidate.job, device, candidate.estimate).explanations[:2]:
        yield f"with {found.field} = {found.value} the estimate would be {gib(found.expected)}"


# --- host -----------------------------------------------------------------------------------------------------------


def _host_rows(candidate: ConfigurationFile, cause: Diagnosis) -> Iterator[ComparisonRow]:
    """The memory of the node that the kernel cannot take back; the estimate counts the same."""
    seen, host = cause.host, candidate.estimates.host
    if seen is None or cause.limit != "cgroup":
        return
    kept = seen.usage if seen.anon is None else seen.anon + (seen.shmem or 0)
    if kept is not None:
        yield ComparisonRow("node", kept, None, host.per_node if host is not None else None)


def _host_words(candidate: ConfigurationFile, cause: Diagnosis) -> Iterator[str]:
    host, seen = candidate.estimates.host, cause.host
    if host is None:
        yield from _host_unknown(candidate, cause)
        return
    if host.limited_by == "/dev/shm" or cause.limit == "shm":
        yield from _shm_words(candidate)
        return
    need = host.per_node
    limit = seen.limit if seen is not None and seen.limit is not None else host.limit
    text = f"estimated need per node: {gib(need.expected)} ({gib(need.low)} to {gib(need.high)}), peak at {host.peak}"
    if limit is not None:
        words = {
            "exceeds": _sure(need, limit),
            "at-risk": "at risk, because the high end of the estimate is above that",
            "fits": "it fits; what filled the memory is not in the estimate, or is not of this job",
        }
        text += f"; the limit is {gib(limit)}: {words.get(need.verdict(limit), 'unknown')}"
    yield text
    yield f"parts of the estimate: {sum_of(host.breakdown)}"
    if host.limit is not None and limit is not None and abs(limit - host.limit) > CAPACITY_DIFFERS * limit:
        yield f"the files say {gib(host.limit)} ({host.limited_by}), but the limit that was reached is {gib(limit)}"
    if host.train_only is not None:
        yield f"training alone needs {gib(host.train_only)}; the validation loaders need the rest"
    yield from _host_moment(host, cause)


def _host_moment(host: HostEstimate, cause: Diagnosis) -> Iterator[str]:
    phase = cause.when.phase
    if phase in ("validation", "load") and phase not in host.peak:
        yield f"the log ended in {phase}, but the estimated peak is at {host.peak}"


def _host_unknown(candidate: ConfigurationFile, cause: Diagnosis) -> Iterator[str]:
    """The size of a sample that follows from the failure, if that size is not known."""
    reason = candidate.estimates.reasons.get("host", "the reason is not known")
    yield f"the host memory cannot be estimated: {reason}"
    if cause.limit not in ("cgroup", "node") or candidate.job.data.sample_bytes is not None:
        return
    from preflight.engine.estimator import largest_sample_bytes

    job = candidate.job
    largest = largest_sample_bytes(job, candidate.tracing)
    if largest is None:
        return
    silent = possible(job, {"data.validation_workers": None})
    trained = largest_sample_bytes(silent, candidate.tracing) if silent and cause.when.phase == "validation" else None
    between = f" (and at most {at_most(trained)}, because training did fit)" if trained and trained > largest else ""
    yield (
        f"it did not fit, so one decoded sample is larger than {at_most(largest)}{between}, or something that no file "
        "shows used the memory; with --set data.sample_bytes=BYTES you get a verdict"
    )


def _shm_words(candidate: ConfigurationFile) -> Iterator[str]:
    """The loaders' bytes in /dev/shm, from the estimate of a job whose /dev/shm is too small."""
    tiny: dict[str, object] = {"machine.shm": 1, "machine.memory_limit": LARGEST, "machine.node_memory": None}
    job = possible(candidate.job, tiny)
    found = candidate.estimate(job).host if job is not None else None
    if found is not None and found.limited_by == "/dev/shm":
        shm = candidate.job.machine.shm
        room = f"; it has {gib(shm)}" if shm is not None else ""
        yield f"the data loaders of a node keep {gib(found.per_node.expected)} in /dev/shm at the same time{room}"
    if candidate.job.machine.shm is None:
        yield "no file says how large /dev/shm is: use --set machine.shm=BYTES, or shm in the machine file"


# --- time -----------------------------------------------------------------------------------------------------------


def _time_words(candidate: ConfigurationFile) -> Iterator[str]:
    request = candidate.result.study.request
    minutes = request.time_minutes if request is not None else None
    if isinstance(minutes, int) and not isinstance(minutes, bool):
        origin = request.origins.get("time_minutes") if request is not None else None
        found = place(candidate.report, origin) if origin is not None else None
        where = f" ({origin.path}:{found.line})" if origin is not None and found is not None else ""
        yield f"the script requests {minutes:,} minutes{where}; preflight does not estimate how long a run takes"
