"""Segmenters of torchvision and segmentation_models_pytorch, and torchvision's models of clips: the key of their
law. A law is a function of the batch, and of the image's side where 64 pixels divide it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from preflight.memory.device.law.workload import Resolved, WorkloadRequest
from preflight.memory.device.workloads.own_step import OwnStep, begin, digest, without_mask
from preflight.vocabulary.values import Unknown

UNIT = 64
"""Pixels of a side that `u` counts."""
IMAGE = 520
"""Pixels of a side that torchvision's weights for segmentation were made at (references/segmentation, base_size)."""
CROP = 512
CLASSES, CLIP_CLASSES = 21, 400
"""Defaults of torchvision's constructors: VOC's classes with the background, Kinetics-400's."""
FRAMES = {"swin3d": 32}
"""Frames of a clip that torchvision's weights were made with, where not 16 (references/video_classification)."""
SMALL_CLIPS = ("r3d", "mc3", "r2plus1d")
_SEGMENTERS = re.compile(
    r"(?:torchvision:|torchvision\.models\.segmentation\.(?:\w+\.)?)((?:deeplabv3|fcn|lraspp)_\w+)$"
)
_CLIPS = re.compile(
    r"(?:torchvision:|torchvision\.models\.video\.(?:\w+\.)?)((?:r3d|mc3|r2plus1d)_18|s3d|mvit_v\d_\w|swin3d_\w)$"
)
_SMP = re.compile(r"(?:smp|segmentation_models_pytorch)[.:](\w+)$")
ALIKE = ("weights", "weights_backbone", "encoder_weights", "pretrained", "progress", "activation")
"""Keyword arguments that change nothing but values (no activation comes before the loss)."""


class Segmenter(OwnStep, frozen=True):
    """A model that labels pixels, or a video classifier."""

    kind: ClassVar[str] = "dense"
    home: str
    name: str
    kwargs: Mapping[str, object]
    counts: Mapping[str, int]
    image: int | None
    """Pixels of a side, of a law of one side."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return _matched(asked.known_as) is not None

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        found = _matched(asked.known_as)
        assert found is not None
        setup = begin(asked, adapts=False)
        if isinstance(setup, Unknown):
            return setup
        train, given = asked.job.train, asked.job.model.kwargs or {}
        kwargs = {k: v for k, v in given.items() if k not in ALIKE and k != "frames"}
        clip, smp = found.re is _CLIPS, found.re is _SMP
        counts: dict[str, int] = {}
        if clip:
            usual = next((n for word, n in FRAMES.items() if found[1].startswith(word)), 16)
            counts["frames"] = int(given.get("frames", usual))
        image = train.image_size or (_clip_side(found[1]) if clip else CROP if smp else IMAGE)
        key, usual_classes = ("classes", 1) if smp else ("num_classes", CLIP_CLASSES if clip else CLASSES)
        classes = int(kwargs.pop(key, usual_classes))
        by_side = image % UNIT == 0 and not clip
        lengths = {"b": train.batch_size or 1, "u" if by_side else "i": image // UNIT if by_side else image}
        model = cls(
            "dense",
            {"vocab_size": classes},
            "dense",
            "segmentation_models_pytorch" if smp else "torchvision",
            found[1],
            kwargs,
            counts,
            None if by_side else image,
        )
        dims = {"V": classes} if classes > 1 else {}  # a single one has another loss
        return Resolved(model, asked.name, "dense", dims, lengths, without_mask(setup))

    def told(self) -> dict[str, Any]:
        return {"home": self.home, "name": self.name, "kwargs": dict(self.kwargs), "counts": dict(self.counts)}

    @property
    def filed(self) -> str:
        return f"dense-{self.name.lower()}-{digest([self.home, self.name, dict(self.kwargs)])}"

    @property
    def extra(self) -> str:
        sizes = {**self.counts, **({"image": self.image} if self.image is not None else {})}
        text = " ".join(f"{name}={size}" for name, size in sizes.items()) or "-"
        return text if self.config["vocab_size"] > 1 else f"{text} classes=1"

    @property
    def convolutional(self) -> bool:
        return True


def _matched(target: str) -> re.Match[str] | None:
    return next((found for one in (_CLIPS, _SEGMENTERS, _SMP) if (found := one.match(target))), None)


def _clip_side(name: str) -> int:
    return 112 if name.startswith(SMALL_CLIPS) else 224
