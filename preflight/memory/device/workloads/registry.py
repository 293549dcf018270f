"""The table of kinds of model. Another kind is a module beside this one, and a row."""

from __future__ import annotations

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


def kind_of(asked: Asked) -> type[Workload]:
    """The kind of a model."""
    return next(kind for kind in KINDS if kind.knows(asked))


def target_of(name: str) -> str | None:
    """The target that a name alone means in a library of detectors; None for any other name."""
    return next((target for kind in KINDS if (target := kind.target_of(name)) is not None), None)
