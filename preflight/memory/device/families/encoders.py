"""Encoders of text: BERT and those like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import SINGLE
from preflight.memory.device.families.family import Coincidence, Config, Dims, Family, var

ENCODER = {**SINGLE, "P": var("P")}
"""One width, h = a d, and learnt positions."""
TASKS = ("sequence-classification", "masked-lm", "token-classification")
DROPOUTS: Mapping[str, object] = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def bert_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        "hidden_size": x["a"] * x["d"],
        "num_attention_heads": x["a"],
        "intermediate_size": x["f"],
        "vocab_size": x["V"],
        "num_hidden_layers": x["L"],
        "max_position_embeddings": x["P"],
    }


def bert_dims(c: Config) -> Dims:
    a = c.get("num_attention_heads", 12)
    h = c.get("hidden_size", 768)
    return {
        "L": c.get("num_hidden_layers", 12), "a": a, "d": h // a, "f": c.get("intermediate_size", 3072),
        "V": c["vocab_size"], "P": c.get("max_position_embeddings", 512),
    }  # fmt: skip


def _electra_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**bert_config(x), "embedding_size": x["E"]}


def _electra_dims(c: Config) -> Dims:
    return {**bert_dims(c), "E": c.get("embedding_size", 128)}


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
        **bert_config(x), "relative_attention": True, "position_buckets": x["B"], "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
        "max_relative_positions": -1, "pooler_hidden_size": x["a"] * x["d"], "pooler_dropout": 0,
        "layer_norm_eps": 1e-7,
    }  # fmt: skip


def _deberta_dims(c: Config) -> Dims:
    return {**bert_dims(c), "B": c.get("position_buckets", 256)}


def _like_bert(name: str, **more: Any) -> Family:
    return Family(name, TASKS, ENCODER, bert_config, bert_dims, {"layer": "L"}, DROPOUTS,
                  lora_targets=more.pop("lora_targets", ("query", "value")), **more)  # fmt: skip


_SAME_EMBEDDING = Coincidence("embedding", "width", lambda x: x["E"] == x["a"] * x["d"],
                              {"E": lambda x: x["a"] * x["d"]})  # fmt: skip

ENCODERS = (
    _like_bert("bert"),
    _like_bert("roberta"),
    _like_bert("xlm-roberta"),
    _like_bert("mpnet", lora_targets=("q", "v")),
    Family("electra", TASKS, {**ENCODER, "E": var("E", 8)}, _electra_config, _electra_dims, {"layer": "L"}, DROPOUTS,
           lora_targets=("query", "value"), coincidences=(_SAME_EMBEDDING,)),
    Family("distilbert", TASKS, ENCODER, _distilbert_config, _distilbert_dims, {"layer": "L"},
           {"dropout": 0.1, "attention_dropout": 0.1}, lora_targets=("q_lin", "v_lin")),
    Family("deberta-v2", TASKS, {**ENCODER, "B": var("B")}, _deberta_config, _deberta_dims, {"layer": "L"}, DROPOUTS,
           attentions=("eager",), lora_targets=("query_proj", "value_proj")),
)  # fmt: skip
