"""Segmenters of torchvision and segmentation_models_pytorch, and torchvision's models of clips: what their law is filed
under. A law is a function of the batch, and of the image's side where 64 pixels divide it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "dense"
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


def knows(target: str) -> bool:
    """Whether this names a model that labels pixels or clips."""
    return any(pattern.match(target) for pattern in (_SEGMENTERS, _CLIPS, _SMP))


def resolve(job: Job, name: str, target: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What the law of such a model is looked up by."""
    from preflight.memory.device.resolve import Resolved, setup_of

    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.gradient_checkpointing or train.peft.method not in (None, "none"):
        return Unknown(f"{target} has no law with checkpoints or adapters", Cause.not_modelled)
    setup = setup_of(job, None, {}, gpu)
    if isinstance(setup, Unknown):
        return setup
    setup = {**setup, "attention": "sdpa", "mask": False}
    kwargs = {k: v for k, v in (job.model.kwargs or {}).items() if k not in ALIKE and k != "frames"}
    clip, segmenter, smp = (pattern.match(target) for pattern in (_CLIPS, _SEGMENTERS, _SMP))
    found = clip or segmenter or smp
    assert found is not None
    counts: dict[str, int] = {}
    if clip:
        usual = next((n for word, n in FRAMES.items() if found[1].startswith(word)), 16)
        counts["frames"] = int((job.model.kwargs or {}).get("frames", usual))
    image = train.image_size or (_clip_side(found[1]) if clip else CROP if smp else IMAGE)
    home = "segmentation_models_pytorch" if smp else "torchvision"
    key, usual_classes = ("classes", 1) if smp else ("num_classes", CLIP_CLASSES if clip else CLASSES)
    classes = int(kwargs.pop(key, usual_classes))
    dims = {"V": classes} if classes > 1 else {}  # a single one has another loss
    lengths = {"b": train.batch_size}
    by_side = image % UNIT == 0 and not clip
    lengths["u" if by_side else "i"] = image // UNIT if by_side else image
    extra = " ".join([*(f"{k}={v}" for k, v in counts.items()), *([] if by_side else [f"image={image}"])]) or "-"
    model = {"kind": KIND, "architecture": KIND, "home": home, "name": found[1], "kwargs": kwargs, "counts": counts,
             "config": {"vocab_size": classes}, "task": "dense", "filed": filed(home, found[1], kwargs),
             "extra": extra if dims else f"{extra} classes=1"}  # fmt: skip
    return Resolved(None, "dense", dims, lengths, {}, setup, model, name)


def filed(home: str, name: str, kwargs: Mapping[str, Any]) -> str:
    """The name of a model's law file."""
    text = json.dumps([home, name, dict(kwargs)], sort_keys=True, default=str)
    return f"dense-{name.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _clip_side(name: str) -> int:
    return 112 if name.startswith(SMALL_CLIPS) else 224
