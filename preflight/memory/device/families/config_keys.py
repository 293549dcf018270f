"""Keys of a model's config that make its tape another than its family's, apart from dimensions.

With `unlike` the model belongs to no family; with `unusual` it has a law of its family that names its activation
function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families.family import Config, Family

_ONLY: dict[str, dict[str, tuple[object, ...]]] = {
    "llama": {"partial_rotary_factor": (1.0,)},
    "phi3": {"partial_rotary_factor": (1.0,)},
    "gemma2": {"attn_logit_softcapping": (Any,), "final_logit_softcapping": (Any,)},
    "gpt2": {"add_cross_attention": (False,)},
    "bert": {"add_cross_attention": (False,), "position_embedding_type": ("absolute",)},
    "roberta": {"add_cross_attention": (False,), "position_embedding_type": ("absolute",)},
    "deberta-v2": {"conv_kernel_size": (0,), "relative_attention": (True,), "norm_rel_ebd": ("layer_norm",),
                   "share_att_key": (True,), "position_biased_input": (False,), "type_vocab_size": (0,)},
    "qwen2_moe": {"mlp_only_layers": ([],)},
    "qwen3_moe": {"mlp_only_layers": ([],)},
    **{name: {"tie_word_embeddings": (True,)} for name in ("bart", "mbart", "pegasus", "m2m_100")},
    "whisper": {"activation_dropout": (0, 0.0)},
    "marian": {"tie_word_embeddings": (True,), "share_encoder_decoder_embeddings": (True,)},
}  # fmt: skip
"""Config keys that change a model, and the values that a family's tape has; `Any`: whatever there is, but not null.

Of the keys that no family knows these are all that change bytes by more than biases do: each key of each family's
config was given another value, and the traces compared (tests/memory/device/families/test_config_keys.py). A bias of a
linear layer is one part in a thousand of its weights and keeps nothing. Kinds of rotary positions differ in values
alone."""
_ALTERNATING = ("gemma2",)
"""Types whose tape has layers of two kinds in turn."""


def unlike(architecture: str, config: Config) -> str | None:
    """The config key whose value makes a model that the family's tape is not of."""
    for key, values in _ONLY.get(architecture, {}).items():
        given = config.get(key, values[0])
        if given is None if values == (Any,) else given is not None and given not in values:
            return key
    if config.get("chunk_size_feed_forward"):  # transformers' apply_chunking_to_forward, in every encoder
        return "chunk_size_feed_forward"
    kinds = config.get("layer_types")
    mixed = isinstance(kinds, list) and len(set(map(str, kinds))) > 1
    return "layer_types" if mixed and architecture not in _ALTERNATING else None


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
    kind = KINDS.get(given, given)
    return {key: kind} if kind != KINDS.get(usual, usual) else {}
