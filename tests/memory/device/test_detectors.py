"""Stand-ins of detectors: which models have one, and that a law is its stand-in's trace."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.job import build
from preflight.machines.gpus import find_gpu
from preflight.memory.device import detectors, laws
from preflight.memory.device.estimate import estimate as estimated
from preflight.memory.device.resolve import Resolved, resolve
from preflight.memory.estimate import DeviceEstimate
from preflight.values import Unknown

JOB: dict[str, object] = {"model.target": "detectron2:faster_rcnn_R50-FPN", "train.batch_size": 2, "task": "other",
                          "train.optimizer": "sgd-momentum"}  # fmt: skip
OLD = "V100-16GB"


@pytest.fixture(autouse=True)
def _shipped_laws_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws.TRACING, "allowed", False)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("detectron2:faster_rcnn_R50-FPN", {"head": "faster", "depth": 50, "norm": "frozen", "stride_first": True}),
        ("detectron2:mask_rcnn_X101-FPN", {"head": "mask", "depth": 101, "groups": 32, "group_width": 8}),
        ("detectron2:retinanet_R101", {"head": "retinanet", "depth": 101}),
        ("mmdet:faster_rcnn_r50_caffe_fpn_1x", {"norm": "eval", "norm_trains": False, "stride_first": True}),
        ("mmdet:retinanet_x101_64x4d_fpn_1x", {"head": "retinanet", "groups": 64, "group_width": 4}),
        ("torchvision:maskrcnn_resnet50_fpn", {"head": "mask", "depth": 50, "norm": "frozen"}),
    ],
)
def test_names_say_what_is_built(target: str, wanted: dict[str, object]) -> None:
    config = detectors.config_of(target)
    assert config is not None
    assert {key: config.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    "name",
    ["detectron2:faster_rcnn_R50-C4", "detectron2:mask_rcnn_R50-DC5", "detectron2:cascade_mask_rcnn_R50-FPN",
     "detectron2:panoptic_fpn_R50", "detectron2:keypoint_R50-FPN", "mmdet:detr_r50_8xb2-150e"],
)  # fmt: skip
def test_what_has_no_stand_in_is_refused(name: str) -> None:
    found = resolve(build({**JOB, "model.target": name}))
    assert isinstance(found, Unknown)
    assert "no stand-in" in found.reason


def test_the_estimate_says_that_it_is_a_stand_in() -> None:
    found = estimated(build(JOB), find_gpu(OLD))
    assert isinstance(found, DeviceEstimate), found
    assert any("stand-in" in note for note in found.notes)
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
     pytest.param("detectron2:retinanet_R101", marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_law_is_the_trace(target: str) -> None:
    pytest.importorskip("torch")
    from preflight.tracer import steps

    asked = resolve(build({**JOB, "model.target": target, "train.batch_size": 4}), find_gpu(OLD))
    assert isinstance(asked, Resolved)
    law = laws.laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    dims = asked.all_dims
    reply = steps.trace({"model": asked.model, "setup": asked.setup, "point": dims, "kind": "train", "warm_up": True})
    assert law.plain.peak(dims).bytes == _peak(reply)


def test_parameters_are_those_of_the_papers_model() -> None:
    # 41.7 M: mmdetection's and detectron2's Faster R-CNN with a ResNet-50 pyramid on COCO's 80 classes.
    asked = resolve(build(JOB), find_gpu(OLD))
    assert isinstance(asked, Resolved)
    law = laws.laws_for(asked, "train")
    assert not isinstance(law, Unknown), law
    count = sum(n for n, _, _ in law.made.parameters.sizes({}, asked.all_dims))
    assert round(count / 1e6, 1) == 41.7
