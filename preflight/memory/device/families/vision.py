"""Models of images: ViT and similar ones, and models of images and text (CLIP, SigLIP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.family import HEAD, Config, Dims, Family, Named, Spelling, var

_TASK = ("image-classification",)
TOKEN_FACTORS = {1: 2, 2: 3, 5: 6}
"""Tokens in addition to the patches -> the number that divides q^2 + tokens for every prime q above 3."""


def _image(tokens: int) -> Named:
    """The image is q x q patches, q prime, and m = q^2 + tokens is a small number times a prime."""
    image = {"n": (1, {"q": 2}), "p": var("p"), "b": var("b")}
    return {**image, "m": var("m", TOKEN_FACTORS[tokens])} if tokens else image


_STACK = {"f": var("f"), "d": HEAD, "a": var("g")}


_TOWER: Mapping[str, tuple[str, int | None]] = {
    "L": ("num_hidden_layers", 12),
    "a": ("num_attention_heads", 12),
    "f": ("intermediate_size", 3072),
    "i": ("image_size", 224),
}
_VIT = Spelling(("hidden_size", 768), {**_TOWER, "p": ("patch_size", 16), "V": ("num_labels", 1000)})
_CLIP_IMAGE = Spelling(("hidden_size", 768), {**_TOWER, "p": ("patch_size", 32)})
_CLIP_TEXT = Spelling(
    ("hidden_size", 512),
    {
        "Lt": ("num_hidden_layers", 12),
        "at": ("num_attention_heads", 8),
        "ft": ("intermediate_size", 2048),
        "V": ("vocab_size", 49408),
        "P": ("max_position_embeddings", 77),
    },
    heads="at",
    size="dt",
)
_SIGLIP_IMAGE = Spelling(("hidden_size", 768), {**_TOWER, "p": ("patch_size", 16)})
_SIGLIP_TEXT = Spelling(
    None,
    {
        "Lt": ("num_hidden_layers", 12),
        "ft": ("intermediate_size", 3072),
        "V": ("vocab_size", 32000),
        "P": ("max_position_embeddings", 64),
    },
)
"""The text side has the heads of the image side."""


def _deit_config(x: Mapping[str, int]) -> dict[str, Any]:
    # Its model type has two classes for this task.
    return {**_VIT.config(x), "architectures": ["DeiTForImageClassification"]}


def _dinov2_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {key: value for key, value in _VIT.config({**x, "f": 0}).items() if key != "intermediate_size"}


def _dinov2_dims(c: Config) -> Dims:
    found = _VIT.dims({"patch_size": 14, **c})
    return {key: value for key, value in found.items() if key != "f"}


def _clip_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {"projection_dim": x["D"], "vision_config": _CLIP_IMAGE.config(x), "text_config": _CLIP_TEXT.config(x)}


def _clip_dims(c: Config) -> Dims:
    image, text = _CLIP_IMAGE.dims(c.get("vision_config", {})), _CLIP_TEXT.dims(c.get("text_config", {}))
    return {"D": c.get("projection_dim", 512), **image, **text}


def _siglip_config(x: Mapping[str, int]) -> dict[str, Any]:
    image = _SIGLIP_IMAGE.config(x)
    heads = {key: image[key] for key in ("hidden_size", "num_attention_heads")}
    return {"vision_config": image, "text_config": {**heads, **_SIGLIP_TEXT.config(x)}}


def _siglip_dims(c: Config) -> Dims:
    return {**_SIGLIP_IMAGE.dims(c.get("vision_config", {})), **_SIGLIP_TEXT.dims(c.get("text_config", {}))}


_DROPOUTS: Mapping[str, object] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_TOWERS = {"vision_model.encoder.layers": "L", "text_model.encoder.layers": "Lt"}

VISION = (
    Family("vit", _TASK, {**_image(1), **_STACK, "V": var("V")}, _VIT.config, _VIT.dims, {"layer": "L", "layers": "L"},
           _DROPOUTS, ("m",), False),
    Family("deit", _TASK, {**_image(2), **_STACK, "V": var("V")}, _deit_config, _VIT.dims,
           {"layer": "L", "layers": "L"}, _DROPOUTS, ("m",), False, tokens=2),
    Family("dinov2", _TASK, {**_image(1), "d": HEAD, "a": var("g"), "V": var("V")}, _dinov2_config, _dinov2_dims,
           {"layer": "L", "layers": "L"}, {**_DROPOUTS, "drop_path_rate": 0.0, "use_swiglu_ffn": False, "mlp_ratio": 4},
           ("m",), False),
    Family("clip", ("contrastive",),
           {**_image(1), **_STACK, "V": var("V"), "P": var("P"), "t": var("t"), "D": var("D"), "ft": var("F"),
            "dt": var("E", 8), "at": var("G")},
           _clip_config, _clip_dims, _TOWERS, {}, ("m", "t")),
    Family("siglip", ("contrastive",),
           {**_image(0), **_STACK, "V": var("V"), "P": var("P"), "t": var("t"), "ft": var("F")},
           _siglip_config, _siglip_dims, _TOWERS, {}, ("n", "t"), tokens=0),
)  # fmt: skip
