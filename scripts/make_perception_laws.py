"""Make the shipped laws of segmenters and of embedded texts: `python scripts/make_perception_laws.py [WORD ...]`.

Needs torch, transformers, torchvision and segmentation_models_pytorch. A law is a function of the batch and of the
side or the length, of the number of classes or words, and of the depth of encoders; it is proved event by event by a
trace that it has not seen. Those that are there are kept; words choose those whose name they occur in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from law_files import make_all

from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

PRECISIONS = ("fp32", "bf16-mixed")
SEGFORMERS = ("nvidia/mit-b0", "nvidia/mit-b1", "nvidia/mit-b2", "nvidia/mit-b3", "nvidia/mit-b4", "nvidia/mit-b5")
DENSE: Sequence[tuple[str, Mapping[str, object]]] = (
    ("torchvision:deeplabv3_resnet50", {}), ("torchvision:deeplabv3_resnet101", {}), ("torchvision:fcn_resnet50", {}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet34", "classes": 2}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet34"}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet50", "classes": 2}),
    ("segmentation_models_pytorch:DeepLabV3Plus", {"encoder_name": "resnet50", "classes": 2}),
)  # fmt: skip
ENCODERS = ("sentence-transformers/all-MiniLM-L12-v2", "microsoft/mpnet-base", "bert-base-uncased", "roberta-base",
            "bert-large-uncased", "xlm-roberta-large")  # fmt: skip
LIBRARIES = ("torch", "transformers", "torchvision", "segmentation_models_pytorch")


def asked() -> Iterator[tuple[str, Resolved, str]]:
    """(name, what the law is looked up by, kind of step), the most wanted first."""
    texts: Sequence[tuple[str, Mapping[str, object]]] = [("two", {}), ("three", {"texts": 3})]
    for how, kwargs in texts:
        for precision in PRECISIONS:
            for name in ENCODERS:
                stated = {"model.name": name, "model.kwargs": kwargs, "task": "contrastive", "train.seq_len": 128}
                yield f"{name} {precision} {how}", _resolved(precision, stated), "train"
    for precision in PRECISIONS:
        for name in SEGFORMERS:
            yield f"{name} {precision}", _resolved(precision, {"model.name": name, "train.image_size": 512}), "train"
        for name, kwargs in DENSE:
            stated = {"model.target": name, "model.kwargs": kwargs, "train.image_size": 512}
            yield f"{name} {kwargs} {precision}", _resolved(precision, stated), "train"


def _resolved(precision: str, stated: Mapping[str, object]) -> Resolved:
    found = resolve(build({"train.batch_size": 2, "train.precision": precision, **stated}))
    if isinstance(found, Unknown):
        raise SystemExit(f"{stated}: {found.words}")
    return found


if __name__ == "__main__":
    raise SystemExit(make_all(str(__doc__), asked(), LIBRARIES))
