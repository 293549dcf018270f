"""Decoders of the GPT kind and other older ones: learnt positions, shared keys, fused weights.

Not here: BLOOM (the slopes of its linear positions are made for the largest power of two below its heads, which is no
product of dimensions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import GROUPED_DIMS, LONG, ROTARY, SINGLE, WHOLE_ROTARY
from preflight.memory.device.families.family import ALL_HEADS, SAME_EMBEDDING, Config, Dims, Family, Spelling, var

LEARNT = {**SINGLE, "P": var("P")}
"""One width, and learnt positions."""


_GPT2_KEYS: Mapping[str, tuple[str, int | None]] = {
    "L": ("n_layer", 12),
    "a": ("n_head", 12),
    "V": ("vocab_size", 50257),
    "P": ("n_positions", 1024),
}
_GPT2 = Spelling(("n_embd", 768), _GPT2_KEYS, {"f": ("n_inner", 4)})
_GPTJ = Spelling(
    ("n_embd", 4096),
    {"L": ("n_layer", 28), "a": ("n_head", 16), "V": ("vocab_size", 50400), "P": ("n_positions", 2048)},
    {"f": ("n_inner", 4)},
)
_NEO = Spelling(
    ("hidden_size", None),
    {
        "L": ("num_layers", 24),
        "a": ("num_heads", 16),
        "V": ("vocab_size", 50257),
        "P": ("max_position_embeddings", 2048),
    },
    {"f": ("intermediate_size", 4)},
)
_OPT = Spelling(
    ("hidden_size", 768),
    {
        "L": ("num_hidden_layers", 12),
        "a": ("num_attention_heads", 12),
        "f": ("ffn_dim", 3072),
        "V": ("vocab_size", 50272),
        "P": ("max_position_embeddings", 2048),
    },
    {"E": ("word_embed_proj_dim", 1)},
)
_FALCON = Spelling(
    ("hidden_size", 4544),
    {"L": ("num_hidden_layers", 32), "a": ("num_attention_heads", 71), "V": ("vocab_size", 65024)},
    {"f": ("ffn_hidden_size", 4)},
    {"max_position_embeddings": LONG},
)


def _gptj_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_GPTJ.config(x), "rotary_dim": x["R"]}


def _gptj_dims(c: Config) -> Dims:
    return {**_GPTJ.dims(c), "R": c.get("rotary_dim") or 64}


def _neo_config(x: Mapping[str, int]) -> dict[str, Any]:
    last = [[["global"], 1]] if x["L"] % 2 else []
    return {**_NEO.config(x), "attention_types": [[["global", "local"], x["L"] // 2], *last]}


def _falcon_dims(c: Config) -> Dims:
    """Older configs have n_head and n_layer."""
    heads = c.get("num_attention_heads") or c.get("n_head", 71)
    layers = c.get("num_hidden_layers") or c.get("n_layer", 32)
    return _FALCON.dims({**c, "num_attention_heads": heads, "num_hidden_layers": layers})


def _falcon_grouped_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_FALCON.config(x), "num_kv_heads": x["k"], "new_decoder_architecture": True}


def _falcon_grouped_dims(c: Config) -> Dims:
    found = _falcon_dims(c)
    return {**found, "k": c.get("num_kv_heads") or c.get("n_head_kv") or found["a"]}


_GPT_DROPOUTS = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}

OLDER = (
    Family("gpt2", ("causal-lm",), LEARNT, _GPT2.config, _GPT2.dims, {"h": "L"},
           {"tie_word_embeddings": True, **_GPT_DROPOUTS}, lora_targets=("c_attn",)),
    Family("gpt_bigcode", ("causal-lm",), LEARNT, _GPT2.config, _GPT2.dims, {"h": "L"},
           {"tie_word_embeddings": True, "multi_query": True, **_GPT_DROPOUTS}, lora_targets=("c_attn",)),
    Family("gptj", ("causal-lm",), {**LEARNT, **ROTARY}, _gptj_config, _gptj_dims, {"h": "L"},
           {"tie_word_embeddings": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
           attentions=("eager",), coincidences=(WHOLE_ROTARY,)),
    Family("gpt_neo", ("causal-lm",), LEARNT, _neo_config, _NEO.dims, {"h": "L"},
           {"tie_word_embeddings": True, "resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
           attentions=("eager",)),
    Family("opt", ("causal-lm",), {**LEARNT, "E": var("E", 8)}, _OPT.config, _OPT.dims, {"layers": "L"},
           {"tie_word_embeddings": True, "do_layer_norm_before": True, "activation_function": "relu", "dropout": 0.1,
            "attention_dropout": 0.0, "enable_bias": True, "layer_norm_elementwise_affine": True},
           coincidences=(SAME_EMBEDDING,)),
    Family("falcon", ("causal-lm",), SINGLE, _FALCON.config, _falcon_dims, {"h": "L"},
           {"tie_word_embeddings": True, "multi_query": True, "parallel_attn": True, "alibi": False, "bias": False,
            "hidden_dropout": 0.0, "attention_dropout": 0.0},
           lora_targets=("query_key_value",)),
    Family("falcon-grouped", ("causal-lm",), GROUPED_DIMS, _falcon_grouped_config, _falcon_grouped_dims, {"h": "L"},
           {"tie_word_embeddings": True, "num_ln_in_parallel_attn": None, "alibi": False, "bias": False,
            "hidden_dropout": 0.0, "attention_dropout": 0.0},
           lora_targets=("query_key_value",), architecture="falcon", coincidences=(ALL_HEADS,)),
)  # fmt: skip
