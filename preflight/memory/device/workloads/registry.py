"""The table of kinds of models. To add a kind, add a module in this folder and a row here.

Other distributions add kinds by entry points of the group `preflight.workloads` (`module:Class`). They are asked after
the kinds that know their own models, and before those that take any.
"""

from __future__ import annotations

from functools import lru_cache
from inspect import getattr_static
from typing import cast

from preflight.memory.device.law.workload import Workload, WorkloadRequest
from preflight.memory.device.workloads.denoisers import Denoiser
from preflight.memory.device.workloads.detectors import Detector
from preflight.memory.device.workloads.embeddings import Embedder
from preflight.memory.device.workloads.image_models import ImageModel
from preflight.memory.device.workloads.litgpt import LitGpt
from preflight.memory.device.workloads.own_models import OwnModel
from preflight.memory.device.workloads.perception import Perception
from preflight.memory.device.workloads.segmenters import Segmenter
from preflight.memory.device.workloads.speech import Speech
from preflight.memory.device.workloads.transformers_models import TransformersModel
from preflight.memory.device.workloads.vision_language import VisionLanguage
from preflight.memory.device.workloads.yolo import Yolo
from preflight.vocabulary.extensions import WORKLOADS, distinct, installed, loaded, wrong

KINDS: tuple[type[Workload], ...] = (
    Detector,
    Yolo,
    Denoiser,
    VisionLanguage,
    Segmenter,
    Embedder,
    Perception,
    Speech,
    OwnModel,
    ImageModel,  # any other import target
    LitGpt,
    TransformersModel,  # any other architecture
)
"""Every kind, asked in this order whether a model is its own; the last one takes any."""

_STATED = ("knows", "resolve", "wire", "filed")
"""The methods that each kind of `Workload` must define."""


def kinds() -> tuple[type[Workload], ...]:
    """Every kind. Those of other distributions come before the first kind that takes any model. Raises
    ExtensionError."""
    taken = KINDS.index(ImageModel)
    return (*KINDS[:taken], *_added(), *KINDS[taken:])


@lru_cache(maxsize=1)
def _added() -> tuple[type[Workload], ...]:
    found = []
    for one in installed(WORKLOADS):
        part = loaded(one)
        if not isinstance(part, type) or Workload not in part.__mro__:
            raise wrong(one, "it is no subclass of preflight.memory.device.law.workload.Workload")
        kind = cast("type[Workload]", part)
        if not isinstance(getattr(kind, "kind", None), str):
            raise wrong(one, f"{kind.__name__} has no text `kind`")
        if lacks := [name for name in _STATED if getattr_static(kind, name) is getattr_static(Workload, name)]:
            raise wrong(one, f"{kind.__name__} does not define {', '.join(lacks)}")
        found.append((kind.kind, kind, one))
    return tuple(distinct(found, {kind.kind for kind in KINDS}, "the kind of model").values())


def kind_of(asked: WorkloadRequest) -> type[Workload]:
    """The kind of a model."""
    return next(kind for kind in kinds() if kind.knows(asked))


def target_of(name: str) -> str | None:
    """The target of a plain name in a library of one of the kinds; None for any other name."""
    return next((target for kind in kinds() if (target := kind.target_of(name)) is not None), None)
