"""A kind of model as the engine sees it: the one interface behind which every kind stands.

Each kind is a class in `workloads/` and a row of `workloads.registry.KINDS`. The class knows its models by their names
and resolves a job; an instance is one model, as the tracer is told of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from preflight.memory.device.fit.few_traces import make_sparse
from preflight.memory.device.law.made import Depth, TraceRequest
from preflight.memory.device.law.setup import Setup, setup_of
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.families import Family
    from preflight.memory.device.law.laws import Laws
    from preflight.memory.device.law.likeness import Likeness
    from preflight.memory.device.law.made import Made, Runner
    from preflight.memory.device.parallel.rank import Held
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.step.loading import Row
    from preflight.memory.device.step.validation import Phase
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

Config: TypeAlias = "Mapping[str, Any]"
"""What a config.json says, or the keyword arguments of a constructor: JSON, as its library reads it."""
SHIPPED_FREE = ("b", "u", "r", "w", "t", "V", "k", "o")
"""Lengths that a shipped law of a model without a family is a function of."""


@dataclass(frozen=True)
class Asked:
    """A model as a job names it, and what decides how it is resolved."""

    job: Job
    name: str
    architecture: str
    """The `model_type` of transformers or the class of diffusers; empty for an import target."""
    config: Config
    target: str | None = None
    gpu: Gpu | None = None
    """Decides which attention kernels there are; None: one of compute capability 8.0 or later."""
    tracing: Tracing = TRACE

    @property
    def known_as(self) -> str:
        """The import target or the architecture."""
        return self.target or self.architecture

    @property
    def task(self) -> str:
        return self.job.task or ""


@dataclass(frozen=True)
class Resolved:
    """What a law is looked up by. `dims` holds every dimension but lengths; `lengths` those that the Job states."""

    workload: Workload
    name: str
    task: str
    dims: Mapping[str, int]
    lengths: Mapping[str, int]
    setup: Setup
    family: Family | None = None
    structure: Mapping[str, object] = field(default_factory=dict)
    """Keys of a family's config that its law depends on beside dimensions."""
    law: str | None = None
    """A file of the user's that holds the law."""
    like: Likeness | None = None
    """How a model of remote code is reckoned."""

    @property
    def all_dims(self) -> dict[str, int]:
        return {**self.dims, **self.lengths}

    @property
    def fixed(self) -> dict[str, int]:
        """The lengths at which a law traced now holds."""
        return {name: value for name, value in self.lengths.items() if name not in self.workload.free}

    def request(self, kind: str) -> TraceRequest:
        """What the tracer is asked for; `kind`: of step."""
        return TraceRequest(self.workload.wire(), self.setup, kind, self.workload.warm_up)


class Workload(Protocol):
    """One model of a kind, as it is trained."""

    kind: ClassVar[str]
    """The kind's name: a module of the tracer's where the kind has a step of its own."""
    wider: ClassVar[tuple[float, float]] = (0.0, 0.0)
    """What widens intervals below and above, as fractions: of stand-ins."""
    warm_up: ClassVar[bool] = False
    """Whether a model makes something in its first step alone, so that the second is traced."""
    image_loop: ClassVar[bool] = False
    """Whether scripts for image models train it: batches wait on the GPU, and cuDNN may try its algorithms."""
    casts_frozen: ClassVar[bool] = False
    """Whether scripts cast its frozen weights to the 16 bits of mixed precision."""
    generation_phase: ClassVar[str] = "generation"
    """The phase in which it generates."""

    # --- the kind ---

    @classmethod
    def knows(cls, asked: Asked) -> bool:
        """Whether a model is of this kind."""
        ...

    @classmethod
    def resolve(cls, asked: Asked) -> Resolved | Unknown:
        """What the law of a job's step is looked up by, or why there is none."""
        ...

    @classmethod
    def target_of(cls, name: str) -> str | None:
        """The target that a name alone means in this kind's libraries; None for any other name."""
        return None

    # --- one model ---

    def wire(self) -> dict[str, Any]:
        """What the tracer is told."""
        ...

    @property
    def filed(self) -> str:
        """The name of the law file."""
        ...

    @property
    def extra(self) -> str:
        """What the key of the law says beside task and setup."""
        return "-"

    @property
    def nearly(self) -> str | None:
        """The law file that stands in where nobody shipped the model's own."""
        return None

    @property
    def foreign(self) -> str | None:
        """The import target of the user's own that a trace would import."""
        return None

    @property
    def free(self) -> tuple[str, ...]:
        """Lengths that a law traced now is a function of."""
        return ("b",)

    @property
    def depths(self) -> tuple[Depth, ...]:
        """The stacks of equal layers that a law is a function of."""
        return ()

    @property
    def prefetches(self) -> bool:
        """Of image models: whether timm's train.py most likely trains it, which loads batches ahead."""
        return False

    @property
    def convolutional(self) -> bool:
        """Whether convolutions, whose workspaces vary, are much of the model."""
        return False

    def make(self, resolved: Resolved, kind: str, run: Runner) -> Made:
        """The law as a function of `free`, of as few traces as can be: they take long. Raises CannotMake, or what `run`
        raises."""
        free = tuple(name for name in resolved.lengths if name in self.free)
        depths = {one.name for one in self.depths}
        fixed = {k: v for k, v in resolved.all_dims.items() if k not in self.free and k not in depths}
        return make_sparse(resolved.request(kind), free, run, fixed, self.depths)

    def make_shipped(self, resolved: Resolved, kind: str, run: Runner) -> Made:
        """The law as a function of all lengths, to be shipped. Raises CannotMake, or what `run` raises."""
        free = [name for name in SHIPPED_FREE if name in resolved.all_dims]
        fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
        return make_sparse(resolved.request(kind), free, run, fixed, self.depths)

    # --- one job ---

    def beside(self, job: Job, resolved: Resolved, rows: Sequence[Row], buffers: int) -> tuple[Held, ...] | Unknown:
        """What lies on the GPU beside the step of a model with these parameters, and buffers of so many bytes."""
        return ()

    def refuses(self, resolved: Resolved, laws: Laws, scheme: str) -> Unknown | None:
        """Why the law does not hold under a scheme of sharding; None: it does."""
        return None

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """What the job may be as well, where what decides between them is stated nowhere."""
        return iter(())

    def as_compiled(self) -> Workload | None:
        """The model under torch.compile; None where no law of its compiled step can be made."""
        return None

    def phases(self, ready: Ready, smooth: bool) -> Iterator[Phase]:
        """What the job does beside training steps and validation. `smooth`: see `Law.peak`."""
        return iter(())

    def notes(self, ready: Ready) -> Iterator[str]:
        """What a user should know: what is taken for granted, and which field would say."""
        return iter(())


@dataclass(frozen=True)
class OwnStep(Workload, Protocol):
    """A model whose step the tracer has a module of its own for, named as the kind is."""

    architecture: str
    config: Config
    task: str

    def wire(self) -> dict[str, Any]:
        return {"kind": self.kind, "architecture": self.architecture, "config": dict(self.config), "task": self.task,
                "filed": self.filed, "extra": self.extra, **self.told()}  # fmt: skip

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
