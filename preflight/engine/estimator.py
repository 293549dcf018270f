"""Estimates device and host memory of jobs for one GPU, and remembers the estimates."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.engine.trust import Trust, place_of, refuse_outside
from preflight.engine.user_settings import user_settings
from preflight.system import observed
from preflight.system.processes import found_program
from preflight.vocabulary.batch_statistics import no_such_target
from preflight.vocabulary.budgets import CLOSE_ESTIMATES
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Verdict
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Held
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown
from preflight.vocabulary.verdicts import SpaceVerdict

if TYPE_CHECKING:
    from preflight.space.grid import Side


CLEARLY = 1.3
"""A bound that is this much larger than the capacity needs no replay to say that the job does not fit: a replay takes
a few per cent less than the bound at most (tests/memory/device/test_bound.py)."""


class Certain(Struct, frozen=True):
    """The verdicts on jobs by their identity, and on search spaces by their meaning."""

    estimates: dict[str, Estimates] = field(default_factory=dict)
    spaces: dict[Hashable, SpaceVerdict] = field(default_factory=dict)


class Estimator(Struct):
    """Estimates for the search space and the rules. Equal jobs are estimated once."""

    gpu: Gpu | None
    tracing: Tracing = TRACE
    calibration: bool = False
    """Whether recorded runs of this user count."""
    _full: dict[str, Estimates] = field(default_factory=dict)
    _bounds: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _may_fit: dict[str, bool | None] = field(default_factory=dict)
    _steady: dict[str, DeviceEstimate | None] = field(default_factory=dict)
    _hosts: dict[tuple[str, bool], HostEstimate | Unknown] = field(default_factory=dict)
    _keys: BoundedCache[str] = field(default_factory=lambda: BoundedCache(256))
    _certain: dict[Hashable, Certain] = field(default_factory=dict)
    _by_tracing: dict[Tracing, Estimator] = field(default_factory=dict)

    def on(self, gpu: Gpu | None) -> Estimator:
        """The same for another card; recorded runs of this one say nothing of it."""
        return Estimator(gpu, self.tracing)

    def without_traces(self) -> Estimator:
        """The same, of jobs that need no trace."""
        return self._traced_as(replace(self.tracing, allowed=False))

    def without_compiled_traces(self) -> Estimator:
        """The same, with the law of the plain step for what runs under torch.compile."""
        return self._traced_as(replace(self.tracing, compiled=False))

    def _traced_as(self, tracing: Tracing) -> Estimator:
        """The same with other traces, made once: all studies share what it estimates."""
        if tracing not in self._by_tracing:
            self._by_tracing[tracing] = self._like(tracing)
        return self._by_tracing[tracing]

    def _like(self, tracing: Tracing) -> Estimator:
        return Estimator(self.gpu, tracing, self.calibration)

    @property
    def doubted(self) -> bool:
        """Whether what the estimates stand on, beside the fields of the job, is not certain."""
        return False

    def reach(self, field: str) -> tuple[int, int] | None:
        """The least and the most value of a Job field of which the estimates speak; None: they have no such end."""
        return None

    def certain(self, held: Mapping[str, Held]) -> Certain:
        """Where the verdicts are kept on jobs whose fields are known in the same way: studies of one tree share them,
        since which weak field matters takes some ten estimates to find."""
        try:
            known_so = tuple((name, one.standing, bool(one.why), one.others, one.unsaid) for name, one in held.items())
            return self._certain.setdefault(known_so, Certain())
        except TypeError:  # a field that may have one of several mappings
            return Certain()

    def key(self, job: Job) -> str:
        """The identity of a job. Device and host are asked about the same one in turn."""
        return identity(job, self._keys)

    def full(self, job: Job) -> Estimates:
        """The estimate at full depth."""
        key = self.key(job)
        if key not in self._full:
            self.tracing.progress.check()
            self._full[key] = self._estimates(job)
        return self._full[key]

    def verdict(self, job: Job) -> Verdict | None:
        """The device's verdict of `full`, with fewer replays where lengths vary; None if nothing is known."""
        found = self._with_equal_batches(job)
        return found.verdict if found is not None else None

    def expected(self, job: Job) -> int | None:
        """The expected bytes of the process of `full`. Batches of other lengths change them only where each is padded
        to its own longest sample (`varying_lengths`); elsewhere they are not replayed."""
        dynamic = job.train.sequences == "dynamic"
        found = self.full(job).device if dynamic else self._with_equal_batches(job)
        return found.process.expected if found is not None else None

    def _with_equal_batches(self, job: Job) -> DeviceEstimate | None:
        """The device's estimate without replays of batches of other lengths, unless recorded runs correct it."""
        from preflight.memory import device as side

        key = self.key(job)
        if key not in self._steady:
            self.tracing.progress.check()
            found: DeviceEstimate | Unknown | None = None
            if key not in self._full and self.by_laws:
                found = side.estimate(job, self.gpu, self.tracing, verdict_alone=True)
            if not isinstance(found, DeviceEstimate) or self._with_runs(job, found).recorded:
                found = self.full(job).device
            self._steady[key] = found
        return self._steady[key]

    @property
    def by_laws(self) -> bool:
        """Whether laws make the estimates, which recorded runs may correct."""
        return True

    def _with_runs(self, job: Job, device: DeviceEstimate) -> DeviceEstimate:
        """A device estimate with what recorded runs on its GPU say of it."""
        if not self.calibration or self.gpu is None:
            return device
        from preflight.engine.recorded import with_recorded

        return with_recorded(job, device, self.gpu)

    def said(self, job: Job, found: DeviceEstimate | None) -> tuple[str, ...]:
        """What recorded runs changed in an estimate, or say of a job that has none."""
        if not self.calibration:
            return ()
        from preflight.engine.recorded import said_of

        return said_of(job, found)

    def _estimates(self, job: Job) -> Estimates:
        """Device and host estimate of one job, and the causes if one of them is unknown."""
        from preflight.memory import device as side

        device, host = side.estimate(job, self.gpu, self.tracing), self._host(job)
        if isinstance(device, DeviceEstimate):
            device = self._with_runs(job, device)
        causes = {side: found for side, found in (("device", device), ("host", host)) if isinstance(found, Unknown)}
        return Estimates(
            device if isinstance(device, DeviceEstimate) else None,
            host if isinstance(host, HostEstimate) else None,
            unknown_fields(job, device, host),
            causes,
            job.machine.accelerator != "cpu",
        )

    def may_fit(self, job: Job) -> bool | None:
        """Whether the GPU holds a job, without a replay: False is certain, True is likely, None is not known."""
        from preflight.memory.device import may_fit

        key = self.key(job)
        if key not in self._may_fit:
            self.tracing.progress.check()
            self._may_fit[key] = may_fit(job, self.gpu, self.tracing)
        return self._may_fit[key]

    def device_bound(self, job: Job) -> tuple[int, int] | None:
        """(expected, high) bytes of the process from above, never falling as a numeric field grows; None: unknown."""
        from preflight.memory.device import bound

        key = self.key(job)
        if key not in self._bounds:
            self.tracing.progress.check()
            self._bounds[key] = bound(job, self.gpu, self.tracing)
        return self._bounds[key]

    def host_bound(self, job: Job) -> tuple[int, int] | None:
        """(expected, high) bytes of a node from above, never falling as a numeric field grows."""
        found = self._host(job, bound=True)
        return (found.per_node.expected, found.per_node.high) if isinstance(found, HostEstimate) else None

    def capacity(self, job: Job) -> int | None:
        """Bytes that the job's GPU gives; None if it is not known which one."""
        return job.machine.gpu_memory or (self.gpu.capacity if self.gpu is not None else None)

    @property
    def largest_gpu(self) -> int:
        """Bytes that the largest known GPU gives."""
        from preflight.machines.gpus import gpus

        return gpus()[-1].capacity

    def full_host(self, job: Job) -> HostEstimate | Unknown:
        """The host's memory alone, or why it is not known."""
        return self._host(job)

    def host(self, job: Job) -> HostEstimate | None:
        """The host's memory alone."""
        found = self._host(job)
        return found if isinstance(found, HostEstimate) else None

    def most_parameters(self, job: Job) -> int | None:
        """How large a model may be whose host memory still fits, where its size is unknown; None where it is known."""
        from preflight.memory.host.estimate import solve_parameters

        return solve_parameters(job, tracing=self.tracing) if job.model.parameters is None else None

    def _host(self, job: Job, bound: bool = False) -> HostEstimate | Unknown:
        from preflight.memory.host.estimate import estimate_host

        key = self.key(job), bound
        if key not in self._hosts:
            self.tracing.progress.check()
            self._hosts[key] = estimate_host(job, job.model.parameters, bound=bound, tracing=self.tracing)
        return self._hosts[key]

    def sides(self, full: Callable[[Job], Estimates]) -> tuple[Side, Side]:
        """Device and host as the search space judges them. `full`: the estimate to use if no bound is known: that of
        `self.full`, or its certain part."""
        from preflight.memory.host.estimate import limit_of
        from preflight.space.grid import Side

        def least(job: Job) -> int | None:
            device = full(job).device if self.capacity(job) is not None else None
            return device.process.expected if device is not None and device.verdict == "exceeds" else None

        device = Side(self.device_bound, self.capacity, least, Closely(self))
        return device, Side(self.host_bound, lambda job: limit_of(job)[0])


class Closely(Struct):
    """Verdicts of a search space: where the bound is too near to the capacity to decide, the estimate does.

    A space may have more such combinations than there is time for. Those beyond the budget are judged by the bound, as
    if each needed as much more than its bound as the one did that needed the most: their counts may be surer than the
    estimate would be.
    """

    estimator: Estimator
    asked: int = 0
    times: float = 1.0

    def __call__(self, job: Job, found: tuple[int, int], limit: int) -> int | None:
        from preflight.memory.device import blocks
        from preflight.space.grid import AT_RISK, EXCEEDS, FITS

        expected, high = found
        if high * blocks(job) <= limit:
            return FITS
        if expected > limit * CLEARLY:
            return EXCEEDS
        if self.asked < CLOSE_ESTIMATES:
            self.asked += 1
            verdict = self.estimator.verdict(job) or "unknown"
            if verdict != "fits" and high <= limit:
                self.times = max(self.times, limit / high * (1 + 1e-9))
            return {"fits": FITS, "fits-if": FITS, "at-risk": AT_RISK, "exceeds": EXCEEDS}.get(verdict)
        return FITS if high * self.times <= limit else AT_RISK


def largest_sample_bytes(job: Job, tracing: Tracing = TRACE) -> int | None:
    """The largest data.sample_bytes with which the node's memory fits; None where another field is missing, too."""
    from preflight.memory.host.estimate import solve_sample_bytes

    return solve_sample_bytes(job, job.model.parameters, tracing=tracing)


def unknown_fields(job: Job, device: DeviceEstimate | Unknown, host: HostEstimate | Unknown) -> tuple[str, ...]:
    """Job fields that would have to be stated before both sides are known."""
    from preflight.memory.host.estimate import missing_fields

    found: list[str] = []
    if isinstance(device, Unknown):
        found += [*_missing_device(job), *device.fields]
    if isinstance(host, Unknown):
        found += missing_fields(job)
    return tuple(dict.fromkeys(found))


TEXT_TASKS = {"causal-lm", "masked-lm", "sequence-classification", "token-classification", "seq2seq-lm"}


def _missing_device(job: Job) -> list[str]:
    """The fields without a default that the device estimate stands on."""
    missing = []
    if all(value in (None, {}) for value in job.model.__dict__.values()):
        missing.append("model.name")
    needs: Mapping[str, object] = {"train.batch_size": job.train.batch_size}
    if job.task in TEXT_TASKS or (job.task is None and job.train.image_size is None and not missing):
        needs = {**needs, "train.seq_len": job.train.seq_len}  # a model that nobody knows may read no tokens
    return missing + [name for name, value in needs.items() if value is None]


_ENOUGH = {"train.batch_size": 1, "train.seq_len": 8, "train.target_len": 8, "train.image_size": 224}
"""Sizes with which every kind of model can be looked up."""


def refuse_unknown_model(values: Mapping[str, object], where: str, error: type[PreflightError]) -> None:
    """Raises `error` if the user names a model that preflight does not know and gives no dimensions of it.

    A name in a checked file is another matter: it makes the study unknown, with the same words.
    """
    model = {name: value for name, value in values.items() if name.startswith("model.")}
    if model.keys() & {"model.architecture", "model.config", "model.law", "model.parameters"}:
        return
    target = model.get("model.target", model.get("model.name"))
    why = no_such_target(target) if isinstance(target, str) else None
    if why is not None:
        raise error(f"{where}: {why}" if where else why)
    if not model.keys() & {"model.name", "model.path"}:
        return
    from preflight.memory.device.resolve import resolve
    from preflight.vocabulary.job import build

    found = resolve(build({**_ENOUGH, **model}))
    if isinstance(found, Unknown) and found.cause is Cause.model_unknown:
        raise error(f"{where}: {found.words}" if where else found.words)


def tracing_of(settings: Settings, root: Path, trust: Trust) -> tuple[Tracing, tuple[str, ...]]:
    """The tracing policy: whether models may be traced, with which interpreter, and a note for the user.

    `root` is the directory of the settings. Starting a program that they name is running what came with the project, so
    the user has to trust it by name; the user's own settings may name another. Tracing itself imports torch and
    transformers, nothing of the project. Raises SettingsError.
    """
    refuse_outside(settings, trust)
    own = user_settings().interpreter
    mine = os.path.expanduser(own) if own is not None else None
    if settings.interpreter is None:
        return Tracing(settings.trace, mine, may_read=trust.reads), ()
    path = _program(settings.interpreter, root)
    if path is not None and trust.starts(path):
        return Tracing(settings.trace, str(path), may_read=trust.reads), ()
    if path is None:
        note = f"there is no interpreter {settings.interpreter}"
    else:
        note = (
            f"the interpreter {settings.interpreter} is named by the project: it is not started without --trust {path}"
        )
    return Tracing(settings.trace and mine is not None, mine, may_read=trust.reads), (note,)


def _program(name: str, root: Path) -> Path | None:
    """The place of a program that settings name: a path from their directory, or a name in PATH."""
    if os.sep not in name and not observed.is_file(root / name):
        found = found_program(name)
        return place_of(Path(found)) if found is not None else None
    return place_of(root / name)
