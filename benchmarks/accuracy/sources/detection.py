"""detectron2's and mmdetection's model zoos: COCO, 8 GPUs, 2 images per GPU.

detectron2 02b5c4e (MODEL_ZOO.md; configs/Base-RCNN-FPN.yaml: SGD, INPUT.MIN_SIZE_TRAIN 640 to 800, MAX 1333;
MODEL.BACKBONE.FREEZE_AT 2; utils/events.py: max_memory_allocated / 1024 / 1024) and mmdetection v2/v3
(configs/_base_: Resize (1333, 800), Pad 32, frozen_stages=1, norm_eval). The figure is of the worst image shape of an
epoch, and both divide by 1,024: their "GB" are GiB. Both zoos are of the years before torch 2.0, whose zero_grad kept
gradients and whose SGD went over one parameter after the other. What preflight answers is a stand-in's
(docs/reference/other-models.md); mmdetection says "8 NVIDIA V100" and no size, on which these figures do not hang.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Row

NAME = "detection"


def recognises(row: Row) -> bool:
    return "detectron2" in row["source"] or "mmdetection" in row["source"]


def fields(row: Row) -> Fields:
    library = "detectron2" if "detectron2" in row["source"] else "mmdet"
    found: dict[str, object] = {
        "model.target": f"{library}:{row['model']}",
        "task": "other",
        "train.batch_size": row["batch_size"],
        "train.image_size": 800,  # the largest that a shorter side is resized to
        "train.precision": "fp16-mixed" if "amp" in row["precision"] else "fp32",
        "train.optimizer": "adamw" if row["optimizer"] == "AdamW" else "sgd-momentum",
        "train.optimizer_impl": "for-loop",
        "train.gradient_checkpointing": False,
        "parallel.strategy": "ddp",
        "parallel.gpus_per_node": 8,
        "parallel.ranks_per_node": 8,
        "machine.gpu": "V100-16GB",
        "software.torch": "1.5",
    }
    return found
