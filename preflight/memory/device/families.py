"""Architecture families: which dimensions their models vary in, and how those stand in a Hugging Face config.

The names of dimensions, here and in laws: b batch, s length (t: target or text length), L layers, h width, a attention
heads, k key-value heads, d head size, f feed-forward width, V vocabulary, P positions, n image patches, m image tokens
(n + 1), p patch size, D projection width, r LoRA rank; a second stack has its own (Lt, ht, ... for CLIP's text side,
Ld, ... for decoders).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from preflight.memory.device.primes import Basis

Config: TypeAlias = "Mapping[str, Any]"
Dims: TypeAlias = "dict[str, int]"


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers.

    `named`: see `primes.Basis`. `config`: dimensions -> config keys. `dims`: a model's config -> dimensions (lengths
    excluded). `depths`: the list of layers in the module tree (its last component) -> the dimension that counts it.
    `structure`: config keys that change the tape itself, with their default: part of a law's key.
    """

    name: str
    tasks: tuple[str, ...]
    named: Mapping[str, tuple[int, Mapping[str, int]]]
    config: Callable[[Mapping[str, int]], dict[str, Any]]
    dims: Callable[[Config], Dims]
    depths: Mapping[str, str]
    structure: Mapping[str, object]
    lengths: tuple[str, ...] = ("s",)
    padded: bool = True
    """Whether batches may carry a padding mask."""
    attentions: tuple[str, ...] = ("sdpa", "eager")
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    """Where peft puts adapters when nothing is said (peft.utils.constants), or what its users say for this family."""

    @property
    def basis(self) -> Basis:
        return Basis(self.named, self.lengths)


def _var(name: str, constant: int = 1, **more: int) -> tuple[int, dict[str, int]]:
    return constant, {name: 1, **more}


_B_S = {"b": _var("b"), "s": _var("s")}
# Grouped heads: a = k g, and the width a multiple of the heads, h = a u. Head size: whole multiples of 8 (kernels pad
# other sizes).
_DECODER = {
    **_B_S,
    "V": _var("V"),
    "f": _var("f"),
    "d": _var("e", 8),
    "h": _var("u", k=1, g=1),
    "a": _var("g", k=1),
    "k": _var("k"),
}
# One width: h = a d.
_ENCODER = {**_B_S, "V": _var("V"), "f": _var("f"), "d": _var("e", 8), "a": _var("g"), "P": _var("P")}


def _decoder_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["h"],
        "num_attention_heads": x["a"],
        "num_key_value_heads": x["k"],
        "head_dim": x["d"],
        "intermediate_size": x["f"],
        "vocab_size": x["V"],
        "num_hidden_layers": x["L"],
        "pad_token_id": 0,
        "max_position_embeddings": 1 << 20,
    }


def _decoder_dims(c: Config) -> Dims:
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


def _decoder(name: str, tied: bool, **more: Any) -> Family:
    return Family(
        name, ("causal-lm",), _DECODER, _decoder_config, _decoder_dims, {"layers": "L"},
        {"tie_word_embeddings": tied, "attention_dropout": 0.0}, **more,
    )  # fmt: skip


def _bert_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"],
        "num_attention_heads": x["a"],
        "intermediate_size": x["f"],
        "vocab_size": x["V"],
        "num_hidden_layers": x["L"],
        "max_position_embeddings": x["P"],
    }


def _bert_dims(c: Config) -> Dims:
    a = c.get("num_attention_heads", 12)
    h = c.get("hidden_size", 768)
    return {
        "L": c.get("num_hidden_layers", 12), "a": a, "d": h // a, "f": c.get("intermediate_size", 3072),
        "V": c["vocab_size"], "P": c.get("max_position_embeddings", 512),
    }  # fmt: skip


_ENCODER_TASKS = ("sequence-classification", "masked-lm", "token-classification")
_DROPOUTS = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


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


def _distilbert_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "dim": x["a"] * x["d"], "n_heads": x["a"], "hidden_dim": x["f"], "vocab_size": x["V"], "n_layers": x["L"],
        "max_position_embeddings": x["P"],
    }  # fmt: skip


def _distilbert_dims(c: Config) -> Dims:
    h, a = c.get("dim", 768), c.get("n_heads", 12)
    return {
        "L": c.get("n_layers", 6), "a": a, "d": h // a, "f": c.get("hidden_dim", 3072), "V": c.get("vocab_size", 30522),
        "P": c.get("max_position_embeddings", 512),
    }  # fmt: skip


def _deberta_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        **_bert_config(x), "relative_attention": True, "position_buckets": x["B"], "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
        "max_relative_positions": -1, "pooler_hidden_size": x["a"] * x["d"], "pooler_dropout": 0,
        "layer_norm_eps": 1e-7,
    }  # fmt: skip


def _deberta_dims(c: Config) -> Dims:
    return {**_bert_dims(c), "B": c.get("position_buckets", 256)}


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


def _clip_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "projection_dim": x["D"],
        "vision_config": {
            "hidden_size": x["a"] * x["d"], "num_attention_heads": x["a"], "intermediate_size": x["f"],
            "num_hidden_layers": x["L"], "patch_size": x["p"], "image_size": x["i"],
        },
        "text_config": {
            "hidden_size": x["at"] * x["dt"], "num_attention_heads": x["at"], "intermediate_size": x["ft"],
            "num_hidden_layers": x["Lt"], "vocab_size": x["V"], "max_position_embeddings": x["P"],
        },
    }  # fmt: skip


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


# Image tokens: the image is q x q patches, q prime, and n + 1 = q^2 + 1 is 2 x prime for the q of PATCH_SIDES.
_IMAGE = {"n": (1, {"q": 2}), "m": _var("m", 2), "p": _var("p"), "b": _var("b")}
PATCH_SIDES = {59: 1741, 61: 1861, 71: 2521, 79: 3121, 101: 5101}
"""q -> (q^2 + 1) / 2, both prime."""

FAMILIES: dict[str, Family] = {
    f.name: f
    for f in (
        _decoder("llama", False),
        _decoder("mistral", False),
        _decoder("qwen2", True),
        _decoder("gemma2", True, attentions=("eager",)),
        _decoder("phi3", False, lora_targets=("qkv_proj",)),
        Family("gpt2", ("causal-lm",), _ENCODER, _gpt2_config, _gpt2_dims, {"h": "L"},
               {"tie_word_embeddings": True, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
               lora_targets=("c_attn",)),
        Family("bert", _ENCODER_TASKS, _ENCODER, _bert_config, _bert_dims, {"layer": "L"}, _DROPOUTS,
               lora_targets=("query", "value")),
        Family("roberta", _ENCODER_TASKS, _ENCODER, _bert_config, _bert_dims, {"layer": "L"}, _DROPOUTS,
               lora_targets=("query", "value")),
        Family("xlm-roberta", _ENCODER_TASKS, _ENCODER, _bert_config, _bert_dims, {"layer": "L"}, _DROPOUTS,
               lora_targets=("query", "value")),
        Family("distilbert", _ENCODER_TASKS, _ENCODER, _distilbert_config, _distilbert_dims, {"layer": "L"},
               {"dropout": 0.1, "attention_dropout": 0.1}, lora_targets=("q_lin", "v_lin")),
        Family("deberta-v2", _ENCODER_TASKS, {**_ENCODER, "B": _var("B")}, _deberta_config, _deberta_dims,
               {"layer": "L"}, _DROPOUTS, attentions=("eager",), lora_targets=("query_proj", "value_proj")),
        Family("t5", ("seq2seq-lm",),
               {**_B_S, "t": _var("t"), "V": _var("V"), "f": _var("f"), "d": _var("e", 8), "h": _var("u"),
                "a": _var("g")},
               _t5_config, _t5_dims, {"encoder.block": "L", "decoder.block": "Ld"},
               {"feed_forward_proj": "relu", "tie_word_embeddings": True, "dropout_rate": 0.1}, ("s", "t"),
               lora_targets=("q", "v")),
        Family("vit", ("image-classification",),
               {**_IMAGE, "f": _var("f"), "d": _var("e", 8), "a": _var("g"), "V": _var("V")},
               _vit_config, _vit_dims, {"layer": "L", "layers": "L"},
               {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, ("m",), False),
        Family("clip", ("contrastive",),
               {**_IMAGE, "f": _var("f"), "d": _var("e", 8), "a": _var("g"), "V": _var("V"), "P": _var("P"),
                "t": _var("t"), "D": _var("D"), "ft": _var("F"), "dt": _var("E", 8), "at": _var("G")},
               _clip_config, _clip_dims, {"vision_model.encoder.layers": "L", "text_model.encoder.layers": "Lt"},
               {}, ("m", "t")),
        Family("whisper", ("speech-seq2seq",),
               {**_B_S, "t": _var("t"), "V": _var("V"), "f": _var("f"), "d": _var("e", 8), "a": _var("g"),
                "P": _var("P"), "M": _var("M")},
               _whisper_config, _whisper_dims, {"encoder.layers": "L", "decoder.layers": "Ld"},
               {"dropout": 0.0, "tie_word_embeddings": True}, ("s", "t"), False),
    )
}  # fmt: skip
