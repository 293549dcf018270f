"""Decoders whose layers are attention and a feed-forward network, with rotary positions: Llama and those like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.family import (
    ALL_HEADS,
    B_S,
    HEAD,
    ONE_HEAD,
    Coincidence,
    Config,
    Dims,
    Family,
    Named,
    Spelling,
    var,
)

WIDE = {
    **B_S,
    "V": var("V"),
    "f": var("f"),
    "d": HEAD,
    "h": var("u", k=1, g=1),
    "a": var("g", k=1),
    "k": var("k"),
}
"""Grouped heads: a = k g, and the width a multiple of the heads, h = a u."""
GROUPED_DIMS = {**B_S, "V": var("V"), "f": var("f"), "d": HEAD, "a": var("g", k=1), "k": var("k")}
"""Grouped heads and one width: h = a d."""
SINGLE = {**B_S, "V": var("V"), "f": var("f"), "d": HEAD, "a": var("g")}
"""As many key-value heads as heads, h = a d."""
ROTARY = {"R": var("R", 2)}
"""The part of a head that is rotated."""
WHOLE_ROTARY = Coincidence("rotary", "whole", lambda x: x["R"] == x["d"], {"R": lambda x: x["d"]})
LONG = 1 << 20
"""More positions than any probe has, where no size depends on them."""


def decoder_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["h"] if "h" in x else x["a"] * x["d"],
        "num_attention_heads": x["a"],
        "num_key_value_heads": x.get("k", x["a"]),
        "head_dim": x["d"],
        "intermediate_size": x["f"],
        "vocab_size": x["V"],
        "num_hidden_layers": x["L"],
        "pad_token_id": 0,
        "max_position_embeddings": LONG,
    }


def decoder_dims(c: Config) -> Dims:
    a = c["num_attention_heads"]
    return {
        "L": c["num_hidden_layers"],
        "h": c["hidden_size"],
        "a": a,
        "k": c.get("num_key_value_heads") or a,
        "d": c.get("head_dim") or c["hidden_size"] // a,
        "f": c["intermediate_size"],
        "V": c["vocab_size"],
    }


def _decoder(name: str, tied: bool, named: Named = WIDE, **more: Any) -> Family:
    """A family with Llama's config keys. `switches`: further keys of its structure."""
    structure = {"tie_word_embeddings": tied, "attention_dropout": 0.0, **more.pop("switches", {})}
    usual = ("causal-lm",), named, decoder_config, decoder_dims, {"layers": "L"}, structure
    return Family(name, *usual, coincidences=(ALL_HEADS, ONE_HEAD), **more)


# --- rotation of a part of each head ----------------------------------------------------------------------------------


def rotary_part(config: Config, default: float, *keys: str) -> float:
    """Which part of a head is rotated: `rope_parameters` of transformers 5, or one of the older keys."""
    for key in keys:
        if config.get(key) is not None:
            return float(config[key])
    inner = config.get("rope_parameters") or {}
    return float(inner.get("partial_rotary_factor", default))


def _rotated(x: Mapping[str, int]) -> float:
    """The factor whose product with the head size, cut down to a whole number, is R."""
    return 1.0 if x["R"] >= x["d"] else (x["R"] + 0.5) / x["d"]


def _partial_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**decoder_config(x), "partial_rotary_factor": _rotated(x)}


def _partial_dims(default: float) -> Any:
    def dims(c: Config) -> Dims:
        found = decoder_dims(c)
        return {**found, "R": int(found["d"] * rotary_part(c, default, "partial_rotary_factor"))}

    return dims


_NEOX = Spelling(
    ("hidden_size", None),
    {"L": ("num_hidden_layers", None), "a": ("num_attention_heads", None), "V": ("vocab_size", None)},
    {"f": ("intermediate_size", 4)},
    {"max_position_embeddings": LONG},
)


def _neox_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_NEOX.config(x), "rotary_pct": _rotated(x)}


def _neox_dims(c: Config) -> Dims:
    found = _NEOX.dims(c)
    return {**found, "R": int(found["d"] * rotary_part(c, 0.25, "rotary_pct"))}


DECODERS = (
    _decoder("llama", False),
    _decoder("mistral", False),
    _decoder("qwen2", False),
    _decoder("qwen3", False),
    _decoder("gemma", True),
    _decoder("gemma2", True, attentions=("eager",)),
    _decoder("phi3", False, lora_targets=("qkv_proj",)),
    _decoder("olmo", False, GROUPED_DIMS, switches={"clip_qkv": None}),
    _decoder("olmo2", False, GROUPED_DIMS),
    _decoder("cohere", True, GROUPED_DIMS, switches={"use_qk_norm": False}),
    _decoder("starcoder2", True, GROUPED_DIMS,
             switches={"residual_dropout": 0.0, "embedding_dropout": 0.0, "use_bias": True}),
    Family("gpt_neox", ("causal-lm",), {**SINGLE, **ROTARY}, _neox_config, _neox_dims, {"layers": "L"},
           {"tie_word_embeddings": False, "use_parallel_residual": True, "attention_dropout": 0.0,
            "hidden_dropout": 0.0},
           lora_targets=("query_key_value",), coincidences=(WHOLE_ROTARY,)),
    Family("phi", ("causal-lm",), {**SINGLE, **ROTARY}, _partial_config, _partial_dims(0.5), {"layers": "L"},
           {"tie_word_embeddings": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0,
            "qk_layernorm": False},
           lora_targets=("q_proj", "v_proj", "fc1", "fc2"), coincidences=(WHOLE_ROTARY,)),
    Family("stablelm", ("causal-lm",), {**GROUPED_DIMS, **ROTARY}, _partial_config, _partial_dims(0.25),
           {"layers": "L"},
           {"tie_word_embeddings": False, "use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False,
            "hidden_dropout": 0.0, "attention_dropout": 0.0},
           coincidences=(ALL_HEADS, ONE_HEAD, WHOLE_ROTARY)),
)  # fmt: skip
