"""Models of images: ViT and those like it, and images beside text (CLIP, SigLIP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.family import HEAD, Config, Dims, Family, Named, var

_TASK = ("image-classification",)
TOKEN_FACTORS = {1: 2, 2: 3, 5: 6}
"""Tokens beside the patches -> the number that divides q^2 + tokens for every prime q above 3."""


def _image(tokens: int) -> Named:
    """The image is q x q patches, q prime, and m = q^2 + tokens is a small number times a prime."""
    image = {"n": (1, {"q": 2}), "p": var("p"), "b": var("b")}
    return {**image, "m": var("m", TOKEN_FACTORS[tokens])} if tokens else image


_STACK = {"f": var("f"), "d": HEAD, "a": var("g")}


def _vit_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"], "num_attention_heads": x["a"], "intermediate_size": x["f"],
        "num_hidden_layers": x["L"], "patch_size": x["p"], "image_size": x["i"], "num_labels": x["V"],
    }  # fmt: skip


def _vit_dims(c: Config) -> Dims:
    h, a = c.get("hidden_size", 768), c.get("num_attention_heads", 12)
    return {
        "L": c.get("num_hidden_layers", 12), "a": a, "d": h // a, "f": c.get("intermediate_size", 3072),
        "p": c.get("patch_size", 16), "i": c.get("image_size", 224), "V": c.get("num_labels", 1000),
    }  # fmt: skip


def _deit_config(x: Mapping[str, int]) -> dict[str, Any]:
    # Its model type has two classes for this task.
    return {**_vit_config(x), "architectures": ["DeiTForImageClassification"]}


def _dinov2_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {key: value for key, value in _vit_config({**x, "f": 0}).items() if key != "intermediate_size"}


def _dinov2_dims(c: Config) -> Dims:
    found = _vit_dims({"patch_size": 14, **c})
    return {key: value for key, value in found.items() if key != "f"}


def _two_towers(image: Mapping[str, int], text: Mapping[str, int]) -> dict[str, Any]:
    return {
        "vision_config": {
            "hidden_size": image["a"] * image["d"], "num_attention_heads": image["a"],
            "intermediate_size": image["f"], "num_hidden_layers": image["L"], "patch_size": image["p"],
            "image_size": image["i"],
        },
        "text_config": {
            "hidden_size": text["at"] * text["dt"], "num_attention_heads": text["at"],
            "intermediate_size": text["ft"], "num_hidden_layers": text["Lt"], "vocab_size": text["V"],
            "max_position_embeddings": text["P"],
        },
    }  # fmt: skip


def _clip_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {"projection_dim": x["D"], **_two_towers(x, x)}


def _clip_dims(c: Config) -> Dims:
    v, t = c.get("vision_config", {}), c.get("text_config", {})
    hv, av = v.get("hidden_size", 768), v.get("num_attention_heads", 12)
    ht, at = t.get("hidden_size", 512), t.get("num_attention_heads", 8)
    return {
        "D": c.get("projection_dim", 512), "a": av, "d": hv // av, "f": v.get("intermediate_size", 3072),
        "L": v.get("num_hidden_layers", 12), "p": v.get("patch_size", 32), "i": v.get("image_size", 224),
        "at": at, "dt": ht // at, "ft": t.get("intermediate_size", 2048), "Lt": t.get("num_hidden_layers", 12),
        "V": t.get("vocab_size", 49408), "P": t.get("max_position_embeddings", 77),
    }  # fmt: skip


def _siglip_config(x: Mapping[str, int]) -> dict[str, Any]:
    return _two_towers(x, {**x, "at": x["a"], "dt": x["d"]})


def _siglip_dims(c: Config) -> Dims:
    v, t = c.get("vision_config", {}), c.get("text_config", {})
    h, a = v.get("hidden_size", 768), v.get("num_attention_heads", 12)
    return {
        "a": a, "d": h // a, "f": v.get("intermediate_size", 3072), "L": v.get("num_hidden_layers", 12),
        "p": v.get("patch_size", 16), "i": v.get("image_size", 224), "ft": t.get("intermediate_size", 3072),
        "Lt": t.get("num_hidden_layers", 12), "V": t.get("vocab_size", 32000),
        "P": t.get("max_position_embeddings", 64),
    }  # fmt: skip


_DROPOUTS: Mapping[str, object] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_TOWERS = {"vision_model.encoder.layers": "L", "text_model.encoder.layers": "Lt"}

VISION = (
    Family("vit", _TASK, {**_image(1), **_STACK, "V": var("V")}, _vit_config, _vit_dims, {"layer": "L", "layers": "L"},
           _DROPOUTS, ("m",), False),
    Family("deit", _TASK, {**_image(2), **_STACK, "V": var("V")}, _deit_config, _vit_dims,
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
