"""Encoders with a decoder: T5, BART and those like them, and Whisper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import SINGLE
from preflight.memory.device.families.family import B_S, HEAD, Config, Dims, Family, Spelling, var

_TASK = ("seq2seq-lm",)
_T5 = {**B_S, "t": var("t"), "V": var("V"), "f": var("f"), "d": HEAD, "h": var("u"), "a": var("g")}
_BART = {**SINGLE, "t": var("t"), "P": var("P"), "F": var("F")}


_T5_KEYS = Spelling(
    None,
    {
        "L": ("num_layers", 6),
        "Ld": ("num_decoder_layers", None),
        "h": ("d_model", 512),
        "a": ("num_heads", 8),
        "d": ("d_kv", 64),
        "f": ("d_ff", 2048),
        "V": ("vocab_size", 32128),
    },
    fixed={"decoder_start_token_id": 0, "pad_token_id": 0},
)
_BART_KEYS = Spelling(
    ("d_model", 1024),
    {
        "L": ("encoder_layers", 12),
        "Ld": ("decoder_layers", 12),
        "a": ("encoder_attention_heads", 16),
        "f": ("encoder_ffn_dim", 4096),
        "F": ("decoder_ffn_dim", 4096),
        "V": ("vocab_size", None),
        "P": ("max_position_embeddings", 1024),
    },
    fixed={
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    },
)
_WHISPER_KEYS = Spelling(
    ("d_model", 384),
    {
        "L": ("encoder_layers", 4),
        "Ld": ("decoder_layers", 4),
        "a": ("encoder_attention_heads", 6),
        "f": ("encoder_ffn_dim", 1536),
        "V": ("vocab_size", 51865),
        "M": ("num_mel_bins", 80),
        "s": ("max_source_positions", 1500),
        "P": ("max_target_positions", 448),
    },
    fixed={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3},
)


def _t5_dims(c: Config) -> Dims:
    return _T5_KEYS.dims({**c, "num_decoder_layers": c.get("num_decoder_layers") or c.get("num_layers", 6)})


def _bart_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_BART_KEYS.config(x), "decoder_attention_heads": x["a"]}


def _whisper_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**_WHISPER_KEYS.config(x), "decoder_attention_heads": x["a"], "decoder_ffn_dim": x["f"]}


def _like_t5(name: str, feed_forward: str, **switches: object) -> Family:
    depths = {"encoder.block": "L", "decoder.block": "Ld"}
    structure = {"feed_forward_proj": feed_forward, "dropout_rate": 0.1, **switches}
    lengths, targets = ("s", "t"), ("q", "v")
    return Family(name, _TASK, _T5, _T5_KEYS.config, _t5_dims, depths, structure, lengths, lora_targets=targets)


def _like_bart(name: str, activation: str = "gelu") -> Family:
    depths = {"encoder.layers": "L", "decoder.layers": "Ld"}
    dropouts = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}
    structure = {**dropouts, "activation_function": activation}
    return Family(name, _TASK, _BART, _bart_config, _BART_KEYS.dims, depths, structure, ("s", "t"))


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
           _whisper_config, _WHISPER_KEYS.dims, {"encoder.layers": "L", "decoder.layers": "Ld"},
           {"dropout": 0.0, "tie_word_embeddings": True}, ("s", "t"), False),
)  # fmt: skip
