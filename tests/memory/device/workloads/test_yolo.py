"""YOLO: parameters are the published ones, laws are their traces, and what nothing states is open."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import estimate, laws_for, resolve

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import target_of
from preflight.memory.device.workloads import yolo
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

JOB: dict[str, object] = {
    "model.target": "ultralytics:yolov8n", "train.batch_size": 4, "train.image_size": 320, "task": "other",
    "train.precision": "fp16-mixed", "train.gradient_checkpointing": False, "train.optimizer": "sgd-momentum",
}  # fmt: skip
STATED: dict[str, object] = {"model__kwargs": {"nc": 7}, "train__target_len": 12}
PUBLISHED = {
    # ultralytics/cfg/models/{v8,11}/*.yaml, the comments beside the scales; ultralytics/yolov5, `train.py` of v7.0
    "ultralytics:yolov8n": 3_157_200, "ultralytics:yolov8s": 11_166_560, "ultralytics:yolov8m": 25_902_640,
    "ultralytics:yolov8l": 43_691_520, "ultralytics:yolov8x": 68_229_648, "ultralytics:yolo11n": 2_624_080,
    "ultralytics:yolo11s": 9_458_752, "ultralytics:yolo11m": 20_114_688, "ultralytics:yolo11l": 25_372_160,
    "ultralytics:yolo11x": 56_966_176, "ultralytics:yolo11x-seg": 62_142_656, "ultralytics:yolo11n-seg": 2_876_848,
    "yolov5:yolov5s": 7_235_389, "yolov5:yolov5m": 21_190_557, "yolov5:yolov5l": 46_563_709,
}  # fmt: skip
AT_80_CLASSES = {"ultralytics:yolo11n-cls": 1_633_584, "ultralytics:yolo11x-cls": 28_458_544}


def job(**more: object) -> Job:
    return build({**JOB, **{name.replace("__", "."): value for name, value in more.items()}})


@pytest.mark.parametrize(("target", "published"), [*PUBLISHED.items(), *AT_80_CLASSES.items()])
def test_parameters_are_the_published_ones(target: str, published: int) -> None:
    torch = pytest.importorskip("torch")
    from preflight.tracer.reimplementations import yolo as tracer

    config = yolo.config_of(target, 80)
    made = tracer.build({"config": config}, {}, {"fp32": torch.float32})
    assert sum(p.numel() for p in made.parameters()) == published


@pytest.mark.parametrize(
    ("name", "target"),
    [("yolov8n.pt", "ultralytics:yolov8n.pt"), ("weights/yolo11x-seg.pt", "ultralytics:yolo11x-seg.pt"),
     ("yolov8s.yaml", "ultralytics:yolov8s.yaml"), ("yolov5su", "ultralytics:yolov5su"), ("yolov9c.pt", None),
     ("resnet50.a1_in1k", "timm:resnet50.a1_in1k"), ("gpt2", None)],
)  # fmt: skip
def test_a_name_alone(name: str, target: str | None) -> None:
    assert target_of(name) == target


@pytest.mark.parametrize("target", ["ultralytics:yolov10n", "ultralytics:best", "yolov5:yolov8n", "ultralytics:yolo11q",
                                    "ultralytics:yolov8n6", "yolov5:yolov5s-seg"])  # fmt: skip
def test_what_has_no_stand_in_is_refused(target: str) -> None:
    found = resolve(job(model__target=target))
    assert isinstance(found, Unknown)
    assert "is not supported" in found.words


def test_what_the_data_decide_is_open_until_it_is_stated() -> None:
    gpu = find_gpu("T4")
    loose, fixed = estimate(job(), gpu), estimate(job(**STATED), gpu)
    assert isinstance(loose, DeviceEstimate), loose
    assert isinstance(fixed, DeviceEstimate), fixed
    assert any("boxes in the fullest image" in note and "80 classes" in note for note in loose.notes)
    assert not any("boxes" in note for note in fixed.notes)
    assert loose.reserved.high - loose.reserved.low > fixed.reserved.high - fixed.reserved.low
    fewest = estimate(job(model__kwargs={"nc": 1}, train__target_len=yolo.FEWEST), gpu)
    assert isinstance(fewest, DeviceEstimate)
    assert loose.reserved.low <= fewest.reserved.low


def test_an_averaged_copy_lies_beside_the_model_unless_the_job_says_otherwise() -> None:
    with_copy, without = (estimate(job(**STATED, **extra), find_gpu("T4")) for extra in ({}, {"train__copies__ema": 0}))
    assert isinstance(with_copy, DeviceEstimate)
    assert isinstance(without, DeviceEstimate)
    assert with_copy.breakdown["weights"] > 1.9 * without.breakdown["weights"]


@pytest.mark.parametrize("boxes", [1, 100])
def test_more_boxes_and_larger_images_take_more(boxes: int) -> None:
    small = resolve(job(**STATED))
    assert isinstance(small, Resolved)
    law = laws_for(small, "train")
    assert not isinstance(law, Unknown), law
    dims = {**small.all_dims, "o": boxes}
    peak = law.plain.peak(dims).bytes
    assert law.plain.peak({**dims, "o": 2 * boxes}).bytes >= peak
    assert law.plain.peak({**dims, "k": dims["k"] + 1}).bytes > peak


def test_sides_are_rounded_up_to_the_largest_stride() -> None:
    found = resolve(job(train__image_size=650))
    assert isinstance(found, Resolved)
    assert found.lengths["k"] == 21


def _peak(reply: dict[str, Any]) -> int:
    live = peak = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize(
    ("target", "kind"),
    [pytest.param("ultralytics:yolov8n", "eval"), pytest.param("yolov5:yolov5s", "train", marks=pytest.mark.slow),
     pytest.param("ultralytics:yolov8s", "train", marks=pytest.mark.slow),
     pytest.param("ultralytics:yolo11m", "train", marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_law_is_the_trace(target: str, kind: str) -> None:
    pytest.importorskip("torch")
    from preflight.tracer import steps

    asked = resolve(job(**{**STATED, "model__target": target}))
    assert isinstance(asked, Resolved)
    law = laws_for(asked, kind)
    assert not isinstance(law, Unknown), law
    dims = asked.all_dims
    reply = steps.trace(asked.request(kind).at(dims))
    assert law.plain.peak(dims).bytes == _peak(reply)
