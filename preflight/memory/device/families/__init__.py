"""Architecture families: the dimensions in which their models differ, and their keys in a Hugging Face config.

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

from preflight.memory.device.families.config_keys import unlike
from preflight.memory.device.families.decoders import DECODERS
from preflight.memory.device.families.encoders import ENCODERS
from preflight.memory.device.families.experts import EXPERTS
from preflight.memory.device.families.family import GROUPED, Coincidence, Config, Dims, Family
from preflight.memory.device.families.older import OLDER
from preflight.memory.device.families.seq2seq import SEQ2SEQ
from preflight.memory.device.families.vision import VISION

FAMILIES: dict[str, Family] = {f.name: f for f in (*DECODERS, *OLDER, *EXPERTS, *ENCODERS, *SEQ2SEQ, *VISION)}


def family_of(architecture: str, config: Config) -> Family | None:
    """The family of a model: by its `model_type`, and by the config where a type has several. None: there is none."""
    if architecture == "falcon" and config.get("new_decoder_architecture"):
        return FAMILIES["falcon-grouped"]
    return None if unlike(architecture, config) is not None else FAMILIES.get(architecture)


__all__ = ["FAMILIES", "GROUPED", "Coincidence", "Config", "Dims", "Family", "family_of", "unlike"]
