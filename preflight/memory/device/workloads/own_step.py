"""Resolving a job whose model belongs to no family: the common checks, and the base of kinds that train specially."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from preflight.memory.device.law.setup import Setup, setup_of
from preflight.memory.device.law.workload import Config, Workload, WorkloadRequest
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown, missing


class OwnStep(Workload, frozen=True):
    """A model that trains in a special way: the tracer has a module for its step, with the name of the kind."""

    architecture: str
    config: Config
    task: str

    def wire(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "architecture": self.architecture,
            "config": dict(self.config),
            "task": self.task,
            "filed": self.filed,
            "extra": self.extra,
            **self.told(),
        }

    def told(self) -> dict[str, Any]:
        """Further fields that the tracer's module needs."""
        return {}


def begin(asked: WorkloadRequest, *needs: str, adapts: bool = True, freezes: bool = True) -> Setup | Unknown:
    """Checks a job and gives its setup. `needs`: fields of train that must be stated, each with what it counts.
    `adapts`: there are laws with gradient checkpointing and adapters; `freezes`: and with frozen parts."""
    train = asked.job.train
    for need in ("batch_size", *needs):
        name, _, counted = need.partition(" ")
        if getattr(train, name) is None:
            return missing(f"train.{name}", counted.strip("()"))
    adapted = train.gradient_checkpointing or train.peft.method not in (None, "none")
    if not adapts and (adapted or (train.frozen and not freezes)):
        what = "checkpoints or adapters" if freezes else "checkpoints, frozen parts or adapters"
        return Unknown(f"{asked.known_as} has no law with {what}", Cause.not_modelled)
    return setup_of(asked.job, gpu=asked.gpu)


OBJECTS_FIELD = "train.target_len"
"""Of a detector: how many objects the fullest image has."""


def objects_of_data(job: Job) -> Mapping[str, str]:
    """What a detector's law takes a number for: its loss compares every object of an image with every prediction."""
    if job.train.target_len is not None:
        return {}
    return {OBJECTS_FIELD: "the data decide how many objects an image has, and no file states it"}


def undescribed(architecture: str, error: KeyError | TypeError) -> Unknown:
    """The reason where a key of a model's config is missing or has a wrong type."""
    key = str(error).strip("'")
    fields = (f"model.config.{key}",) if isinstance(error, KeyError) else ()
    return Unknown(f"model.config.{key} of the {architecture} model is not known", Cause.not_set, fields)


def without_mask(setup: Setup) -> Setup:
    """The setup of a model whose attention, if it has any, is not chosen and has no mask."""
    return replace(setup, attention="sdpa", mask=False)


def digest(said: object) -> str:
    """A hash of a model's description, which tells law files of one name apart."""
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
