"""The table of kinds of model. Another kind is a module beside this one, and a row.

Other distributions add kinds by entry points of the group `preflight.workloads` (`module:Class`). They are asked after
the kinds that know their own models, and before those that take any.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import cast

from preflight.memory.device.workload import Asked, Workload
from preflight.memory.device.workloads.denoisers import Denoiser
from preflight.memory.device.workloads.detectors import Detector
from preflight.memory.device.workloads.embeddings import Embedder
from preflight.memory.device.workloads.image_models import ImageModel
from preflight.memory.device.workloads.litgpt import LitGpt
from preflight.memory.device.workloads.perception import Perception
from preflight.memory.device.workloads.segmenters import Segmenter
from preflight.memory.device.workloads.speech import Speech
from preflight.memory.device.workloads.transformers_models import TransformersModel
from preflight.memory.device.workloads.vision_language import VisionLanguage
from preflight.memory.device.workloads.yolo import Yolo
from preflight.system import entry_points
from preflight.vocabulary.extensions import distinct, loaded, wrong

KINDS: tuple[type[Workload], ...] = (
    Detector,
    Yolo,
    Denoiser,
    VisionLanguage,
    Segmenter,
    Embedder,
    Perception,
    Speech,
    ImageModel,  # any other import target
    LitGpt,
    TransformersModel,  # any other architecture
)
"""Every kind, asked in this order whether a model is its own; the last one takes any."""


ANY_TARGET = KINDS.index(ImageModel)
"""The first kind that takes whatever is left."""


@lru_cache(maxsize=1)
def kinds() -> tuple[type[Workload], ...]:
    """Every kind, those of other distributions among them. Raises ExtensionError."""
    found = []
    for one in entry_points.installed(entry_points.WORKLOADS):
        kind = loaded(one)
        if not isinstance(kind, type) or not issubclass(kind, Workload):
            raise wrong(one, "it is no subclass of preflight.memory.device.workload.Workload")
        if not isinstance(getattr(kind, "kind", None), str):
            raise wrong(one, f"{kind.__name__} has no text `kind`")
        if inspect.isabstract(kind):
            raise wrong(one, f"{kind.__name__} lacks {', '.join(sorted(kind.__abstractmethods__))}")
        found.append((kind.kind, cast("type[Workload]", kind), one))
    others = distinct(found, {kind.kind for kind in KINDS}, "the kind of model").values()
    return (*KINDS[:ANY_TARGET], *others, *KINDS[ANY_TARGET:])


def kind_of(asked: Asked) -> type[Workload]:
    """The kind of a model."""
    return next(kind for kind in kinds() if kind.knows(asked))


def target_of(name: str) -> str | None:
    """The target that a name alone means in a library of detectors; None for any other name."""
    return next((target for kind in kinds() if (target := kind.target_of(name)) is not None), None)
