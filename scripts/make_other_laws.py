"""Make the shipped laws of denoisers, speech models and detectors: `python scripts/make_other_laws.py [WORD ...]`.

Needs torch, diffusers, transformers and peft. A law is a function of the batch and of the image's side or the sound's
length (and of the rank of adapters), proved event by event by a trace that it has not seen
(preflight.memory.device.fit.few_traces). Each model is a file of its own, compressed. Those that are there are kept;
words choose those whose name they occur in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from law_files import make_all

from preflight.machines.gpus import find_gpu
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import pipelines, speech
from preflight.memory.device.workloads.denoisers import Denoiser
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

LIBRARIES = ("torch", "transformers", "diffusers", "peft")
MIXED = {"train.precision": "bf16-mixed"}
LORA = {**MIXED, "train.peft.method": "lora"}
CONTROLNET = {**MIXED, "train.peft.method": pipelines.CONTROLNET}
STORED = {"train.gradient_checkpointing": False}
CHECKPOINTED = {"train.gradient_checkpointing": True}
SETUPS: Mapping[str, Mapping[str, object]] = {
    "lora-checkpointed": {**LORA, **CHECKPOINTED},
    "lora": {**LORA, **STORED},
    "lora-wide-checkpointed": {**LORA, **CHECKPOINTED, "train.weights_dtype": "fp32"},
    "controlnet-checkpointed": {**CONTROLNET, **CHECKPOINTED},
    "controlnet": {**CONTROLNET, **STORED},
    "mixed-checkpointed": {**MIXED, **CHECKPOINTED},
    "mixed": {**MIXED, **STORED},
    "fp32-checkpointed": {"train.precision": "fp32", **CHECKPOINTED},
    "fp32": {"train.precision": "fp32", **STORED},
    "bf16-checkpointed": {"train.precision": "bf16", **CHECKPOINTED},
}
ADAPTED = ("lora-checkpointed", "lora")
CONTROLLED = ("controlnet-checkpointed", "controlnet")
WHOLE = (*ADAPTED, *CONTROLLED, "mixed-checkpointed", "mixed", "fp32", "fp32-checkpointed")
DENOISERS: Mapping[str, Sequence[str]] = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": WHOLE,
    "stabilityai/stable-diffusion-xl-base-1.0": (
        "lora-checkpointed",
        "mixed-checkpointed",
        "lora",
        "bf16-checkpointed",
        "controlnet-checkpointed",
        "lora-wide-checkpointed",
    ),
    "black-forest-labs/FLUX.1-dev": ("lora-checkpointed",),
    "stabilityai/stable-diffusion-3-medium-diffusers": ("lora-checkpointed", "mixed-checkpointed"),
    "stabilityai/stable-diffusion-2-1": ("lora-checkpointed", "mixed-checkpointed", "lora", "mixed"),
}
SPEECH = (
    "facebook/wav2vec2-base",
    "facebook/wav2vec2-xls-r-300m",
    "facebook/wav2vec2-large-960h",
    "facebook/hubert-large-ll60k",
)
SPEECH_SETUPS = ("mixed", "mixed-checkpointed", "fp32", "fp32-checkpointed")
DETECTORS = """
    detectron2:faster_rcnn_R50-FPN mmdet:faster_rcnn_r50_fpn_1x detectron2:mask_rcnn_R50-FPN mmdet:mask_rcnn_r50_fpn_1x
    detectron2:retinanet_R50 mmdet:retinanet_r50_fpn_1x detectron2:faster_rcnn_R101-FPN mmdet:faster_rcnn_r101_fpn_1x
    detectron2:mask_rcnn_R101-FPN mmdet:mask_rcnn_r101_fpn_1x detectron2:retinanet_R101 mmdet:retinanet_r101_fpn_1x
    detectron2:rpn_R50-FPN mmdet:retinanet_r18_fpn_1x detectron2:faster_rcnn_X101-FPN detectron2:mask_rcnn_X101-FPN
    mmdet:faster_rcnn_r50_caffe_fpn_1x mmdet:faster_rcnn_x101_32x4d_fpn_1x mmdet:faster_rcnn_x101_64x4d_fpn_1x
    mmdet:retinanet_x101_64x4d_fpn_1x mmdet:mask_rcnn_x101_32x4d_fpn_1x mmdet:mask_rcnn_x101_64x4d_fpn_1x
    detectron2:faster_rcnn_R50-C4 detectron2:faster_rcnn_R50-DC5 detectron2:faster_rcnn_R101-C4 detectron2:rpn_R50-C4
    detectron2:faster_rcnn_R101-DC5 detectron2:mask_rcnn_R50-C4 detectron2:mask_rcnn_R50-DC5
    detectron2:cascade_mask_rcnn_R50-FPN
"""
BEFORE_TF32 = "V100-16GB"
YOLO = [f"ultralytics:{name}{scale}" for name in ("yolov8", "yolo11") for scale in "nsmlx"]
YOLO += [f"{home}:yolov5{scale}" for home in ("ultralytics", "yolov5") for scale in "sml"]
YOLO_CLASSES = 1
"""Of another law of the smallest models, whose towers are as wide as they have classes (workloads/yolo.py)."""
VAE_DTYPES = ("bf16", "fp32")
GENERATING = (
    "lora-checkpointed",
    "controlnet-checkpointed",
    "mixed-checkpointed",
    "fp32-checkpointed",
    "bf16-checkpointed",
)
"""One of each that differ without gradients."""


def asked() -> list[tuple[str, Resolved, str]]:
    """(name, what the law is looked up by, kind) of every law, the most wanted first."""
    found: list[tuple[str, Resolved, str]] = []
    for name, setups in DENOISERS.items():
        for setup in setups:
            job = build({"model.name": name, "train.batch_size": 1, **SETUPS[setup]})
            resolved = resolve(job)
            if isinstance(resolved, Unknown):
                raise SystemExit(f"{name}: {resolved.words}")
            found.append((f"{name} {setup}", resolved, "train"))
            if setup in GENERATING:
                found.append((f"generate-{name} {setup}", _denoiser(resolved).generator(resolved, 1), "eval"))
    for name in SPEECH:
        for setup in SPEECH_SETUPS:
            for task in ("other", "sequence-classification"):
                for frozen in ([speech.FROZEN], []):
                    stated = {"train.batch_size": 1, "train.seq_len": 16_000, "task": task, "train.frozen": frozen}
                    resolved = resolve(build({"model.name": name, **stated, **SETUPS[setup]}))
                    assert not isinstance(resolved, Unknown), resolved.words
                    what = f"{name} {setup} {task}{' frozen' if frozen else ''}"
                    found.append((what, resolved, "train"))
    some = found[0][1]
    for name in DETECTORS.split():
        job = build({"model.target": name, "train.batch_size": 1, "train.precision": "fp32", **STORED})
        resolved = resolve(job, find_gpu(BEFORE_TF32))
        assert not isinstance(resolved, Unknown), resolved.words
        found.append((name, resolved, "train"))
    found += list(_yolo())
    for name, config in pipelines.data()["vaes"].items():
        for dtype in VAE_DTYPES:
            one = pipelines.Companion(0, "weights", name, dtype, config)
            found.append((f"vae-{name} {dtype}", _denoiser(some).encoder(some, one), "eval"))
            for autocast in (False, True):
                what = f"decode-{name} {dtype}{' autocast' if autocast else ''}"
                found.append((what, _denoiser(some).decoder(some, one, autocast), "eval"))
    return found


def _denoiser(resolved: Resolved) -> Denoiser:
    assert isinstance(resolved.workload, Denoiser)
    return resolved.workload


def _yolo() -> Iterator[tuple[str, Resolved, str]]:
    """Mixed steps of all models first, then validation, then fp32."""
    for precision, kind in (("fp16-mixed", "train"), ("fp16-mixed", "eval"), ("fp32", "train"), ("fp32", "eval")):
        for name in YOLO:
            for classes in (None, YOLO_CLASSES) if name[-1] == "n" else (None,):
                stated: dict[str, object] = {"model.kwargs": {"nc": classes}} if classes else {}
                job = build({"model.target": name, "train.batch_size": 1, "train.precision": precision, **STORED,
                             **stated})  # fmt: skip
                resolved = resolve(job)
                assert not isinstance(resolved, Unknown), resolved.words
                yield f"{name} {precision} {kind} {classes or ''}", resolved, kind


if __name__ == "__main__":
    raise SystemExit(make_all(str(__doc__), asked(), LIBRARIES))
