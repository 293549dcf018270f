"""Models of the grid: dimensions of public checkpoints, built with random weights. Nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_BERT = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072}
_TIMM = ("resnet50", "convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "vit_small_patch16_224")
_DECODER = {"use_cache": False, "pad_token_id": 0}


@dataclass(frozen=True)
class Model:
    """`architecture` and `config` as transformers.AutoConfig.for_model takes them, or a timm `target`."""

    name: str
    task: str
    architecture: str = ""
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    target: str = ""
    lora: tuple[str, ...] = ()
    """Where adapters go."""


def _models() -> list[Model]:
    text, causal = "sequence-classification", "causal-lm"
    return [
        Model("bert-base", text, "bert", {**_BERT, "vocab_size": 30522, "max_position_embeddings": 512}, "",
              ("query", "value")),
        Model("roberta-base", text, "roberta", {**_BERT, "vocab_size": 50265, "max_position_embeddings": 514}),
        Model("distilbert", text, "distilbert", {
            "dim": 768, "n_heads": 12, "n_layers": 6, "hidden_dim": 3072, "vocab_size": 30522,
            "max_position_embeddings": 512}),
        Model("deberta-v3-small", text, "deberta-v2", {
            **_BERT, "num_hidden_layers": 6, "vocab_size": 128100, "max_position_embeddings": 512,
            "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
            "max_relative_positions": -1, "layer_norm_eps": 1e-7}),
        Model("gpt2", causal, "gpt2", {
            "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257, "use_cache": False}),
        Model("gpt2-medium", causal, "gpt2", {
            "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024, "vocab_size": 50257, "use_cache": False}),
        Model("qwen2.5-0.5b", causal, "qwen2", {
            **_DECODER, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
            "num_hidden_layers": 24, "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
            "max_position_embeddings": 32768}, "", ("q_proj", "v_proj")),
        Model("smollm2-135m", causal, "llama", {
            **_DECODER, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
            "num_hidden_layers": 30, "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True,
            "max_position_embeddings": 8192}, "", ("q_proj", "v_proj")),
        Model("llama-3.2-1b", causal, "llama", {
            **_DECODER, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
            "num_hidden_layers": 16, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True,
            "max_position_embeddings": 131072}, "", ("q_proj", "v_proj")),
        Model("t5-small", "seq2seq-lm", "t5", {
            "d_model": 512, "num_heads": 8, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6,
            "vocab_size": 32128, "decoder_start_token_id": 0, "pad_token_id": 0, "use_cache": False}, "", ("q", "v")),
        Model("t5-base", "seq2seq-lm", "t5", {
            "d_model": 768, "num_heads": 12, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12,
            "vocab_size": 32128, "decoder_start_token_id": 0, "pad_token_id": 0, "use_cache": False}, "", ("q", "v")),
        Model("vit-base", "image-classification", "vit", {
            **_BERT, "patch_size": 16, "image_size": 224, "num_labels": 1000}),
        Model("clip-vit-b32", "contrastive", "clip", {
            "projection_dim": 512,
            "vision_config": {**_BERT, "patch_size": 32, "image_size": 224},
            "text_config": {
                "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 12, "intermediate_size": 2048,
                "vocab_size": 49408, "max_position_embeddings": 77}}),
        Model("whisper-small", "speech-seq2seq", "whisper", {
            "d_model": 768, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072,
            "decoder_ffn_dim": 3072, "encoder_layers": 12, "decoder_layers": 12, "vocab_size": 51865,
            "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3, "use_cache": False}),
        *(Model(name, "image-classification", target=f"timm:{name}")
          for name in _TIMM),
    ]  # fmt: skip


MODELS: dict[str, Model] = {model.name: model for model in _models()}
