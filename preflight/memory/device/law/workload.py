"""The interface of a kind of model, and the key of a job's law.

Each kind is a class in `workloads/` and a row of `workloads.registry.KINDS`. The class recognises its models and
resolves a job. An instance is one model, with what the tracer is told about it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, field

from preflight.memory.device.families import Family
from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import Depth, MadeLaw, Runner, TraceRequest, Weight
from preflight.memory.device.law.setup import Likeness, Setup
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Unknown

Config: TypeAlias = "Mapping[str, Any]"
"""A config.json, or the keyword arguments of a constructor: JSON, as its library reads it."""


class WorkloadRequest(Struct, frozen=True):
    """A model as a job names it, with all that decides how it is resolved."""

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


class Resolved(Struct, frozen=True):
    """The key of a law. `dims`: every dimension that is no length; `lengths`: batch and lengths of the
    job."""

    workload: Workload
    name: str
    task: str
    dims: Mapping[str, int]
    lengths: Mapping[str, int]
    setup: Setup
    family: Family | None = None
    structure: Mapping[str, object] = field(default_factory=dict)
    """Keys of the model's config that change the tape of a family's law, apart from dimensions."""
    law: str | None = None
    """The user's own file with the law."""
    like: Likeness | None = None
    """Of remote code: the architecture whose law is used."""

    @property
    def all_dims(self) -> dict[str, int]:
        return {**self.dims, **self.lengths}

    @property
    def fixed(self) -> dict[str, int]:
        """The lengths at which a law that is traced now is fixed."""
        return {name: value for name, value in self.lengths.items() if name not in self.workload.free}

    def request(self, kind: str) -> TraceRequest:
        """The request to the tracer; `kind` of step: train, eval, generate."""
        return TraceRequest(self.workload.wire(), self.setup, kind, self.workload.warm_up)


class Storage(Struct, frozen=True):
    """A storage that is on the GPU throughout the job; `part` as in ALL_PARTS."""

    nbytes: int
    part: str


class ExtraPhase(Struct, frozen=True):
    """A phase of a kind of model in addition to training and validation."""

    name: str
    steps: tuple[Resolved, ...] = ()
    """The models that run in it, without gradients. If one of them has no law, the phase is left out."""
    loaded: tuple[int, ...] = ()
    """Bytes of the storages that are on the GPU for this phase alone."""
    of_batch: bool = False
    """Whether the steps run over the batch that is trained on."""


class Workload(Struct, frozen=True):
    """One kind of model (the class methods), and one model of it."""

    kind: ClassVar[str]
    """The name of the kind. Where the kind trains in a special way, also the name of a module of the tracer."""
    wider: ClassVar[tuple[float, float]] = (0.0, 0.0)
    """By how much the intervals are wider, below and above, as fractions: for re-implemented models."""
    warm_up: ClassVar[bool] = False
    """Whether a model allocates something in its first step only, so that the second step is traced."""
    image_loop: ClassVar[bool] = False
    """Whether scripts for image models train it: they load batches ahead onto the GPU, and cuDNN may try its
    algorithms."""
    casts_frozen: ClassVar[bool] = False
    """Whether scripts cast its frozen weights to the 16 bits of mixed precision."""
    generation_phase: ClassVar[str] = "generation"
    """The phase in which it generates."""

    # --- the kind ---

    @classmethod
    @abstractmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        """Whether a model is of this kind."""

    @classmethod
    @abstractmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        """The key of the law of a job's step, or why there is none."""

    @classmethod
    def target_of(cls, name: str) -> str | None:
        """The target that a name alone means in this kind's libraries; None for any other name."""
        return None

    # --- one model ---

    @abstractmethod
    def wire(self) -> dict[str, Any]:
        """The model in the request to the tracer."""

    @property
    @abstractmethod
    def filed(self) -> str:
        """The name of the law file."""

    @property
    def extra(self) -> str:
        """The part of the law's key in addition to task and setup."""
        return "-"

    @property
    def nearly(self) -> str | None:
        """The law file to use where none ships for this model."""
        return None

    @property
    def foreign(self) -> str | None:
        """The import target in the user's own code that a trace would import; None: a trace imports none of it."""
        return None

    @property
    def unshipped(self) -> str | None:
        """What is said of a model that never has a shipped law, in the place of "no law is shipped"."""
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

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw | None:
        """The law as a function of `free`, made in a way that this kind has to itself; None: as
        `fit.few_traces.make_of` does it for any kind. Raises CannotMake, or what `run` raises."""
        return None

    # --- one job ---

    def beside(
        self, job: Job, resolved: Resolved, rows: Sequence[Weight], buffers: int
    ) -> tuple[Storage, ...] | Unknown:
        """Storages on the GPU throughout the job, in addition to its model. `rows`: the model's weights; `buffers`:
        bytes."""
        return ()

    def refuses(self, resolved: Resolved, laws: Laws, scheme: str) -> Unknown | None:
        """Why the law does not hold under a sharding scheme; None: it holds."""
        return None

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """Jobs that this one may be as well, where no setting decides between them."""
        return iter(())

    def as_compiled(self) -> Workload | None:
        """The model under torch.compile; None where no law of its compiled step can be made."""
        return None

    def extra_phases(
        self, job: Job, resolved: Resolved, whole: Sequence[Weight], here: Sequence[Weight]
    ) -> Iterator[ExtraPhase]:
        """Phases of the job except training, validation and generation. `whole`: the model's weights; `here`: those on
        this GPU."""
        return iter(())

    def image_generation(
        self, job: Job, resolved: Resolved, whole: Sequence[Weight], here: Sequence[Weight]
    ) -> ExtraPhase | None:
        """The phase in which images are generated, if the job does so; None: models of this kind generate none."""
        return None

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        """Fields that the job does not state, and whose value neither a library nor the model decides, with what is
        taken for them in words."""
        return {}

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        """Notes for the user: each assumption, and the field that would state it."""
        return iter(())
