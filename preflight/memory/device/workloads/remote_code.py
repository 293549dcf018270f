"""Models whose code comes with their weights (`trust_remote_code`): which family's law is used for them.

transformers has no class for them, so they cannot be traced; but each was written after a family that it has, and keeps
what that family keeps but for what is said here, from reading its modeling file. That difference widens the interval,
and what is held besides (a normalised copy of the head, a mask of linear positions) is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.law.attention import window
from preflight.memory.device.law.setup import Likeness, Terms
from preflight.memory.device.law.workload import Config, WorkloadRequest
from preflight.memory.device.workloads.own_step import undescribed
from preflight.vocabulary.values import Unknown

SAME_CODE = {"xlm-roberta": "roberta", "mistral": "llama", "camembert": "roberta", "deberta_v2": "deberta-v2"}
"""Architectures whose tape is another's, event by event (mistral: within its sliding window)."""

FUSED = (0.0, 0.03)
"""q, k and v, or gate and up, in one product: Phi-3's law against Llama's at one set of dimensions asks for 0 to 3.1 %
more over full training and LoRA, plain and mixed, with and without checkpointing
(tests/memory/device/workloads/test_remote_code.py). An additional bias changes nothing: Qwen2's law against Llama's."""
NEAR = (0.10, 0.06)
"""Where norms or the feed-forward network are of another make: LayerNorm for RMSNorm is 6 to 9 % of the activations."""


def _same(c: Config) -> dict[str, Any]:
    return {"num_key_value_heads": c.get("num_key_value_heads") or c["num_attention_heads"], **c}


def _untied(c: Config) -> dict[str, Any]:
    """Llama's config; the head does not share the embedding's weight unless the config says so."""
    return {"tie_word_embeddings": False, **_same(c)}


def _qwen(c: Config) -> dict[str, Any]:
    """`intermediate_size` counts gate and up together (modeling_qwen.py, QWenMLP: `intermediate_size // 2`)."""
    return {"tie_word_embeddings": False, **_same(c), "intermediate_size": c["intermediate_size"] // 2}


def _chatglm(c: Config) -> dict[str, Any]:
    """ChatGLM2, ChatGLM3 and GLM-4-9B (modeling_chatglm.py: fused qkv with grouped heads, fused SwiGLU, RMSNorm)."""
    heads = c["num_attention_heads"]
    return {
        "hidden_size": c["hidden_size"],
        "num_attention_heads": heads,
        "num_hidden_layers": c["num_layers"],
        "num_key_value_heads": c["multi_query_group_num"] if c.get("multi_query_attention") else heads,
        "head_dim": c.get("kv_channels") or c["hidden_size"] // heads,
        "intermediate_size": c["ffn_hidden_size"],
        "vocab_size": c["padded_vocab_size"],
        "max_position_embeddings": c.get("seq_length", 8192),
        "tie_word_embeddings": False,
    }


def _chatglm_first(c: Config) -> dict[str, Any]:
    """ChatGLM-6B: LayerNorm, GELU and a fused qkv, as GPT-NeoX has them, one after the other."""
    return {
        "hidden_size": c["hidden_size"],
        "num_attention_heads": c["num_attention_heads"],
        "num_hidden_layers": c["num_layers"],
        "intermediate_size": c["inner_hidden_size"],
        "vocab_size": c["vocab_size"],
        "max_position_embeddings": c.get("max_sequence_length", 2048),
        "rotary_pct": 1.0,
        "use_parallel_residual": False,
        "tie_word_embeddings": False,
    }


_QKV = ("q_proj", "k_proj", "v_proj")
_SAME = "the layers are the same"
_ONE_PRODUCT = f"{_SAME}, but q, k and v are one product"
QWEN = Likeness(
    "qwen2",
    _qwen,
    _ONE_PRODUCT,
    modules={
        "c_attn": _QKV,
        "attn.c_proj": ("o_proj",),
        "c_proj": ("o_proj", "down_proj"),
        "w1": ("up_proj",),
        "w2": ("gate_proj",),
        "mlp.c_proj": ("down_proj",),
    },
    targets=("c_attn",),
    wider=FUSED,
)
BAICHUAN = Likeness("llama", _untied, _ONE_PRODUCT, modules={"W_pack": _QKV}, targets=("W_pack",), wider=FUSED)
HEAD_COPY: Terms = ((1, {"V": 1, "h": 1}),)
"""NormHead normalises its weight in each training step, and the product keeps the result (modeling_baichuan.py)."""
HEAD_PULSE: Terms = ((2, {"V": 1, "h": 1}),)
"""That quotient is fp32 before it is cast, under autocast: as much as two of 16 bits."""
ALIBI_MASK: Terms = ((1, {"b": 1, "a": 1, "s": 2}), (1, {"a": 1, "s": 2}))
"""The mask of linear positions, and its sum with each sample's padding (modeling_baichuan.py of the 13B, BaichuanModel:
get_alibi_mask), both with a value per head."""


def _baichuan(c: Config) -> Likeness:
    """Baichuan 2 is known by its vocabulary of 125,696 pieces, the models of 13B by their 40 heads."""
    second, alibi = c.get("vocab_size") == 125696, c.get("num_attention_heads") == 40
    extras = [
        *(["a normalised copy of the head"] if second else []),
        *(["a mask of linear positions"] if alibi else []),
    ]
    held = (HEAD_COPY if second else ()) + (ALIBI_MASK if alibi else ())
    note = BAICHUAN.note + (f", and there is {' and '.join(extras)} in addition" if extras else "")
    return replace(
        BAICHUAN,
        note=note,
        held=held,
        pulse=HEAD_PULSE if second else (),
        attention="efficient" if alibi else None,
    )


CHATGLM = Likeness(
    "phi3",
    _chatglm,
    "both fuse the same products, but here half of each head is rotated",
    modules={
        "query_key_value": ("qkv_proj",),
        "dense": ("o_proj",),
        "dense_h_to_4h": ("gate_up_proj",),
        "dense_4h_to_h": ("down_proj",),
    },
    targets=("query_key_value",),
    wider=FUSED,
)
CHATGLM_FIRST = Likeness(
    "gpt_neox",
    _chatglm_first,
    "its layers are the most similar ones, with eager attention",
    targets=("query_key_value",),
    wider=NEAR,
    attention="eager",
)
INTERNLM2 = Likeness(
    "llama",
    _untied,
    _ONE_PRODUCT,
    modules={"wqkv": _QKV, "wo": ("o_proj",), "w1": ("gate_proj",), "w3": ("up_proj",), "w2": ("down_proj",)},
    targets=("wqkv",),
    wider=FUSED,
)
LIKE_LLAMA = Likeness("llama", _untied, _SAME)
INTERNLM = Likeness("llama", _untied, f"{_SAME}, except for biases in attention")
MINICPM = Likeness("llama", lambda c: {"tie_word_embeddings": True, **_same(c)}, f"{_SAME}, but scaled by constants")
ORION = Likeness("llama", _untied, f"{_SAME}, but LayerNorm keeps less than RMSNorm", wider=(NEAR[0], 0.0))
_FIRST_FALCON = "it is the same model under the type of its first release"
_ALIKE: Mapping[str, Likeness] = {
    "qwen": QWEN,
    "internlm": INTERNLM,
    "internlm2": INTERNLM2,
    "internlm3": LIKE_LLAMA,
    "aquila": LIKE_LLAMA,
    "xverse": LIKE_LLAMA,
    "skywork": LIKE_LLAMA,
    "yi": LIKE_LLAMA,
    "minicpm": MINICPM,
    "orion": ORION,
    "refinedwebmodel": Likeness("falcon", dict, _FIRST_FALCON),
    "refinedweb": Likeness("falcon", lambda c: {**c, "new_decoder_architecture": True}, _FIRST_FALCON),
}


def likeness(architecture: str, config: Config) -> Likeness | None:
    """The law to use for a `model_type` that transformers has no class for; None: it has a class, or no law is like
    it."""
    name = architecture.lower().replace("-", "_")
    if name == "chatglm":
        return CHATGLM_FIRST if "inner_hidden_size" in config else CHATGLM
    return _baichuan(config) if name == "baichuan" else _ALIKE.get(name)


class Likened(Struct, frozen=True):
    """The model of transformers whose law is used for a job's model. `reach`: the size of its sliding window."""

    architecture: str
    config: Config
    like: Likeness | None
    reach: int | None


def likened(asked: WorkloadRequest) -> Likened | Unknown:
    """The model of transformers whose law a job's model uses, or the reason why there is none."""
    architecture, config = asked.architecture, asked.config
    like = likeness(architecture, config)
    if like is not None:
        try:
            architecture, config = like.architecture, like.config(config)
        except (KeyError, TypeError) as error:
            return undescribed(architecture, error)
    return Likened(SAME_CODE.get(architecture, architecture), config, like, window(architecture, config))
