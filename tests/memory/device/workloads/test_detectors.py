"""Stand-ins of detectors: which models have one, and that a law is its stand-in's trace."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import estimate as estimated
from shipped import laws_for, resolve

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.workloads import detectors
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

JOB: dict[str, object] = {"model.target": "detectron2:faster_rcnn_R50-FPN", "train.batch_size": 2, "task": "other",
                          "train.optimizer": "sgd-momentum"}  # fmt: skip
OLD = "V100-16GB"


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("detectron2:faster_rcnn_R50-FPN", {"head": "faster", "depth": 50, "norm": "frozen", "stride_first": True}),
        ("detectron2:mask_rcnn_X101-FPN", {"head": "mask", "depth": 101, "groups": 32, "group_width": 8}),
        ("detectron2:retinanet_R101", {"head": "retinanet", "depth": 101}),
        ("mmdet:faster_rcnn_r50_caffe_fpn_1x", {"norm": "eval", "norm_trains": False, "stride_first": True}),
        ("mmdet:retinanet_x101_64x4d_fpn_1x", {"head": "retinanet", "groups": 64, "group_width": 4}),
        ("torchvision:maskrcnn_resnet50_fpn", {"head": "mask", "depth": 50, "norm": "frozen", "masks": "each"}),
        ("mmdet:mask_rcnn_r50_fpn_1x", {"head": "mask", "masks": "gathered"}),
        ("detectron2:faster_rcnn_R50-C4", {"head": "faster", "body": "c4"}),
        ("detectron2:mask_rcnn_R50-DC5", {"head": "mask", "body": "dc5", "masks": None}),
        ("detectron2:cascade_mask_rcnn_R50-FPN", {"head": "cascade", "body": None}),
    ],
)
def test_names_say_what_is_built(target: str, wanted: dict[str, object]) -> None:
    config = detectors.config_of(target)
    assert config is not None
    assert {key: config.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("spelled", "same"),
    [
        ("detectron2:mask_rcnn_R_50_FPN_1x", "detectron2:mask_rcnn_R50-FPN"),
        ("detectron2:faster_rcnn_R_50_FPN_3x", "detectron2:faster_rcnn_R50-FPN"),
        ("detectron2:faster_rcnn_X_101_32x8d_FPN_3x", "detectron2:faster_rcnn_X101-FPN"),
        ("detectron2:retinanet_R_101_FPN_3x", "detectron2:retinanet_R101"),
        ("COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml", "detectron2:mask_rcnn_R50-FPN"),
        ("configs/COCO-Detection/rpn_R_50_C4_1x.yaml", "detectron2:rpn_R50-C4"),
        ("Misc/cascade_mask_rcnn_R_50_FPN_1x.yaml", "detectron2:cascade_mask_rcnn_R50-FPN"),
        ("maskrcnn_benchmark:e2e_faster_rcnn_R_50_FPN_1x", "detectron2:faster_rcnn_R50-FPN"),
        ("mmdet:mask-rcnn_r50_fpn_1x_coco", "mmdet:mask_rcnn_r50_fpn_1x"),
        ("mmdet:configs/faster_rcnn/faster-rcnn_x101-64x4d_fpn_1x_coco.py", "mmdet:faster_rcnn_x101_64x4d_fpn_1x"),
        ("mmdet:retinanet_r50_fpn_amp-1x_coco", "mmdet:retinanet_r50_fpn_fp16_1x"),
    ],
)
def test_spellings_of_the_zoos_mean_one_model(spelled: str, same: str) -> None:
    assert detectors.Detector.target_of(spelled)
    assert detectors.config_of(spelled) == detectors.config_of(same) is not None


@pytest.mark.parametrize(
    "name",
    ["detectron2:faster_rcnn_R50", "detectron2:cascade_mask_rcnn_R50-C4", "detectron2:retinanet_R50-C4",
     "detectron2:panoptic_fpn_R50", "detectron2:keypoint_R50-FPN", "mmdet:detr_r50_8xb2-150e",
     "detectron2:mask_rcnn_R_50_FPN_3x_gn", "mmdet:cascade-rcnn_r50_fpn_1x_coco"],
)  # fmt: skip
def test_what_has_no_stand_in_is_refused(name: str) -> None:
    found = resolve(build({**JOB, "model.target": name}))
    assert isinstance(found, Unknown)
    assert "is not supported" in found.words


def test_the_estimate_says_that_it_is_a_stand_in() -> None:
    found = estimated(build(JOB), find_gpu(OLD))
    assert isinstance(found, DeviceEstimate), found
    assert any("re-implementation" in note for note in found.notes)
    below, above = detectors.WIDER
    assert found.allocated.low < (1 - below) * found.allocated.expected
    assert found.allocated.high > (1 + above) * found.allocated.expected


def _peak(reply: dict[str, Any]) -> int:
    live = peak = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize(
    "target",
    ["detectron2:faster_rcnn_R50-FPN", pytest.param("mmdet:mask_rcnn_r50_fpn_1x", marks=pytest.mark.slow),
     pytest.param("detectron2:retinanet_R101", marks=pytest.mark.slow),
     pytest.param("detectron2:mask_rcnn_R50-C4", marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_law_is_the_trace(target: str) -> None:
    pytest.importorskip("torch")
    from preflight.tracer import steps

    asked = resolve(build({**JOB, "model.target": target, "train.batch_size": 4}), find_gpu(OLD))
    assert isinstance(asked, Resolved)
    law = laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    dims = asked.all_dims
    reply = steps.trace({**asked.request("train").at(dims), "warm_up": True})
    assert law.plain.peak(dims).bytes == _peak(reply)


def test_true_masks_on_the_device_are_of_the_images_size() -> None:
    # mmdetection gathers one for each positive box in 8 and in 32 bits, one image after the other
    found = {}
    for target in ("mmdet:mask_rcnn_r50_fpn_1x", "mmdet:faster_rcnn_r50_fpn_1x"):
        law = laws_for(_asked(target), "train")
        assert not isinstance(law, Unknown), law
        found[target] = law.plain.peak(_asked(target).all_dims).bytes
    masks, boxes = found.values()
    assert masks - boxes > 0.4 * 128 * 5 * 800 * 1344


def _asked(target: str) -> Resolved:
    asked = resolve(build({**JOB, "model.target": target}), find_gpu(OLD))
    assert isinstance(asked, Resolved)
    return asked


def test_parameters_are_those_of_the_papers_model() -> None:
    # 41.7 M: mmdetection's and detectron2's Faster R-CNN with a ResNet-50 pyramid on COCO's 80 classes.
    asked = resolve(build(JOB), find_gpu(OLD))
    assert isinstance(asked, Resolved)
    law = laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    count = sum(n for n, _, _ in law.made.parameters.sizes({}, asked.all_dims))
    assert round(count / 1e6, 1) == 41.7


def test_a_configurations_name_is_enough() -> None:
    by_name, by_target = (
        resolve(build({"train.batch_size": 2, "train.precision": "fp32", field: "COCO-Detection/rpn_R_50_C4_1x.yaml"}))
        for field in ("model.name", "model.target")
    )
    assert isinstance(by_name, Resolved)
    assert by_name == by_target
