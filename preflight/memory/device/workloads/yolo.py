"""YOLOv5, YOLOv8 and YOLO11 of Ultralytics: stand-ins of the models and of their training step (tracer/yolo.py).

Known are detection, segmentation, pose and classification in five sizes, as the package `ultralytics` has them
("ultralytics:yolov8n-seg"), and YOLOv5 as the repository ultralytics/yolov5 trains it ("yolov5:yolov5s"). Two things
that the data decide: how many classes there are (`model.kwargs` nc, else COCO's), and how many boxes the fullest image
of a batch has (`train.target_len`). Where they are not stated, the interval holds what they may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from preflight.memory.device.workloads.denoisers import Companion
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "yolo"
HOMES = ("ultralytics:", "yolov5:")
GRAIN = 32
"""Pixels that sides are multiples of: the largest stride (utils/checks.py, check_imgsz rounds up to it)."""
IMAGE, IMAGE_OF_CLASSIFIERS = 640, 224
"""imgsz of cfg/default.yaml; what the package's classifiers are trained at."""
CLASSES = {"detect": 80, "segment": 80, "pose": 1, "classify": 1000}
"""Of the data sets that the published weights are from: COCO, its persons, ImageNet."""
BOXES = 29
"""A mosaic of four images with COCO's mean of boxes: 860,001 boxes in 118,287 images of train2017."""
FEWEST, MOST = 1, 372
"""A mosaic of four images with COCO's most, 93 each; one box."""
WORKSPACE = 24 * 2**20 - 128 * 2**10
"""What ":4096:8" (32 MiB) is more than cuBLAS' own :4096:2:16:8. `deterministic`, which is the default, sets it
(utils/torch_utils.py, init_seeds)."""
STAND_IN = "a stand-in of the same architecture in plain torch"
_TASKS = {"": "detect", "seg": "segment", "pose": "pose", "cls": "classify"}
_NAME = re.compile(r"(?:.*/)?yolo(v5|v8|11|v11)([nsmlx])(u?)(?:-(seg|pose|cls))?(?:\.pt|\.yaml|\.yml)?")
_FIRST = {"n": 64, "s": 128, "m": 192, "l": 256, "x": 320}
_FIRST_11 = {"n": 64, "s": 128, "m": 256, "l": 256, "x": 384}
"""Channels of the map at stride 8, which the towers of classes have where that is more (nn/modules/head.py, Detect)."""
MOST_CLASSES = 100
"""Above these, more classes do not widen the towers."""


def spelled(name: str) -> str | None:
    """The target of a model by a name of its own: "yolov8n.pt", "yolo11x-seg"; None for any other."""
    if name.startswith(HOMES):
        return name
    return f"ultralytics:{name.rpartition('/')[2]}" if _NAME.fullmatch(name) else None


def knows(target: str) -> bool:
    """Whether this names a model of Ultralytics."""
    return target.startswith(HOMES)


def config_of(target: str, classes: int | None = None) -> dict[str, Any] | None:
    """The tracer's description of a model by its name; None for one that has no stand-in."""
    home, _, name = target.partition(":")
    found = _NAME.fullmatch(name)
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


def resolve(job: Job, name: str, target: str, kwargs: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What a model's law is looked up by."""
    from preflight.memory.device.resolve import Resolved, setup_of

    train = job.train
    stated = (job.model.kwargs or {}).get("nc", kwargs.get("nc"))
    if stated is not None and (not isinstance(stated, int) or stated < 1):
        return Unknown(f"model.kwargs nc = {stated!r} is no number of classes", Cause.invalid)
    config = config_of(target, stated)
    if config is None:
        return Unknown(f"{target} has no stand-in: known are YOLOv5, YOLOv8 and YOLO11 in sizes n, s, m, l and x, with "
                       "-seg, -pose and -cls for the last two", Cause.model_unknown)  # fmt: skip
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.gradient_checkpointing or train.frozen or train.peft.method not in (None, "none"):
        return Unknown(f"{target} has no law with checkpoints, frozen layers or adapters", Cause.not_modelled)
    setup = setup_of(job, None, {}, gpu)
    if isinstance(setup, Unknown):
        return setup
    setup = {**setup, "attention": "sdpa", "mask": False}
    if train.precision == "fp16-mixed":
        setup["autocast"] = "fp16"  # softmaxes are written out, and CUDA widens fp16 within them
    task = config["task"]
    image = train.image_size or (IMAGE_OF_CLASSIFIERS if task == "classify" else IMAGE)
    boxes = 0 if task == "classify" else train.target_len or BOXES
    lengths = {"b": train.batch_size, "k": -(-image // GRAIN), "o": boxes, "V": config["vocab_size"]}
    model = {"kind": KIND, "architecture": KIND, "config": config, "task": task, "filed": _filed(config),
             "extra": f"classifier={config.get('classifier', '-')}"}  # fmt: skip
    return Resolved(None, task, {}, lengths, {}, setup, model, name)


def _filed(config: Mapping[str, Any]) -> str:
    """The name of a model's law file."""
    kind = "anchors" if config.get("anchors") else config["task"]
    return f"yolo{config['version']}{config['scale']}-{kind}"


def with_possible(ready: Ready, gpu: Gpu | None) -> Ready:
    """With what the trainer holds beside the step, and in `others` what the data may make of the job."""
    from preflight.memory.device.prepare import prepare

    job, resolved = ready.job, ready.resolved
    held = [Companion(WORKSPACE, "temporary", "cuBLAS' workspace")] * 2
    if "ema" not in job.train.copies.model_fields_set:
        weights = sum(round(n * each) for n, each, _ in ready.parameters)
        held.append(Companion(weights + ready.buffers, "weights", "the averaged copy"))
    ready = replace(ready, rank=replace(ready.rank, held=(*ready.rank.held, *held)))
    notes = [f"{resolved.name} is reckoned as {STAND_IN}"]
    open_fields = _open(job, resolved)
    if open_fields is None:
        return replace(ready, notes=(*ready.notes, *notes))
    notes += [open_fields]
    possible = []
    for boxes, classes in ((FEWEST, 1), (MOST, resolved.lengths["V"])):
        changed = _with(job, boxes, classes)
        found = prepare(changed, gpu)
        if not isinstance(found, Unknown):
            possible.append(found)
    return replace(ready, others=(*ready.others, *possible), notes=(*ready.notes, *notes))


def _open(job: Job, resolved: Resolved) -> str | None:
    """What the data decide and nothing states; None where all is stated."""
    said = {
        f"{resolved.lengths['V']} classes (state model.kwargs nc)": "nc" in (job.model.kwargs or {}),
        f"{resolved.lengths['o']} boxes in the fullest image of a batch (state train.target_len)":
            job.train.target_len is not None,
    }  # fmt: skip
    if resolved.task == "classify" or all(said.values()):
        return None
    return f"taken: {', '.join(text for text, known in said.items() if not known)}; the interval holds fewer and more"


def _with(job: Job, boxes: int, classes: int) -> Job:
    kwargs = {"nc": classes, **(job.model.kwargs or {})}
    found = job.train.target_len if job.train.target_len is not None else boxes
    return job.model_copy(update={
        "model": job.model.model_copy(update={"kwargs": kwargs}),
        "train": job.train.model_copy(update={"target_len": found}),
    })  # fmt: skip
