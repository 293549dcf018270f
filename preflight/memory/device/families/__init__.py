"""Architecture families: which dimensions their models vary in, and how those stand in a Hugging Face config.

The names of dimensions, here and in laws: b batch, s length (t: target or text length), L layers, h width, a attention
heads, k key-value heads, d head size, R the part of it that is rotated, f feed-forward width, V vocabulary, P
positions, E embedding width, X experts, K experts per token, F the width of a shared expert, n image patches, m image
tokens (patches and class token), p patch size, D projection width, r LoRA rank; a second stack has its own (Lt, ht, ...
for CLIP's text side, Ld, F ... for decoders).

A family has one tape for all its layers, so these have none, and are traced where torch is: those with layers of
several kinds (SmolLM3 leaves the rotation out in every fourth; Gemma 3 and ModernBERT attend to a window in most), one
layer that runs many times (ALBERT), sizes that are no products of dimensions (BLOOM's slopes, for the largest power of
two below its heads; the stages of Swin and ConvNeXt), and training steps that no task of a job is (wav2vec 2.0,
HuBERT).
"""

from __future__ import annotations

from typing import Any

from preflight.memory.device.families.decoders import DECODERS
from preflight.memory.device.families.encoders import ENCODERS
from preflight.memory.device.families.experts import EXPERTS
from preflight.memory.device.families.family import GROUPED, Coincidence, Config, Dims, Family
from preflight.memory.device.families.older import OLDER
from preflight.memory.device.families.seq2seq import SEQ2SEQ
from preflight.memory.device.families.vision import VISION

FAMILIES: dict[str, Family] = {f.name: f for f in (*DECODERS, *OLDER, *EXPERTS, *ENCODERS, *SEQ2SEQ, *VISION)}


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


def family_of(architecture: str, config: Config) -> Family | None:
    """The family of a model: by its `model_type`, and by the config where a type has several. None: there is none."""
    if architecture == "falcon" and config.get("new_decoder_architecture"):
        return FAMILIES["falcon-grouped"]
    return None if unlike(architecture, config) is not None else FAMILIES.get(architecture)


__all__ = ["FAMILIES", "GROUPED", "Coincidence", "Config", "Dims", "Family", "family_of", "unlike"]
