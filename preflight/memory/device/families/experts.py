"""Mixtures of experts.

transformers 5 computes experts in one grouped matrix product by default: each token stands as often as experts are
chosen for it, whichever these are. So memory does not depend on the routing, and no capacity is assumed. (Its "eager"
loop over experts would: there the largest share of one expert counts.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from preflight.memory.device.families.decoders import GROUPED_DIMS, WIDE, decoder_config, decoder_dims
from preflight.memory.device.families.family import ALL_HEADS, ONE_HEAD, Coincidence, Config, Dims, Family, var

_GROUPED_PRODUCT = {**WIDE, "h": var("u", 8, k=1, g=1), "f": var("f", 8), "X": var("X"), "K": var("K")}
"""X experts, K of them for a token. Grouped products need rows of whole 16 bytes: widths are multiples of 8."""
_ONE_WIDTH = {**GROUPED_DIMS, "f": var("f", 8), "X": var("X"), "K": var("K")}
_WIDE_8 = {"h": var("u", 8, g=1)}


def _with_wide_8(one: Coincidence) -> Coincidence:
    return replace(one, named={**one.named, **_WIDE_8})


_HEADS = (_with_wide_8(ALL_HEADS), _with_wide_8(ONE_HEAD))


def _mixtral_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**decoder_config(x), "num_local_experts": x["X"], "num_experts_per_tok": x["K"]}


def _mixtral_dims(c: Config) -> Dims:
    return {**decoder_dims(c), "X": c.get("num_local_experts", 8), "K": c.get("num_experts_per_tok", 2)}


def _olmoe_config(x: Mapping[str, int]) -> dict[str, Any]:
    return {**decoder_config(x), "num_experts": x["X"], "num_experts_per_tok": x["K"]}


def _olmoe_dims(c: Config) -> Dims:
    return {**decoder_dims(c), "X": c["num_experts"], "K": c["num_experts_per_tok"]}


def _moe_config(x: Mapping[str, int]) -> dict[str, Any]:
    shared = {"shared_expert_intermediate_size": x["F"]} if "F" in x else {}
    return {**_olmoe_config(x), "moe_intermediate_size": x["f"], **shared}


def _qwen3_dims(c: Config) -> Dims:
    return _olmoe_dims({**c, "intermediate_size": c["moe_intermediate_size"]})


def _qwen2_dims(c: Config) -> Dims:
    return {**_qwen3_dims(c), "F": c["shared_expert_intermediate_size"]}


_SWITCHES: Mapping[str, object] = {
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "output_router_logits": False,
}

EXPERTS = (
    Family("mixtral", ("causal-lm",), _GROUPED_PRODUCT, _mixtral_config, _mixtral_dims, {"layers": "L"},
           {**_SWITCHES, "router_jitter_noise": 0.0}, coincidences=_HEADS),
    Family("qwen3_moe", ("causal-lm",), _GROUPED_PRODUCT, _moe_config, _qwen3_dims, {"layers": "L"},
           {**_SWITCHES, "norm_topk_prob": True, "decoder_sparse_step": 1}, coincidences=_HEADS),
    Family("qwen2_moe", ("causal-lm",), {**_GROUPED_PRODUCT, "F": var("F", 8)}, _moe_config, _qwen2_dims,
           {"layers": "L"}, {**_SWITCHES, "norm_topk_prob": False, "decoder_sparse_step": 1}, coincidences=_HEADS),
    Family("olmoe", ("causal-lm",), _ONE_WIDTH, _olmoe_config, _olmoe_dims, {"layers": "L"},
           {**_SWITCHES, "norm_topk_prob": False, "clip_qkv": None}, coincidences=_HEADS),
)  # fmt: skip
