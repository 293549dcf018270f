"""What resolving any kind of model begins with, and models whose step the tracer has a module of its own for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Protocol

from preflight.memory.device.law.setup import Setup, setup_of
from preflight.memory.device.law.workload import Asked, Config, Workload
from preflight.vocabulary.values import Cause, Unknown, missing


@dataclass(frozen=True)
class OwnStep(Workload, Protocol):
    """A model whose step the tracer has a module of its own for, named as the kind is."""

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
        """What the tracer's module needs beside these."""
        return {}


def begin(asked: Asked, *needs: str, adapts: bool = True, freezes: bool = True) -> Setup | Unknown:
    """What resolving a model without a family begins with: its lengths are stated (`needs`: fields of train, each with
    what it counts), nothing is asked for that no law has (`adapts`: checkpoints and adapters have one; `freezes`: parts
    that are not trained too), and there is a setup."""
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


def undescribed(architecture: str, error: KeyError | TypeError) -> Unknown:
    """What the description of a model lacks, or has of another type."""
    key = str(error).strip("'")
    fields = (f"model.config.{key}",) if isinstance(error, KeyError) else ()
    return Unknown(f"model.config.{key} of the {architecture} model is not known", Cause.not_set, fields)


def without_mask(setup: Setup) -> Setup:
    """The setup of a model whose attention, if it has any, is not chosen and has no mask."""
    return replace(setup, attention="sdpa", mask=False)


def digest(said: object) -> str:
    """What tells law files of one name apart: a hash of what was said of the model."""
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
