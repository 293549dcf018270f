"""Encoders of text: BERT and those like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.decoders import SINGLE
from preflight.memory.device.families.family import SAME_EMBEDDING, Family, Named, Spelling, var

ENCODER = {**SINGLE, "P": var("P")}
"""One width, h = a d, and learnt positions."""
TASKS = ("sequence-classification", "masked-lm", "token-classification")
DROPOUTS: Mapping[str, object] = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


_KEYS: Mapping[str, tuple[str, int | None]] = {
    "L": ("num_hidden_layers", 12),
    "a": ("num_attention_heads", 12),
    "f": ("intermediate_size", 3072),
    "V": ("vocab_size", None),
    "P": ("max_position_embeddings", 512),
}
_BERT = Spelling(("hidden_size", 768), _KEYS)
_ELECTRA = Spelling(("hidden_size", 768), {**_KEYS, "E": ("embedding_size", 128)})
_DEBERTA = Spelling(("hidden_size", 768), {**_KEYS, "B": ("position_buckets", 256)})
_DISTILBERT = Spelling(
    ("dim", 768),
    {
        "L": ("n_layers", 6),
        "a": ("n_heads", 12),
        "f": ("hidden_dim", 3072),
        "V": ("vocab_size", 30522),
        "P": ("max_position_embeddings", 512),
    },
)


def _deberta_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {
        **_DEBERTA.config(x),
        "relative_attention": True,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "max_relative_positions": -1,
        "pooler_hidden_size": x["a"] * x["d"],
        "pooler_dropout": 0,
        "layer_norm_eps": 1e-7,
    }


def _encoder(name: str, spelling: Spelling = _BERT, named: Named = ENCODER, **more: Any) -> Family:
    usual: dict[str, Any] = {"config": spelling.config, "structure": DROPOUTS, "lora_targets": ("query", "value")}
    return Family(name, TASKS, named, dims=spelling.dims, depths={"layer": "L"}, **{**usual, **more})


ENCODERS = (
    _encoder("bert"),
    _encoder("roberta"),
    _encoder("xlm-roberta"),
    _encoder("mpnet", lora_targets=("q", "v")),
    _encoder("electra", _ELECTRA, {**ENCODER, "E": var("E", 8)}, coincidences=(SAME_EMBEDDING,)),
    _encoder(
        "distilbert",
        _DISTILBERT,
        structure={"dropout": 0.1, "attention_dropout": 0.1},
        lora_targets=("q_lin", "v_lin"),
    ),
    _encoder(
        "deberta-v2",
        _DEBERTA,
        {**ENCODER, "B": var("B")},
        config=_deberta_config,
        attentions=("eager",),
        lora_targets=("query_proj", "value_proj"),
    ),
)
