"""Encoders with a decoder: T5, BART and those like them, and Whisper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import SINGLE
from preflight.memory.device.families.family import B_S, HEAD, Config, Dims, Family, var

_TASK = ("seq2seq-lm",)
_T5 = {**B_S, "t": var("t"), "V": var("V"), "f": var("f"), "d": HEAD, "h": var("u"), "a": var("g")}
_BART = {**SINGLE, "t": var("t"), "P": var("P"), "F": var("F")}


def _t5_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "d_model": x["h"], "num_heads": x["a"], "d_kv": x["d"], "d_ff": x["f"], "vocab_size": x["V"],
        "num_layers": x["L"], "num_decoder_layers": x["Ld"], "decoder_start_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip


def _t5_dims(c: Config) -> Dims:
    layers = c.get("num_layers", 6)
    return {
        "L": layers, "Ld": c.get("num_decoder_layers") or layers,
        "h": c.get("d_model", 512), "a": c.get("num_heads", 8),
        "d": c.get("d_kv", 64), "f": c.get("d_ff", 2048), "V": c.get("vocab_size", 32128),
    }  # fmt: skip


def _bart_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "d_model": x["a"] * x["d"], "encoder_attention_heads": x["a"], "decoder_attention_heads": x["a"],
        "encoder_ffn_dim": x["f"], "decoder_ffn_dim": x["F"], "vocab_size": x["V"], "encoder_layers": x["L"],
        "decoder_layers": x["Ld"], "max_position_embeddings": x["P"], "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2, "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    }  # fmt: skip


def _bart_dims(c: Config) -> Dims:
    h, a = c.get("d_model", 1024), c.get("encoder_attention_heads", 16)
    return {
        "L": c.get("encoder_layers", 12), "Ld": c.get("decoder_layers", 12), "a": a, "d": h // a,
        "f": c.get("encoder_ffn_dim", 4096), "F": c.get("decoder_ffn_dim", 4096), "V": c["vocab_size"],
        "P": c.get("max_position_embeddings", 1024),
    }  # fmt: skip


def _whisper_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "d_model": x["a"] * x["d"], "encoder_attention_heads": x["a"], "decoder_attention_heads": x["a"],
        "encoder_ffn_dim": x["f"], "decoder_ffn_dim": x["f"], "vocab_size": x["V"], "num_mel_bins": x["M"],
        "encoder_layers": x["L"], "decoder_layers": x["Ld"], "max_source_positions": x["s"],
        "max_target_positions": x["P"], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 3,
    }  # fmt: skip


def _whisper_dims(c: Config) -> Dims:
    h, a = c.get("d_model", 384), c.get("encoder_attention_heads", 6)
    return {
        "L": c.get("encoder_layers", 4), "Ld": c.get("decoder_layers", 4), "a": a, "d": h // a,
        "f": c.get("encoder_ffn_dim", 1536), "V": c.get("vocab_size", 51865), "M": c.get("num_mel_bins", 80),
        "s": c.get("max_source_positions", 1500), "P": c.get("max_target_positions", 448),
    }  # fmt: skip


def _like_t5(name: str, feed_forward: str, **switches: object) -> Family:
    return Family(name, _TASK, _T5, _t5_config, _t5_dims, {"encoder.block": "L", "decoder.block": "Ld"},
                  {"feed_forward_proj": feed_forward, "dropout_rate": 0.1, **switches}, ("s", "t"),
                  lora_targets=("q", "v"))  # fmt: skip


def _like_bart(name: str, activation: str = "gelu") -> Family:
    return Family(name, _TASK, _BART, _bart_config, _bart_dims, {"encoder.layers": "L", "decoder.layers": "Ld"},
                  {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
                   "activation_function": activation},
                  ("s", "t"))  # fmt: skip


SEQ2SEQ = (
    _like_t5("t5", "relu", tie_word_embeddings=True),
    _like_t5("mt5", "gated-gelu"),
    _like_t5("umt5", "gated-gelu"),
    _like_bart("bart"),
    _like_bart("mbart"),
    _like_bart("pegasus", "relu"),
    _like_bart("marian", "swish"),
    _like_bart("m2m_100", "relu"),
    Family("whisper", ("speech-seq2seq",), {**SINGLE, "t": var("t"), "P": var("P"), "M": var("M")},
           _whisper_config, _whisper_dims, {"encoder.layers": "L", "decoder.layers": "Ld"},
           {"dropout": 0.0, "tie_word_embeddings": True}, ("s", "t"), False),
)  # fmt: skip
