"""Both sides of a job's memory, estimated for one GPU and remembered."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.records import dataclass, field
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown

if TYPE_CHECKING:
    from preflight.space.grid import Side


@dataclass(frozen=True)
class Tracing:
    """Whether models that no shipped law knows may be traced, and by which Python (None: this one)."""

    allowed: bool = True
    interpreter: str | None = None


@dataclass
class Estimator:
    """What the search space and the rules ask for; equal jobs are estimated once."""

    gpu: Gpu | None
    tracing: Tracing = Tracing()
    _full: dict[str, Estimates] = field(default_factory=dict)
    _bounds: dict[str, tuple[int, int] | None] = field(default_factory=dict)

    def full(self, job: Job) -> Estimates:
        """The estimate at full depth."""
        key = identity(job)
        if key not in self._full:
            self._full[key] = self._estimates(job)
        return self._full[key]

    def _estimates(self, job: Job) -> Estimates:
        """Device and host of one job, and what keeps one of them from being known."""
        device, host = self._device().estimate(job, self.gpu), _host(job)
        reasons = {
            side: found.words for side, found in (("device", device), ("host", host)) if isinstance(found, Unknown)
        }
        return Estimates(
            device if isinstance(device, DeviceEstimate) else None,
            host if isinstance(host, HostEstimate) else None,
            unknown_fields(job, device, host),
            reasons,
        )

    def _device(self) -> ModuleType:
        """The device side, told what it may trace."""
        from preflight.memory import device
        from preflight.memory.device.fit.subprocess import TRACING

        TRACING.allowed, TRACING.interpreter = self.tracing.allowed, self.tracing.interpreter
        return device

    def device_bound(self, job: Job) -> tuple[int, int] | None:
        """(expected, high) bytes of the process from above, never falling as a numeric field grows; None: unknown."""
        key = identity(job)
        if key not in self._bounds:
            self._bounds[key] = self._device().bound(job, self.gpu)
        return self._bounds[key]

    def host_bound(self, job: Job) -> tuple[int, int] | None:
        """(expected, high) bytes of a node from above, never falling as a numeric field grows."""
        found = _host(job, bound=True)
        return (found.per_node.expected, found.per_node.high) if isinstance(found, HostEstimate) else None

    def sides(self) -> tuple[Side, Side]:
        """Device and host as the search space judges them."""
        from preflight.memory.host.estimate import limit_of
        from preflight.space.grid import Side

        known = self.gpu.capacity if self.gpu is not None else None
        return Side(self.device_bound, lambda job: job.machine.gpu_memory or known), Side(
            self.host_bound, lambda job: limit_of(job)[0]
        )


def _host(job: Job, bound: bool = False) -> HostEstimate | Unknown:
    from preflight.memory.host.estimate import estimate_host

    return estimate_host(job, job.model.parameters, bound=bound)


def unknown_fields(job: Job, device: DeviceEstimate | Unknown, host: HostEstimate | Unknown) -> tuple[str, ...]:
    """Job fields that would have to be stated before both sides are known."""
    from preflight.memory.host.estimate import missing_fields

    found: list[str] = []
    if isinstance(device, Unknown):
        found += [*_missing_device(job), *device.fields]
    if isinstance(host, Unknown):
        found += missing_fields(job)
    return tuple(dict.fromkeys(found))


_TEXT = {"causal-lm", "masked-lm", "sequence-classification", "token-classification", "seq2seq-lm"}


def _missing_device(job: Job) -> list[str]:
    """The fields without a default that the device estimate stands on."""
    missing = []
    if all(value in (None, {}) for value in job.model.__dict__.values()):
        missing.append("model.name")
    needs: Mapping[str, object] = {"train.batch_size": job.train.batch_size}
    if job.task in _TEXT or (job.task is None and job.train.image_size is None):
        needs = {**needs, "train.seq_len": job.train.seq_len}
    return missing + [name for name, value in needs.items() if value is None]


def tracing_of(settings: Settings, root: Path, trusted: Collection[str]) -> tuple[Tracing, tuple[str, ...]]:
    """Whether and with which interpreter models may be traced, and what the user should know of it.

    An interpreter that lies in the project came with it, and starting it is running the project's code: it has to be
    trusted by name. Tracing itself imports torch and transformers, nothing of the project.
    """
    interpreter = settings.interpreter
    if interpreter is None:
        return Tracing(settings.trace), ()
    path = Path(os.path.abspath(root / interpreter))
    if path.is_relative_to(root) and path not in {Path(os.path.abspath(one)) for one in trusted}:
        return Tracing(False), (
            f"the interpreter {interpreter} is part of the project: it is not started without --trust",
        )
    return Tracing(settings.trace, str(path) if path.is_file() else interpreter), ()
