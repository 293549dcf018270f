"""Models of transformers that see or hear, by their class: segmentation, detection, video, captions, sound.

Each is traced with the library's own loss. The class's recipe makes the batch (`perception_batches`).
`losses_without_data` answers the questions of the loss about the data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import adapters
from .building import CannotBuild, Output, freeze
from .losses_without_data import Answers, install_first, install_matcher
from .perception_batches import LOSSES, RECIPES

NONE_LEFT_OUT = {"layerdrop": 0.0, "apply_spec_augment": False, "mask_time_prob": 0.0, "mask_feature_prob": 0.0}
"""No layer is dropped and nothing is masked: that is the most that a step needs."""
AUTOS = {
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "token-classification": "AutoModelForTokenClassification",
    "contrastive": "AutoModel",
}
DENOISED = "denoised-boxes"
EAGER = ("speecht5",)
"""Models whose loss is one of attention's probabilities as well."""
NESTED = ("encoder_config", "text_config", "vision_config", "audio_config", "encoder", "decoder", "backbone_config")


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """A step on meta, in training mode. `model`: {"architecture", "config", "class" (of transformers, or a key of
    AUTOS), "recipe"}; `setup`: as `models.build` has it. Raises CannotBuild."""
    inner = _inner(model, setup).train().to(dtypes[setup.get("weights", "fp32")])
    freeze(inner, setup.get("frozen", ()))
    if setup.get("peft"):
        inner = adapters.adapt(inner, {**setup["peft"], "half": dtypes.get(setup["peft"].get("half") or "")}, "")
    install_matcher()
    for module in inner.modules():
        if type(module).__name__ == "Mask2FormerHungarianMatcher":
            install_first(module)
    return Perceiving(inner, model["recipe"])


def _inner(model: dict[str, Any], setup: dict[str, Any]) -> nn.Module:
    import transformers

    made = config_of(model)
    auto = getattr(transformers, AUTOS.get(model["class"], model["class"]), None)
    if auto is None:
        raise CannotBuild(f"transformers {transformers.__version__} has no {model['class']}")
    make = getattr(auto, "_from_config", None) or auto.from_config
    asked = "eager" if setup.get("attention") == "eager" or model["architecture"] in EAGER else "sdpa"
    with torch.device("meta"):
        try:
            found: nn.Module = make(made, attn_implementation=asked)
        except ImportError as error:
            if "timm" not in str(error):
                raise
            raise CannotBuild(f"the backbone of {model['architecture']} is timm's: pip install timm") from error
        except ValueError as error:
            if "does not support" not in str(error):
                raise
            found = make(made, attn_implementation="eager")
    return found.to("meta")


def config_of(model: dict[str, Any]) -> Any:
    """A config of transformers. `vocab_size` is the number of classes of segmenters. Raises CannotBuild."""
    import transformers

    architecture, config = model["architecture"], model["config"]
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    spelled = next((s for s in (architecture, architecture.replace("-", "_")) if s in known), None)
    if spelled is None:
        raise CannotBuild(f"transformers {transformers.__version__} has no {architecture}")
    given = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "transformers_version")}
    classes = given.pop("vocab_size", None) if model["recipe"] == "segmentation" else None
    made = transformers.AutoConfig.for_model(spelled, **given)
    if classes is not None:
        made.num_labels = classes
    for part in (made, *(getattr(made, name, None) for name in NESTED)):
        for key, value in {**NONE_LEFT_OUT, "use_cache": False}.items():
            if part is not None and not isinstance(part, dict) and hasattr(part, key):
                setattr(part, key, value)
    if model["recipe"] == "captioning" and hasattr(made, "decoder"):
        for key in ("pad_token_id", "decoder_start_token_id"):
            if getattr(made, key, None) is None:  # programs set them: shifting the labels refuses to do without
                setattr(made, key, getattr(made.decoder, key, None) or 0)
    made.architectures = made.architectures or []
    return made


class Perceiving(nn.Module):
    """A model and its loss."""

    def __init__(self, inner: nn.Module, recipe: str) -> None:
        super().__init__()
        self.inner, self.recipe = inner, recipe

    def forward(self, **batch: Any) -> Any:
        with Answers(halves=self.recipe == DENOISED):
            own = LOSSES.get(self.recipe)
            if own is not None:
                return own(self.inner, batch)
            out = self.inner(**batch)
        if out.loss is None:
            raise ValueError(f"{type(self.inner).__name__} computes no loss")
        return Output(out.loss, **{k: v for k, v in out.items() if k != "loss" and v is not None})

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        """As transformers' models have it."""
        self.inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs=gradient_checkpointing_kwargs)


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
    """A batch on meta. Point: b, and what the recipe has: i (pixels) or u (64 of them), s (tokens or samples), t
    (labels, objects, words), frames."""
    config = config_of(model)

    def zeros(*shape: int, of: torch.dtype = dtype) -> torch.Tensor:
        return torch.zeros(*shape, dtype=of, device="meta")

    sides = {"i": 64 * point["u"]} if "u" in point else {}
    return RECIPES[model["recipe"]](config, {**model.get("counts", {}), **point, **sides}, zeros)
