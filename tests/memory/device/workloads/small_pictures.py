"""Models of images and text with few and narrow layers, of every architecture that is traced."""

from __future__ import annotations

from typing import Any

TEXT = {"hidden_size": 64, "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 320, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 1}  # fmt: skip
SIGHT = {"hidden_size": 64, "num_hidden_layers": 9, "num_attention_heads": 4, "intermediate_size": 96,
         "image_size": 56, "patch_size": 14}  # fmt: skip
_CLIP = {"model_type": "clip_vision_model", **SIGHT}
_SIGLIP = {"model_type": "siglip_vision_model", "vision_use_head": False, **SIGHT}
_LLAMA, _MISTRAL = {"model_type": "llama", **TEXT}, {"model_type": "mistral", "head_dim": 16, **TEXT}
_QWEN = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}}
_VISUAL = {"depth": 9, "hidden_size": 64, "out_hidden_size": 64, "num_heads": 4, "intermediate_size": 96}
_MLLAMA = {**TEXT, "cross_attention_layers": [2, 5], "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
_MLLAMA_SIGHT = {
    "hidden_size": 64, "num_hidden_layers": 5, "num_global_layers": 3, "attention_heads": 4, "intermediate_size": 96,
    "image_size": 56, "patch_size": 14, "vision_output_dim": 192, "intermediate_layers_indices": [1, 3],
    "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1], [2, 2], [1, 3], [3, 1], [1, 4], [4, 1]],
}  # fmt: skip
_RESAMPLER = {"resampler_n_latents": 8, "resampler_depth": 3, "resampler_n_heads": 4, "num_key_value_heads": 2,
              "resampler_head_dim": 16, "hidden_size": 64}  # fmt: skip
_OPT = {**{k: v for k, v in TEXT.items() if k not in ("intermediate_size", "num_key_value_heads")}, "ffn_dim": 96,
        "model_type": "opt", "word_embed_proj_dim": 64, "max_position_embeddings": 1024}  # fmt: skip
_QFORMER = {**{k: v for k, v in SIGHT.items() if "size" in k and k.endswith(("n_size", "e_size"))}, "vocab_size": 50,
            "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96,
            "encoder_hidden_size": 64}  # fmt: skip

CONFIGS: dict[str, tuple[dict[str, Any], int | None]] = {
    "llava": ({"text_config": _LLAMA, "vision_config": _CLIP}, None),
    "llava_next": ({"text_config": _LLAMA, "vision_config": _CLIP,
                    "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}, 112),
    "qwen2_vl": ({"text_config": _QWEN, "vision_config": {"depth": 9, "embed_dim": 64, "hidden_size": 64,
                                                          "num_heads": 4, "mlp_ratio": 2}}, 112),
    "qwen2_5_vl": ({"text_config": _QWEN, "vision_config": {**_VISUAL, "fullatt_block_indexes": [2, 5, 8]}}, 112),
    "qwen3_vl": ({"text_config": {**_QWEN, "head_dim": 16},
                  "vision_config": {**_VISUAL, "deepstack_visual_indexes": [1, 3, 5],
                                    "num_position_embeddings": 64}}, 256),
    "paligemma": ({"text_config": {"model_type": "gemma", "head_dim": 16, **TEXT},
                   "vision_config": {**_SIGLIP, "projection_dim": 64}, "projection_dim": 64}, None),
    "gemma3": ({"text_config": {"head_dim": 16, "sliding_window": 4096, **TEXT},
                "vision_config": {**_SIGLIP, "image_size": 112}, "mm_tokens_per_image": 16}, None),
    "idefics2": ({"text_config": _MISTRAL, "vision_config": {**SIGHT, "image_size": 980},
                  "perceiver_config": _RESAMPLER, "do_image_splitting": False}, 378),
    "idefics3": ({"text_config": _LLAMA, "vision_config": SIGHT, "scale_factor": 2}, 100),
    "smolvlm": ({"text_config": _LLAMA, "vision_config": SIGHT, "scale_factor": 2}, 100),
    "internvl": ({"text_config": {"model_type": "qwen2", **TEXT},
                  "vision_config": {**SIGHT, "image_size": [56, 56], "patch_size": [14, 14]}}, 112),
    "mllama": ({"text_config": _MLLAMA, "vision_config": _MLLAMA_SIGHT}, None),
    "blip_2": ({"text_config": _OPT, "vision_config": SIGHT, "qformer_config": _QFORMER}, None),
}  # fmt: skip
"""By architecture: a config, and the side of images where it is free."""
