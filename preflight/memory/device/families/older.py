"""Decoders of the GPT kind and others with ways of their own: learnt positions, shared keys, fused weights.

Not here: BLOOM (the slopes of its linear positions are made for the largest power of two below its heads, which is no
product of dimensions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import GROUPED, LONG, ROTARY, SINGLE, WHOLE_ROTARY
from preflight.memory.device.families.family import ALL_HEADS, Coincidence, Config, Dims, Family, var

LEARNT = {**SINGLE, "P": var("P")}
"""One width, and learnt positions."""


def _gpt2_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "n_embd": x["a"] * x["d"], "n_head": x["a"], "n_inner": x["f"], "vocab_size": x["V"], "n_layer": x["L"],
        "n_positions": x["P"],
    }  # fmt: skip


def _gpt2_dims(c: Config) -> Dims:
    h, a = c.get("n_embd", 768), c.get("n_head", 12)
    return {
        "L": c.get("n_layer", 12), "a": a, "d": h // a, "f": c.get("n_inner") or 4 * h, "V": c.get("vocab_size", 50257),
        "P": c.get("n_positions", 1024),
    }  # fmt: skip


def _gptj_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_gpt2_config(x), "rotary_dim": x["R"]}


def _gptj_dims(c: Config) -> Dims:
    return {
        **_gpt2_dims({"n_embd": 4096, "n_head": 16, "n_layer": 28, "vocab_size": 50400, "n_positions": 2048, **c}),
        "R": c.get("rotary_dim") or 64,
    }


def _neo_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"], "num_heads": x["a"], "intermediate_size": x["f"], "vocab_size": x["V"],
        "num_layers": x["L"], "max_position_embeddings": x["P"],
        "attention_types": [[["global", "local"], x["L"] // 2], *([[["global"], 1]] if x["L"] % 2 else [])],
    }  # fmt: skip


def _neo_dims(c: Config) -> Dims:
    h, a = c["hidden_size"], c.get("num_heads", 16)
    return {
        "L": c.get("num_layers", 24), "a": a, "d": h // a, "f": c.get("intermediate_size") or 4 * h,
        "V": c.get("vocab_size", 50257), "P": c.get("max_position_embeddings", 2048),
    }  # fmt: skip


def _opt_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"], "num_attention_heads": x["a"], "ffn_dim": x["f"], "vocab_size": x["V"],
        "num_hidden_layers": x["L"], "max_position_embeddings": x["P"], "word_embed_proj_dim": x["E"],
    }  # fmt: skip


def _opt_dims(c: Config) -> Dims:
    h, a = c.get("hidden_size", 768), c.get("num_attention_heads", 12)
    return {
        "L": c.get("num_hidden_layers", 12), "a": a, "d": h // a, "f": c.get("ffn_dim", 3072),
        "V": c.get("vocab_size", 50272), "P": c.get("max_position_embeddings", 2048),
        "E": c.get("word_embed_proj_dim") or h,
    }  # fmt: skip


def _falcon_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"], "num_attention_heads": x["a"], "ffn_hidden_size": x["f"], "vocab_size": x["V"],
        "num_hidden_layers": x["L"], "max_position_embeddings": LONG,
    }  # fmt: skip


def _falcon_dims(c: Config) -> Dims:
    h, a = c.get("hidden_size", 4544), c.get("num_attention_heads") or c.get("n_head", 71)
    return {
        "L": c.get("num_hidden_layers") or c.get("n_layer", 32), "a": a, "d": h // a,
        "f": c.get("ffn_hidden_size") or 4 * h, "V": c.get("vocab_size", 65024),
    }  # fmt: skip


def _falcon_grouped_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_falcon_config(x), "num_kv_heads": x["k"], "new_decoder_architecture": True}


def _falcon_grouped_dims(c: Config) -> Dims:
    found = _falcon_dims(c)
    return {**found, "k": c.get("num_kv_heads") or c.get("n_head_kv") or found["a"]}


_SAME_EMBEDDING = Coincidence("embedding", "width", lambda x: x["E"] == x["a"] * x["d"],
                              {"E": lambda x: x["a"] * x["d"]})  # fmt: skip
_GPT_DROPOUTS = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}

OLDER = (
    Family("gpt2", ("causal-lm",), LEARNT, _gpt2_config, _gpt2_dims, {"h": "L"},
           {"tie_word_embeddings": True, **_GPT_DROPOUTS}, lora_targets=("c_attn",)),
    Family("gpt_bigcode", ("causal-lm",), LEARNT, _gpt2_config, _gpt2_dims, {"h": "L"},
           {"tie_word_embeddings": True, "multi_query": True, **_GPT_DROPOUTS}, lora_targets=("c_attn",)),
    Family("gptj", ("causal-lm",), {**LEARNT, **ROTARY}, _gptj_config, _gptj_dims, {"h": "L"},
           {"tie_word_embeddings": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
           attentions=("eager",), coincidences=(WHOLE_ROTARY,)),
    Family("gpt_neo", ("causal-lm",), LEARNT, _neo_config, _neo_dims, {"h": "L"},
           {"tie_word_embeddings": True, "resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
           attentions=("eager",)),
    Family("opt", ("causal-lm",), {**LEARNT, "E": var("E", 8)}, _opt_config, _opt_dims, {"layers": "L"},
           {"tie_word_embeddings": True, "do_layer_norm_before": True, "activation_function": "relu", "dropout": 0.1,
            "attention_dropout": 0.0, "enable_bias": True, "layer_norm_elementwise_affine": True},
           coincidences=(_SAME_EMBEDDING,)),
    Family("falcon", ("causal-lm",), SINGLE, _falcon_config, _falcon_dims, {"h": "L"},
           {"tie_word_embeddings": True, "multi_query": True, "parallel_attn": True, "alibi": False, "bias": False,
            "hidden_dropout": 0.0, "attention_dropout": 0.0},
           lora_targets=("query_key_value",)),
    Family("falcon-grouped", ("causal-lm",), GROUPED, _falcon_grouped_config, _falcon_grouped_dims, {"h": "L"},
           {"tie_word_embeddings": True, "num_ln_in_parallel_attn": None, "alibi": False, "bias": False,
            "hidden_dropout": 0.0, "attention_dropout": 0.0},
           lora_targets=("query_key_value",), architecture="falcon", coincidences=(ALL_HEADS,)),
)  # fmt: skip
