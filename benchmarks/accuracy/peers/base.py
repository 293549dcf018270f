"""What a tool is to the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from benchmarks.accuracy.truth import TIERS, Tier
from preflight.machines.gpus import find_gpu
from preflight.memory.device.law import catalogue
from preflight.vocabulary.job import Job

Answer = Mapping[Tier, int]
"""Bytes by tier: only the tiers that the tool speaks of."""


@dataclass(frozen=True)
class Refused:
    """The tool has no answer, and why."""

    reason: str


class Peer(Protocol):
    """A tool."""

    name: str
    version: str | None
    """None: it is not installed, and is not run."""
    tiers: tuple[Tier, ...]
    """What it speaks of; it is not asked about runs that only another tier was measured of."""

    def estimate(self, job: Job) -> Answer | Refused:
        """What the tool says of a job."""


def installed(distribution: str) -> str | None:
    """A distribution's version, None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def one_figure(size: float) -> Answer:
    """The answer of a tool that gives one figure and names no tier: it is compared in each."""
    return {tier: round(size) for tier in TIERS}


@dataclass(frozen=True)
class Described:
    """A model of our catalogue: its architecture and the dimensions of its public config."""

    name: str
    architecture: str
    config: Mapping[str, object]


def described(job: Job) -> Described | Refused:
    """The model's configuration, as the hub would give it."""
    model = job.model
    if model.architecture and model.config is not None:
        return Described(model.name or model.architecture, model.architecture, model.config)
    found = catalogue.find(model.name) if model.name else None
    if found is None:
        return Refused(f"no configuration of {model.name or model.target} is at hand")
    return Described(found.name, found.architecture, found.config)


def capacity_gpu(job: Job) -> str | None:
    """The GPU by preflight's name for it."""
    found = find_gpu(job.machine.gpu) if job.machine.gpu else None
    return found.name if found is not None else None


def adapts(job: Job) -> bool:
    """Whether adapters are trained instead of the model."""
    return job.train.peft.method not in (None, "none")


def quantised(job: Job) -> bool:
    return job.train.quantization.type not in (None, "none")
