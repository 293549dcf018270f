"""One recorded run as plain data: the one format of the store, of export and of import."""

from __future__ import annotations

import functools
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, get_args

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from preflight import __version__
from preflight.memory.device.law.catalogue import find, names
from preflight.vocabulary import watched
from preflight.vocabulary.caches import regex
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job
from preflight.vocabulary.watched import TIERS, End, WatchedHost, WatchedMachine, WatchedRun, WatchedTrial

_HASH, _PLAIN = regex(r"sha256:[0-9a-f]{16}"), regex(r"[\w.+:-]{1,64}")
FORMAT = 1
OUTCOMES: tuple[str, ...] = get_args(End)
PHASES = (*watched.PHASES, "all")
LARGEST = 1 << 50
"""Bytes that no machine has."""
DEEPEST, LONGEST = 8, 2000
"""Levels of a job's fields, and characters of a text in them."""
_NOT_MEMORY = ("machine", "software")
"""Groups of a Job that say where it runs: those are the machine's columns."""

_LEARNT = ("sample_bytes",)
"""Fields of `data` that a run measures: the job is the same before and after they are known."""


class Peak(Struct, frozen=True):
    """The most bytes of one rank in one phase, beside what the law says of the whole run in this tier."""

    rank: int
    phase: str
    tier: str
    bytes: int
    law: tuple[int, int, int] | None = None


class KeptRun(Struct, frozen=True):
    """One run. `job`: the canonical fields; None: the command was not read."""

    id: str
    machine: WatchedMachine
    job: Mapping[str, Any] | None
    world: int
    rank_max: int
    started: str
    outcome: str
    exit: int
    oom_phase: str | None = None
    oom_request: int | None = None
    steps: int = 0
    seconds: float = 0.0
    peaks: tuple[Peak, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    law_version: str = __version__
    source: str = ""
    kind: str = ""
    """How hard the job is to estimate; "": not known."""
    data: str = ""
    """A hash of the program with the words that choose its data; "": not known."""

    @property
    def job_hash(self) -> str | None:
        return None if self.job is None else hash_of(self.job)

    def peak(self, tier: str) -> int | None:
        """The highest of all ranks and phases."""
        return max((one.bytes for one in self.peaks if one.tier == tier), default=None)


def canonical(job: Job) -> dict[str, Any]:
    """The fields that decide memory, without names and paths: a model that is known by name is kept by its dimensions,
    any other by a hash of its name. Settings that belong to other projects may hold anything: their words are kept
    where the catalogue of public models has them, else as hashes."""
    dumped = job.model_dump(mode="json", exclude_defaults=True)  # a field that is added later changes no old hash
    found = {group: values for group, values in dumped.items() if group not in _NOT_MEMORY}
    data = {name: value for name, value in dict(found.pop("data", {})).items() if name not in _LEARNT}
    found |= {"data": data} if data else {}
    model = {name: value for name, value in dict(found.get("model") or {}).items() if value not in (None, {}, [])}
    known = find(str(model["name"])) if "name" in model and "architecture" not in model else None
    if known is not None and known.target is None:
        model.update(architecture=known.architecture, config={**known.config, **model.get("config", {})})
        del model["name"]
    return _scrubbed({**found, "model": model})


def _scrubbed(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job without names and paths."""
    model = dict(job.get("model") or {})
    for name in ("config", "kwargs"):
        if isinstance(model.get(name), dict):
            own = model[name].items()
            model[name] = {key if key.isidentifier() else _hashed(key): _public(one) for key, one in own}
    for name in ("name", "path", "target", "law"):
        if name in model:
            model[name] = _hashed(str(model[name]))
    if "architecture" in model:
        model["architecture"] = _public(model["architecture"])
    return {**{group: _without_paths(values) for group, values in job.items()}, "model": model}


def _hashed(text: str) -> str:
    return text if _HASH.fullmatch(text) else "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_paths(value: Any) -> Any:
    """Data of a job's own fields: words of its vocabulary and names of modules, and no text that could be a path."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else _hashed(value)
    if isinstance(value, dict):
        return {_without_paths(key): _without_paths(one) for key, one in value.items()}
    return [_without_paths(one) for one in value] if isinstance(value, list) else value


def _public(value: Any) -> Any:
    """Data of a model's settings without words that are not in the catalogue, in keys as well: labels may be keys."""
    if isinstance(value, str):
        return value if value in _public_words() else _hashed(value)
    if isinstance(value, dict):
        return {_public(key): _public(one) for key, one in value.items()}
    return [_public(one) for one in value] if isinstance(value, list) else value


@functools.cache
def _public_words() -> frozenset[str]:
    """The keys and values in the configurations of the catalogue."""
    known = (find(name) for name in names())
    return frozenset(word for one in known if one is not None for word in _words([one.architecture, dict(one.config)]))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _words(one)


def hash_of(job: Mapping[str, Any]) -> str:
    text = json.dumps(job, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def kept_run(run: WatchedRun, job: Job | None, law: DeviceEstimate | None, data: str = "") -> KeptRun:
    """What is kept of a run. `data`: a hash of the program and of what chooses its data."""
    if any(rank.gpus > 1 for rank in run.ranks):  # a peak is that of a share of the job, and no law speaks of it
        job, law = None, None
    peaks = []
    for rank in run.ranks:
        for phase, tiers in rank.peaks.items():
            for tier, size in tiers.items():
                if phase in PHASES and tier in TIERS and 0 < size < LARGEST:
                    peaks.append(Peak(rank.rank, phase, tier, size, _law(law, tier)))
        if rank.process:
            peaks.append(Peak(rank.rank, "all", "process", rank.process, _law(law, "process")))
    error, host = run.error, run.host
    machine = next((rank.machine for rank in run.ranks if rank.machine.gpu), WatchedMachine())
    figures = {"limit": host.limit, "cgroup_peak": host.peak, "resident": host.resident, "worker": host.workers,
               "growth_per_batch": host.growth}  # fmt: skip
    figures |= run.samples
    ranks = [rank.rank for rank in run.ranks]
    return KeptRun(
        uuid.uuid4().hex, machine, canonical(job) if job is not None else None,
        max((rank.world for rank in run.ranks), default=1), max(ranks, default=0),
        datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), run.end, run.status,
        error.phase or None if error is not None and error.memory else None,
        error.tried if error is not None else None,
        max((rank.steps for rank in run.ranks), default=0), round(run.seconds, 1),
        tuple({(one.rank, one.phase, one.tier): one for one in sorted(peaks, key=lambda one: one.bytes)}.values()),
        {name: size for name, size in figures.items() if size}, kind=kind_of(law), data=data,
    )  # fmt: skip


def of_trial(run: WatchedRun, trial: WatchedTrial, job: Job, law: DeviceEstimate | None) -> KeptRun:
    """What is kept of one trial of a run that has several."""
    rank = replace(run.ranks[0], peaks=trial.peaks, error=trial.error, ooms=0, steps=0, process=0)
    alone = replace(run, ranks=(rank,), status=0 if trial.error is None else 1, host=WatchedHost())
    return kept_run(alone, job, law)


def kind_of(law: DeviceEstimate | None) -> str:
    """How hard a job is to estimate, without what is stated of versions; "" where that is not known."""
    return law.coverage.kind.partition(",")[0] if law is not None and law.coverage is not None else ""


def _law(law: DeviceEstimate | None, tier: str) -> tuple[int, int, int] | None:
    if law is None or law.lower_bound:
        return None
    interval = getattr(law, tier)
    return interval.low, interval.expected, interval.high


def plain(run: KeptRun) -> dict[str, Any]:
    """As a line of JSON has it. The run may have been kept by a version that left more in its job."""
    return {"format": FORMAT, **to_builtins(run), "job": None if run.job is None else _scrubbed(run.job)}


class NotARun(ValueError):
    """A line is no record of a run; the message says what is wrong."""


def of_plain(data: Any) -> KeptRun:
    """A run from a line of somebody's file. Every field is checked. Raises NotARun."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise NotARun(f"it is not of format {FORMAT}")
    try:
        machine = data["machine"]
        words = {name: _word(machine.get(name, "")) for name in ("gpu", "torch", "cuda", "driver", "alloc_conf")}
        found = KeptRun(
            _word(data["id"]), WatchedMachine(gpu_memory=_size(machine.get("gpu_memory")), **words),
            _job(data["job"]) if data["job"] is not None else None, _count(data["world"]), _count(data["rank_max"]),
            _word(data["started"]), _one_of(data["outcome"], OUTCOMES), _status(data["exit"]),
            _one_of(data["oom_phase"], PHASES) if data.get("oom_phase") else None, _size(data.get("oom_request")),
            _count(data["steps"]), _seconds(data["seconds"]), tuple(_peak(one) for one in data["peaks"]),
            {_word(name): _size(size) or 0 for name, size in data["host"].items()}, _word(data.get("law_version", "")),
            _word(data.get("source", "")), _word(data.get("kind", "")), _word(data.get("data", "")),
        )  # fmt: skip
    except NotARun:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NotARun(f"a field is missing or wrong: {error}") from error
    if not found.id or len({(one.rank, one.phase, one.tier) for one in found.peaks}) < len(found.peaks):
        raise NotARun("it has no id, or a peak twice")
    return found


def _peak(one: Mapping[str, Any]) -> Peak:
    law = one.get("law")
    sizes = tuple(_size(size) or 0 for size in law) if law is not None else None
    if sizes is not None and len(sizes) != 3:
        raise NotARun("a law has three figures")
    size = _size(one["bytes"])
    if not size:
        raise NotARun("a peak has no bytes")
    return Peak(_count(one["rank"]), _one_of(one["phase"], PHASES), _one_of(one["tier"], TIERS), size, sizes)


def _word(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise NotARun(f"{str(value)[:40]!r} is no short text")
    return value


def _job(value: Any) -> dict[str, Any]:
    """The fields of a job: groups of them, and no text that could not be shown."""
    groups = {name: dict(value[name]) for name in ("model", "train", "data") if name in value}
    return {**_data(value, DEEPEST), **groups}  # type: ignore[dict-item]


def _data(value: Any, deepest: int) -> object:
    if isinstance(value, str):
        if len(value) > LONGEST or not value.isprintable():
            raise NotARun(f"{value[:40]!r} is no short text")
    elif isinstance(value, (dict, list)) and deepest:
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            _data(one, deepest - 1)
    elif not isinstance(value, (int, float, type(None))):
        raise NotARun("its job has too many levels, or what is no data")
    return value


def _status(value: Any) -> int:
    """How a process ended: its status, or -1 times the signal."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 32:
        raise NotARun(f"{str(value)[:40]!r} is no status of a process")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1 << 40:
        raise NotARun(f"{str(value)[:40]!r} is no number of seconds")
    return float(value)


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise NotARun(f"{str(value)[:40]!r} is none of {', '.join(known)}")
    return str(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
        raise NotARun(f"{str(value)[:40]!r} is no count")
    return value


def _size(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST:
        raise NotARun(f"{str(value)[:40]!r} is no size in bytes")
    return value
