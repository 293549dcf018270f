"""Dense prediction: models of torchvision and segmentation_models_pytorch that label every pixel, and torchvision's
models that label video clips.

The loss of a pixel is the cross-entropy of its classes, or binary cross-entropy if there is only one class. The loss of
an auxiliary head counts half (torchvision's references/segmentation/train.py, criterion).
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .building import CannotBuild, Output, freeze, on_meta

HOMES = {"torchvision": "torchvision.models", "segmentation_models_pytorch": "segmentation_models_pytorch"}
IGNORED = 255
AUXILIARY = 0.5


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"home" (of HOMES), "name", "kwargs"}. Raises CannotBuild."""
    try:
        library = importlib.import_module(HOMES[model["home"]])
    except ImportError as error:
        raise CannotBuild(f"{model['home']} is not installed in this interpreter: {error}") from error
    with torch.device("meta"):
        inner = on_meta(lambda: _make(library, model))
    inner = inner.train().to(dtypes[setup.get("weights", "fp32")])
    freeze(inner, setup.get("frozen", ()))
    return Labelling(inner)


def _make(library: Any, model: dict[str, Any]) -> nn.Module:
    classes = model["config"]["vocab_size"]
    if model["home"] == "torchvision":
        kwargs = {"weights": None, "weights_backbone": None, "num_classes": classes, **model["kwargs"]}
        if "frames" in model["counts"]:
            kwargs.pop("weights_backbone")
        made: nn.Module = library.get_model(model["name"], **kwargs)
        return made
    found: nn.Module = getattr(library, model["name"])(
        **{"encoder_weights": None, "classes": classes, **model["kwargs"]}
    )
    return found


class Labelling(nn.Module):
    """A model and its loss."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> Output:
        found = self.inner(pixel_values)
        outputs = found if isinstance(found, dict) else {"out": found}
        losses = {name: loss(logits, labels) for name, logits in outputs.items()}
        total = losses["out"] + AUXILIARY * losses["aux"] if "aux" in losses else losses["out"]
        return Output(total, **outputs)


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of classes of pixels or clips; of one class, where there are no others."""
    if logits.dim() > 2 and logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.unsqueeze(1).to(logits.dtype))
    return F.cross_entropy(logits, labels, ignore_index=IGNORED)


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, and i (pixels of a side) or u (64 of them)."""
    side, frames = point["i"] if "i" in point else 64 * point["u"], model["counts"].get("frames")
    channels = model["kwargs"].get("in_channels", 3)
    shape = (channels, frames, side, side) if frames else (channels, side, side)
    labels = () if frames else (side, side)
    return {
        "pixel_values": torch.zeros(point["b"], *shape, dtype=dtype, device="meta"),
        "labels": torch.zeros(point["b"], *labels, dtype=torch.int64, device="meta"),
    }
