"""Diagnoses of GPU memory: groups the messages of one failure, and says who used the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from preflight.postmortem.circumstances import MOST_PLACES, LoggedMoment, moment_of, trial_of
from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.diagnosis import Diagnosis, Limit, Misleading
from preflight.postmortem.evidence import GpuOom, LogPlace
from preflight.postmortem.gpu_message import ROUNDING, elsewhere, in_use, largest_context, limit_of, own
from preflight.vocabulary.findings import Confidence
from preflight.vocabulary.words import gib, plural

_FIGURES = attrgetter("library", "tried", "capacity", "allocated", "reserved", "free", "own", "device", "stream")
"""The key that two messages of one failure share."""


class Group(Struct):
    """Messages that report the same failure, on one rank or on several.

    `first`: the first message; `places`: one per failure; `told`: every message, with repetitions.
    """

    first: GpuOom
    places: list[LogPlace]
    told: list[LogPlace]
    streams: set[str]
    devices: set[int]
    count: int = 1


def causes(found: CollectedEvidence) -> Iterator[Diagnosis]:
    """One diagnosis for each way in which GPU memory ran out."""
    messages = found.of(GpuOom)
    real = [one for one in messages if one.library == "pytorch"]
    groups = _grouped(real or messages)
    for index, group in enumerate(groups):
        after = [one for one in messages if one not in real and one.place not in group.told] if index == 0 else []
        yield _cause(group, found, after if real else [])


def _grouped(messages: Sequence[GpuOom]) -> list[Group]:
    """Messages with equal figures report one failure; ranks that fail at the same line are one diagnosis."""
    told: dict[tuple[object, ...], GpuOom] = {}
    again: dict[tuple[object, ...], list[LogPlace]] = {}
    for one in messages:
        key: tuple[object, ...] = _FIGURES(one)
        if one.tried is None:
            key = (*key, one.place.path)
        if key in told and one.frames and not told[key].frames:
            told[key] = replace(one, place=told[key].place)
        told.setdefault(key, one)
        again.setdefault(key, []).append(one.place)
    groups: dict[object, Group] = {}
    for identity, one in told.items():
        at = moment_of(one.frames)
        where = (one.library, limit_of(one), "" if one.frames else one.place.path, at.phase, at.beneath, at.frame)
        found = groups.get(where)
        if found is None:
            groups[where] = Group(one, [one.place], again[identity], {one.stream} - {""}, _devices(one))
            continue
        found.count += 1
        found.places.append(one.place)
        found.told += again[identity]
        found.streams |= {one.stream} - {""}
        found.devices |= _devices(one)
    return list(groups.values())


def _devices(one: GpuOom) -> set[int]:
    return set() if one.device is None else {one.device}


def _cause(group: Group, found: CollectedEvidence, after: Sequence[GpuOom]) -> Diagnosis:
    one = group.first
    limit = limit_of(one)
    at = moment_of(one.frames)
    before = found.before.get((group.places[-1].path, group.places[0].line), ())
    phase = at.phase or (before[-1].phase if before and not one.frames else "")
    notes = [*_notes(one, limit), *_several(group), *(f"followed by {_name(x)} ({x.place})" for x in after[:2])]
    trial = trial_of(group.told, found)
    return Diagnosis(
        limit,
        _title(one, limit),
        _confidence(one, limit),
        tuple(group.places[:MOST_PLACES]),
        group.count,
        LoggedMoment(phase, at.frame, at.beneath, before[-1].place if before else None),
        tuple(notes),
        tuple(_help(one, limit)),
        gpu=one,
        trial=trial,
    )


def _confidence(one: GpuOom, limit: Limit) -> Confidence:
    """Medium for libraries that may have failed for another reason, and for old messages, which name no process."""
    if one.library in ("cublas", "cudnn", "cuda") or (limit == "gpu-shared" and one.own is None and not one.others):
        return Confidence.medium
    return Confidence.high


_NAMES = {
    "cuda": "a CUDA out-of-memory error",
    "cublas": "cuBLAS could not allocate its workspace",
    "cudnn": "cuDNN found no algorithm, which it also reports when memory is short",
    "nccl": "NCCL could not allocate its buffers",
    "jax": "XLA's allocator ran out of memory (JAX reserves 75 % of the GPU when it starts)",
    "tensorflow": "TensorFlow's allocator ran out of memory",
}


def _name(one: GpuOom) -> str:
    return _NAMES.get(one.library, "a CUDA out-of-memory error")


def _title(one: GpuOom, limit: Limit) -> str:
    gpu = "the GPU" if one.device is None else f"GPU {one.device}"
    asked = f"the program requested {gib(one.tried)}" if one.tried is not None else "the program requested more"
    whole = gib(one.capacity) if one.capacity is not None else ""
    room = f" of {whole}" if whole else ""
    if limit == "gpu-shared":
        held = gib(elsewhere(one) or 0)
        if one.own is None and not one.others:  # an old message: nothing in it names processes
            return f"{gpu} was shared: {held}{room} was used outside PyTorch, by other processes; {asked}"
        return f"{gpu} was shared: other processes used {held}{room}; {asked}"
    if limit == "gpu-fraction":
        return f"{gpu}: the program reached its own limit of {gib(one.allowed or 0)}{room}; {asked}"
    if limit == "gpu-fragmented":
        loose = gib((one.reserved or 0) - (one.allocated or 0))
        return f"the memory of {gpu} was fragmented: {asked}, and {loose}{room} was reserved but unused, in pieces"
    free = f", and the GPU has {whole}" if whole else ""
    if one.free is not None:
        free = f", and {gib(one.free)}{room} was free"
    reason = "" if one.library == "pytorch" else f": {_name(one)}"
    return f"{gpu} ran out of memory{reason}" + (f": {asked}{free}" if one.tried is not None else "")


def _notes(one: GpuOom, limit: Limit) -> Iterator[str]:
    mine, others, used = own(one), elsewhere(one), in_use(one)
    if one.allocated is not None:
        used_by = f"PyTorch had allocated {gib(one.allocated)}"
        if one.reserved is not None:
            used_by += f" and reserved {gib(one.reserved)}"
        yield used_by + (f"; the driver counted {gib(mine)} for the whole process" if mine is not None else "")
    elif used is not None:
        yield f"{gib(used)} of the GPU was in use, by all processes together"
    if mine is not None and one.reserved is not None and mine - one.reserved > largest_context():
        outside = gib(mine - one.reserved)
        yield f"{outside} of the process was used outside PyTorch, by another library (JAX, TensorFlow, a renderer)"
    if others and limit != "gpu-shared" and others > ROUNDING * 20:
        who = "other processes" if one.others else "other processes, a display or the driver"
        yield f"another {gib(others)} of the GPU was used by {who}"
    if limit == "gpu-shared" and one.others:
        listed = ", ".join(
            f"{pid} ({gib(size)})" for pid, size in one.others[:4] if size != mine or one.own is not None
        )
        yield f"used by process {listed}"
    if one.private_pools:
        yield f"{gib(one.private_pools)} of PyTorch's memory is in private pools (CUDA graphs)"


def _several(group: Group) -> Iterator[str]:
    if len(group.streams) > 1:
        yield f"reported by {plural(len(group.streams), 'rank')}: {_some(sorted(group.streams))}"
    elif len(group.devices) > 1:
        yield f"on {len(group.devices)} GPUs: {_some([str(n) for n in sorted(group.devices)])}"
    elif group.count > 1:
        yield f"this happened {group.count} times in these logs, with different figures; the first is shown"


def _some(names: Sequence[str]) -> str:
    ordered = sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    return ", ".join(ordered[:8]) + (", ..." if len(ordered) > 8 else "")


def _help(one: GpuOom, limit: Limit) -> Iterator[str]:
    if limit == "gpu-shared":
        yield (
            "run nvidia-smi on that node to see these processes: perhaps an earlier job of yours still runs, or this "
            "job uses a GPU that it did not request"
        )
        yield "do not reset the GPU (nvidia-smi --gpu-reset): it needs root, and ends the jobs of others on it"
    if limit == "gpu-fragmented":
        yield (
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which reduces fragmentation; batches of one fixed "
            "shape reduce it too"
        )
    if limit == "gpu-fraction":
        yield (
            "raise the fraction in torch.cuda.set_per_process_memory_fraction, or remove the call: it is a cap, and "
            "frees nothing"
        )
    if one.library in ("cublas", "cudnn", "nccl", "cuda"):
        yield "this library only made the last request; with --config FILE you see what filled the GPU"


def misleading(cause: Diagnosis) -> Iterator[Misleading]:
    """Figures of a message that are easily mistaken for the memory that the job needs."""
    one = cause.gpu
    if one is None or one.tried is None or one.library != "pytorch" or cause.limit != "gpu":
        return
    used = in_use(one) or one.allocated
    if used is not None and one.tried * 10 < used:  # a request of half the GPU is not misleading
        yield Misleading(
            one.place,
            f"{gib(one.tried)} requested",
            f"this is only the last request, not the amount that is missing: {gib(used)} was already in use, and the "
            "step was not finished",
        )
    if one.free is not None and one.allocated is not None and one.free >= one.tried:
        yield Misleading(
            one.place,
            f"{gib(one.free)} free",
            "this was free after PyTorch had released its cached memory, not when it made the request",
        )
