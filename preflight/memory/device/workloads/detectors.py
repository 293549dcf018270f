"""Detectors of detectron2, mmdetection and torchvision: stand-ins of the same papers (tracer/detectors.py).

Known are Faster R-CNN, Mask R-CNN, RetinaNet and RPN on a ResNet or ResNeXt with a feature pyramid; of detectron2 also
its C4 and DC5 bodies and cascades. What else those libraries have is refused by name: keypoint and panoptic heads too,
whose stand-ins came out a fifth below what the zoo measured, for no reason that was found.
"""

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

KIND = "detectors"
HOMES = ("detectron2:", "mmdet:", "maskrcnn_benchmark:")
IMAGE = 800
"""Pixels of the shorter side, 1,333 of the longer one at most (all three libraries' configs)."""
OBJECTS = 93
"""The most that an image of COCO's train2017 holds: overlaps with all anchors are worked out for each."""
STAND_IN = "a stand-in of the same architecture in plain torch, at COCO's largest images"
TENSOR_CORES = (8, 0)
"""Compute capability from which fp32 convolutions run on tensor cores (TF32)."""
WIDER = (0.04, 0.12)
"""On top of other intervals, below and above: a stand-in's. With it 21 of the 22 measured runs of docs/other-models.md
are inside."""
_D2 = re.compile(
    r"(?:e2e_)?(faster_rcnn|mask_rcnn|cascade_mask_rcnn|retinanet|rpn)"
    r"_(R|X)_?(50|101)(?:_32x8d)?(?:[-_](FPN|C4|DC5))?(?:_\dx)?"
)
"""Names of detectron2's and maskrcnn_benchmark's configurations, and those of detectron2's table of results."""
_D2_FILE = re.compile(r"(?:detectron2:)?(?:configs/)?(?:COCO-\w+|Misc)/(\w+)\.ya?ml")
_MMDET = re.compile(
    r"(?:.*/)?(faster|mask|retinanet)(?:[-_]rcnn)?_([rx])(18|50|101)([-_]caffe)?(?:[-_](32|64)x4d)?_fpn(?:_fp16)?"
    r"(?:_(?:amp-)?\dx)?(?:_coco)?(?:\.py)?"
)
_TORCHVISION = re.compile(r"torchvision:(fasterrcnn|maskrcnn|retinanet)_resnet50_fpn$")


def knows(target: str) -> bool:
    """Whether this names a model of a library of detectors."""
    return target.startswith(HOMES) or any(one.fullmatch(target) for one in (_TORCHVISION, _D2_FILE))


def config_of(target: str) -> dict[str, Any] | None:
    """The tracer's description of a model by its name in a library; None for one that has no stand-in."""
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
    config: dict[str, Any] = {"head": found[1], "depth": int(found[3]), "objects": OBJECTS, "norm": "eval",
                              "norm_trains": not caffe, "stride_first": caffe}  # fmt: skip
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
    config: dict[str, Any] = {"head": head, "depth": int(found[3]), "objects": OBJECTS, "norm": "frozen",
                              "stride_first": not wide}  # fmt: skip
    if wide:
        config |= {"groups": 32, "group_width": 8}
    return config if pyramid else {**config, "body": body}


def resolve(job: Job, name: str, target: str, _: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What a detector's law is looked up by."""
    from preflight.memory.device.resolve import Resolved, setup_of

    config = config_of(target)
    if config is None:
        return Unknown(
            f"{target} has no stand-in: known are Faster R-CNN, Mask R-CNN, RetinaNet and RPN with a pyramid, and "
            "detectron2's C4 and DC5 bodies and cascades",
            Cause.model_unknown,
        )
    if job.train.batch_size is None:
        return missing("train.batch_size")
    if job.train.gradient_checkpointing or job.train.frozen or job.train.peft.method not in (None, "none"):
        return Unknown(f"{target} has no law with checkpoints, other frozen parts or adapters", Cause.not_modelled)
    setup = setup_of(job, None, {}, gpu)
    if isinstance(setup, Unknown):
        return setup
    setup = {**setup, "attention": "sdpa", "mask": False}
    old = gpu is not None and gpu.compute_capability < TENSOR_CORES and job.train.precision == "fp32"
    if old:
        setup["winograd"] = True
    image = job.train.image_size or IMAGE
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:10]
    model = {"kind": KIND, "architecture": KIND, "config": config, "task": "detection", "filed": f"detector-{digest}",
             "extra": f"image={image}{' winograd' if old else ''}"}  # fmt: skip
    return Resolved(None, "detection", {}, {"b": job.train.batch_size, "i": image}, {}, setup, model, name)
