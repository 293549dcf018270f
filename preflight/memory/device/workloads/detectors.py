"""Detectors of detectron2, mmdetection and torchvision, re-implemented from the same papers.

The modules are in tracer/reimplementations/detectors.py.

Known are Faster R-CNN, Mask R-CNN, RetinaNet and RPN on a ResNet or ResNeXt with a feature pyramid; of detectron2 also
its C4 and DC5 bodies and cascades. Other models of those libraries are refused by name, also keypoint and panoptic
heads: their re-implementations were a fifth below the zoo's measurements, for an unknown reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.workload import Resolved, WorkloadRequest
from preflight.memory.device.workloads.own_step import (
    OBJECTS_FIELD,
    OwnStep,
    begin,
    digest,
    objects_of_data,
    without_mask,
)
from preflight.vocabulary.caches import regex
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

HOMES = ("detectron2:", "mmdet:", "maskrcnn_benchmark:")
IMAGE = 800
"""Pixels of the shorter side, 1,333 of the longer one at most (all three libraries' configs)."""
OBJECTS = 93
"""The most that an image of COCO's train2017 holds: overlaps with all anchors are worked out for each."""
WITHOUT_EFFECT = frozenset(
    {"weights", "weights_backbone", "pretrained", "pretrained_backbone", "num_classes", "progress"}
)
"""Arguments of torchvision's constructors that leave the sizes of images and layers, but for the smallest head."""
REIMPLEMENTED = "our re-implementation of the same architecture in plain torch, at COCO's largest images"
TENSOR_CORES = (8, 0)
"""Compute capability from which fp32 convolutions run on tensor cores (TF32)."""
WIDER = (0.04, 0.12)
"""On top of other intervals, below and above: the libraries' own code differs. 21 of the 22 measured runs of
docs/reference/other-models.md are inside."""
_D2 = regex(
    r"(?:e2e_)?(faster_rcnn|mask_rcnn|cascade_mask_rcnn|retinanet|rpn)"
    r"_(R|X)_?(50|101)(?:_32x8d)?(?:[-_](FPN|C4|DC5))?(?:_\dx)?"
)
"""Names of detectron2's and maskrcnn_benchmark's configurations, and those of detectron2's table of results."""
_D2_FILE = regex(r"(?:detectron2:)?(?:configs/)?(?:COCO-\w+|Misc)/(\w+)\.ya?ml")
_MMDET = regex(
    r"(?:.*/)?(faster|mask|retinanet)(?:[-_]rcnn)?_([rx])(18|50|101)([-_]caffe)?(?:[-_](32|64)x4d)?_fpn(?:_fp16)?"
    r"(?:_(?:amp-)?\dx)?(?:_coco)?(?:\.py)?"
)
_TORCHVISION = regex(r"torchvision:(fasterrcnn|maskrcnn|retinanet)_resnet50_fpn$")


class Detector(OwnStep, frozen=True):
    """A detector of one of these libraries, re-implemented."""

    kind: ClassVar[str] = "detectors"
    wider: ClassVar[tuple[float, float]] = WIDER
    warm_up: ClassVar[bool] = True
    image: int
    """Pixels of the shorter side."""
    winograd: bool

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return cls.target_of(asked.known_as) is not None

    @classmethod
    def target_of(cls, name: str) -> str | None:
        known = name.startswith(HOMES) or any(one.fullmatch(name) for one in (_TORCHVISION, _D2_FILE))
        return name if known else None

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        config = config_of(asked.known_as)
        if config is None:
            return Unknown(
                f"{asked.known_as} is not supported: supported are Faster R-CNN, Mask R-CNN, RetinaNet and RPN with a "
                "pyramid, and detectron2's C4 and DC5 bodies and cascades",
                Cause.model_unknown,
            )
        other = sorted({*(asked.job.model.kwargs or {})} - WITHOUT_EFFECT)
        if other:
            return Unknown(
                f"the law of {asked.known_as} holds without {', '.join(other)}", Cause.no_law, ("model.kwargs",)
            )
        if (objects := asked.job.train.target_len or 0) > OBJECTS:
            return Unknown(
                f"the law of {asked.known_as} holds up to {OBJECTS} objects in an image, and there are {objects:,}",
                Cause.no_law,
                (OBJECTS_FIELD,),
            )
        setup = begin(asked, adapts=False, freezes=False)
        if isinstance(setup, Unknown):
            return setup
        train, gpu = asked.job.train, asked.gpu
        old = gpu is not None and gpu.compute_capability < TENSOR_CORES and train.precision == "fp32"
        image = train.image_size or IMAGE
        lengths = {"b": train.batch_size or 1, "i": image}
        model = cls("detectors", config, "detection", image, old)
        return Resolved(model, asked.name, "detection", {}, lengths, replace(without_mask(setup), winograd=old))

    @property
    def filed(self) -> str:
        return f"detector-{digest(self.config)}"

    @property
    def extra(self) -> str:
        return f"image={self.image}{' winograd' if self.winograd else ''}"

    @property
    def convolutional(self) -> bool:
        return True

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        return objects_of_data(job)

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        yield f"{resolved.name} is estimated with {REIMPLEMENTED}"
        if job.train.target_len is None:
            yield f"assumed: at most {OBJECTS} objects in an image, as in COCO; state {OBJECTS_FIELD}"


def config_of(target: str) -> dict[str, Any] | None:
    """The tracer's description of a model by its name in a library; None for one that is not re-implemented."""
    file = _D2_FILE.fullmatch(target)
    home, _, name = target.partition(":") if file is None else ("detectron2", "", file[1])
    if home == "torchvision":  # frozen normalisation, where pretrained weights are taken (detection/faster_rcnn.py)
        found = _TORCHVISION.fullmatch(target)
        head = found[1].removesuffix("rcnn") if found is not None else ""
        masks = {"masks": "each"} if head == "mask" else {}
        return {"head": head, "depth": 50, "norm": "frozen", "objects": OBJECTS, **masks} if head else None
    return _of_mmdet(name) if home == "mmdet" else _of_detectron2(name)


def _of_mmdet(name: str) -> dict[str, Any] | None:
    found = _MMDET.fullmatch(name)
    if found is None:
        return None
    caffe = found[4] is not None
    config: dict[str, Any] = {
        "head": found[1],
        "depth": int(found[3]),
        "objects": OBJECTS,
        "norm": "eval",
        "norm_trains": not caffe,
        "stride_first": caffe,
    }
    if found[1] == "mask":
        config["masks"] = "gathered"
    return {**config, "groups": int(found[5]), "group_width": 4} if found[5] else config


def _of_detectron2(name: str) -> dict[str, Any] | None:
    """RESNETS.STRIDE_IN_1X1 but for ResNeXt, whose groups are 32 of 8."""
    found = _D2.fullmatch(name)
    if found is None:
        return None
    head, body = found[1].removesuffix("_mask_rcnn").removesuffix("_rcnn"), (found[4] or "").lower()
    pyramid = body == "fpn" or (not body and head == "retinanet")
    if not pyramid and (not body or head not in ("faster", "mask", "rpn")):
        return None
    wide = found[2] == "X"
    config: dict[str, Any] = {
        "head": head,
        "depth": int(found[3]),
        "objects": OBJECTS,
        "norm": "frozen",
        "stride_first": not wide,
    }
    if wide:
        config |= {"groups": 32, "group_width": 8}
    return config if pyramid else {**config, "body": body}
