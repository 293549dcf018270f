"""Activation functions, where a config names another than its type has: one that leaves other tensors behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.family import Family

_USUAL = {
    ("hidden_act", "silu"): (
        "cohere llama mistral mixtral olmo olmo2 olmoe phi3 qwen2 qwen2_moe qwen3 qwen3_moe stablelm"
    ),
    ("hidden_act", "gelu"): (
        "bert deberta-v2 deit dinov2 electra gemma gpt_neox mpnet roberta starcoder2 vit xlm-roberta"
    ),
    ("hidden_act", "gelu_new"): "phi",
    ("hidden_activation", "gelu"): "gemma2",
    ("activation_function", "gelu_new"): "gpt2 gpt_neo gptj",
    ("activation_function", "gelu"): "gpt_bigcode bart marian mbart pegasus whisper",
    ("activation_function", "relu"): "m2m_100 opt",
    ("activation", "gelu"): "distilbert falcon",
}
USUAL = {name: how for how, names in _USUAL.items() for name in names.split()}
"""(config key, function) of each model type in transformers 5.23, tanh-approximated GELU as GELU."""

KINDS = {"gelu": "gelu", "silu": "gelu", "swish": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
"""Functions of one kernel that saves its input, and the one that saves its result; others are written out, each leaving
tensors of its own (transformers, activations.py)."""


def unusual(family: Family, config: Mapping[str, Any]) -> dict[str, object]:
    """The config key of a model whose activation leaves other tensors than its type's usual; part of a law's key."""
    key, usual = USUAL.get(family.model_type, ("", ""))
    given = config.get(key)
    if not isinstance(given, str) or key in family.structure:
        return {}
    return {key: given} if KINDS.get(given, given) != KINDS.get(usual, usual) else {}
