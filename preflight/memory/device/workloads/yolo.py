"""YOLOv5, YOLOv8 and YOLO11 of Ultralytics, re-implemented with their training step (tracer/reimplementations/yolo.py).

Known are detection, segmentation, pose and classification in five sizes, as the package `ultralytics` has them
("ultralytics:yolov8n-seg"), and YOLOv5 as the repository ultralytics/yolov5 trains it ("yolov5:yolov5s"). Two things
that the data decide: how many classes there are (`model.kwargs` nc, else COCO's), and how many boxes the fullest image
of a batch has (`train.target_len`). Where they are not stated, the interval covers what they may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.workload import Resolved, Storage, WorkloadRequest
from preflight.memory.device.workloads.detectors import WIDER as DETECTORS_WIDER
from preflight.memory.device.workloads.own_step import OwnStep, begin, objects_of_data, without_mask
from preflight.vocabulary.job import Job
from preflight.vocabulary.spelling import YOLO_HOMES, YOLO_NAME, yolo_target
from preflight.vocabulary.values import Cause, Unknown

GRAIN = 32
"""Pixels that sides are multiples of: the largest stride (utils/checks.py, check_imgsz rounds up to it)."""
IMAGE, IMAGE_OF_CLASSIFIERS = 640, 224
"""imgsz of cfg/default.yaml, and the size at which the package's classifiers are trained."""
CLASSES = {"detect": 80, "segment": 80, "pose": 1, "classify": 1000}
"""Of the data sets that the published weights are from: COCO, its persons, ImageNet."""
BOXES = 29
"""A mosaic of four images with COCO's mean of boxes: 860,001 boxes in 118,287 images of train2017."""
FEWEST, MOST = 1, 372
"""A mosaic of four images with COCO's most, 93 each; one box."""
WORKSPACE = 24 * 2**20 - 128 * 2**10
"""What ":4096:8" (32 MiB) is more than cuBLAS' own :4096:2:16:8. `deterministic`, which is the default, sets it
(utils/torch_utils.py, init_seeds)."""
REIMPLEMENTED = "our re-implementation of the same architecture in plain torch"
_TASKS = {"": "detect", "seg": "segment", "pose": "pose", "cls": "classify"}
_FIRST = {"n": 64, "s": 128, "m": 192, "l": 256, "x": 320}
_FIRST_11 = {"n": 64, "s": 128, "m": 256, "l": 256, "x": 384}
"""Channels of the map at stride 8, which the towers of classes have where that is more (nn/modules/head.py, Detect)."""
MOST_CLASSES = 100
"""Above these, more classes do not widen the towers."""


class Yolo(OwnStep, frozen=True):
    """A model of Ultralytics, re-implemented."""

    kind: ClassVar[str] = "yolo"
    wider: ClassVar[tuple[float, float]] = DETECTORS_WIDER
    warm_up: ClassVar[bool] = True

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return asked.known_as.startswith(YOLO_HOMES)

    @classmethod
    def target_of(cls, name: str) -> str | None:
        return yolo_target(name)

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        train = asked.job.train
        stated = (asked.job.model.kwargs or {}).get("nc", asked.config.get("nc"))
        if stated is not None and (not isinstance(stated, int) or stated < 1):
            return Unknown(f"model.kwargs nc = {stated!r} is not a number of classes", Cause.invalid)
        config = config_of(asked.known_as, stated)
        if config is None:
            return Unknown(
                f"{asked.known_as} is not supported: supported are YOLOv5, YOLOv8 and YOLO11 in sizes n, s, m, l "
                "and x, with -seg, -pose and -cls for the last two",
                Cause.model_unknown,
            )
        setup = begin(asked, adapts=False, freezes=False)
        if isinstance(setup, Unknown):
            return setup
        setup = without_mask(setup)
        if train.precision == "fp16-mixed":
            setup = replace(setup, autocast="fp16")  # softmaxes are written out, and CUDA widens fp16 within them
        task = config["task"]
        image = train.image_size or (IMAGE_OF_CLASSIFIERS if task == "classify" else IMAGE)
        boxes = 0 if task == "classify" else train.target_len or BOXES
        lengths = {"b": train.batch_size or 1, "k": -(-image // GRAIN), "o": boxes, "V": config["vocab_size"]}
        return Resolved(cls("yolo", config, task), asked.name, task, {}, lengths, setup)

    @property
    def filed(self) -> str:
        kind = "anchors" if self.config.get("anchors") else self.config["task"]
        return f"yolo{self.config['version']}{self.config['scale']}-{kind}"

    @property
    def extra(self) -> str:
        return f"classifier={self.config.get('classifier', '-')}"

    @property
    def convolutional(self) -> bool:
        return True

    def beside(self, job: Job, resolved: Resolved, rows: Sequence[Weight], buffers: int) -> tuple[Storage, ...]:
        """Two workspaces of cuBLAS, and the averaged copy that the trainer holds unless the job says otherwise."""
        workspaces = (Storage(WORKSPACE, "temporary"),) * 2
        if "ema" in job.train.copies.model_fields_set:
            return workspaces
        return (*workspaces, Storage(sum(round(n * each) for n, each, _ in rows) + buffers, "weights"))

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """The jobs that the data may lead to."""
        if _open(job, resolved) is not None:
            yield _with(job, FEWEST, 1)
            yield _with(job, MOST, resolved.lengths["V"])

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        return {} if resolved.task == "classify" else objects_of_data(job)

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        yield f"{resolved.name} is estimated with {REIMPLEMENTED}"
        said = _open(job, resolved)
        if said is not None:
            yield said


def config_of(target: str, classes: int | None = None) -> dict[str, Any] | None:
    """The tracer's description of a model by its name; None for one that is not re-implemented."""
    home, _, name = target.partition(":")
    found = YOLO_NAME.fullmatch(name)
    if found is None:
        return None
    version, scale, task = found[1].lstrip("v"), found[2], _TASKS[found[4] or ""]
    anchors = home == "yolov5"
    if (version == "5" and task in ("pose", "classify")) or (anchors and (version != "5" or task != "detect")):
        return None
    if found[3] and version != "5":
        return None
    if version == "5" and task == "segment":
        return None  # the package has none; the repository's has another head
    count = classes or CLASSES[task]
    config: dict[str, Any] = {"version": version, "scale": scale, "task": task, "vocab_size": count}
    if anchors:
        return {**config, "anchors": True}
    first = (_FIRST_11 if version == "11" else _FIRST)[scale]
    return config if task == "classify" else {**config, "classifier": max(first, min(count, MOST_CLASSES))}


def _open(job: Job, resolved: Resolved) -> str | None:
    """A note about values that depend on the data and are not stated; None if all are stated."""
    if resolved.task == "classify":
        return None
    taken = []
    if "nc" not in (job.model.kwargs or {}):
        taken.append(f"{resolved.lengths['V']} classes (state model.kwargs nc)")
    if job.train.target_len is None:
        taken.append(f"{resolved.lengths['o']} boxes in the fullest image of a batch (state train.target_len)")
    return f"assumed: {', '.join(taken)}; the interval covers fewer and more" if taken else None


def _with(job: Job, boxes: int, classes: int) -> Job:
    kwargs = {"nc": classes, **(job.model.kwargs or {})}
    found = job.train.target_len if job.train.target_len is not None else boxes
    return job.model_copy(
        update={
            "model": job.model.model_copy(update={"kwargs": kwargs}),
            "train": job.train.model_copy(update={"target_len": found}),
        }
    )
