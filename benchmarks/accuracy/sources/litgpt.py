"""litgpt's resource tables (torch 2.1, A100 40GB) and its configuration hub (commit 2685705, A10G).

Facts from finetune/lora.py, finetune/adapter.py, lit_gpt/model.py, lit_gpt/utils.py (8641822) and
config_hub/finetune/*/{full,lora,qlora}.yaml, litgpt/finetune/*.py (2685705). The models are litgpt's own code, which
`software.litgpt` says. The tables name commit 8641822 of 16 October 2023, and were merged on the 27th; between the two
RMSNorm became fp32 (6178c7cc), and their figures are those of a step that has it.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Inexpressible, Row, tiers

NAME = "litgpt"
_TABLES = {"torch": "2.1.0", "bitsandbytes": "0.41.1", "litgpt": "0.2.0"}
"""tutorials/resource-tables.md, "Relevant libraries"."""
_HUB = {"bitsandbytes": "0.42.0", "litgpt": "0.4.0"}
"""pyproject.toml when the rows were written, March to September 2024: bitsandbytes 0.41.0, then 0.42.0."""
_FUSED = {"stabilityai/stablelm-base-alpha-3b": ["query_key_value"], "tiiuae/falcon-7b": ["query_key_value"],
          "tiiuae/falcon-40b": ["query_key_value"], "microsoft/Phi-3-mini-4k-instruct": ["qkv_proj"]}  # fmt: skip
"""Where transformers has one projection for what litgpt's lora_query and lora_value adapt: the same number of adapter
weights (rank x (h + 3h) against 2 x rank x (h + h))."""
_ALL = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    "phi": ["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "lm_head"],
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"],
}
"""lora_query, _key, _value, _projection, _mlp and _head all true, in transformers' names."""
STATES = 8
"""Bytes per parameter of bf16 weights, gradients and both of AdamW's states."""
_NAMES = {"TinyLlama/TinyLlama-1.1B": "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"}
"""checkpoint_dir of config_hub/finetune/tiny-llama."""


def recognises(row: Row) -> bool:
    return "Lightning-AI/litgpt" in row["source"]


def fields(row: Row) -> Fields | Inexpressible:
    measured = tiers(row).get("allocated", 0)
    if not row["peft"] and row["params"] and measured < STATES * row["params"]:
        return Inexpressible("the figure is less than weights, gradients and Adam's states of its own configuration")
    tables = "resource-tables" in row["source"]
    method = str((row["peft"] or {}).get("method", ""))
    found: dict[str, object] = {
        "model.name": _NAMES.get(row["model"], row["model"]),
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.grad_accum": (128 if tables else _global_batch(row)) // row["batch_size"],
        # The longest example comes first (get_batch, longest_seq_ix), and no mask is passed whatever the padding. The
        # hub's files truncate at 512, and Alpaca reaches it (tutorials/0_to_litgpt.md prints 512 for another model).
        "train.seq_len": row["seq_len"] if tables else 512,
        "train.sequences": "exact" if tables else "bound",
        "train.precision": "bf16",  # bf16-true: Fabric makes every parameter bf16
        "train.gradient_checkpointing": False,  # only FSDPStrategy is given an activation_checkpointing_policy
        "train.attention": "flash" if tables else "sdpa",  # SDPA without a mask in bf16; flash_attn where installed
        "train.loss": "chunked",  # lm_head_chunk_size=128 and chunked_cross_entropy (lit_gpt/utils.py)
        # `logits` and `loss` are bound until the next iteration makes its own. In the tables the longest example comes
        # first, when there is none of before, and the others are a fraction of it.
        "train.outputs_kept": "no" if tables else "loop",
        "train.optimizer": "adamw",
        "train.optimizer_impl": "foreach",  # torch.optim.AdamW's default on CUDA
        "machine.gpu": "A100-SXM4-40GB" if tables else "A10G",
        "software": _TABLES if tables else _HUB,
    }
    if any(name in row["model"] for name in ("Llama-3.2", "gemma")):
        # litgpt's GPT has an lm_head of its own; a checkpoint with tied weights is loaded into both (litgpt/model.py).
        found["model.config"] = {"tie_word_embeddings": False}
    if "phi-" in row["model"]:
        # GptNeoxMLP calls F.gelu(approximate="tanh"), which transformers calls so; its own Phi has it written out.
        found["model.config"] = {"hidden_act": "gelu_pytorch_tanh"}
    if "adapter" in method:  # finetune/adapter.py: LLaMA-Adapter, which peft calls AdaptionPrompt
        found |= {"train.peft.method": "llama-adapter", "train.peft.r": None, "train.peft.dtype": "bf16"}
    elif method:
        found |= _adapter(row, tables)
    if "nf4" in method or row["id"].endswith("-nf4"):  # the table's column of quantisation
        found |= {
            "train.quantization.type": "nf4",
            "train.quantization.double_quant": method.endswith("dq"),
            "train.quantization.compute_dtype": "bf16",
            "train.quantization.upcast_rest": False,  # BitsandbytesPrecision leaves norms and embeddings in bf16
            "train.optimizer": "paged-adamw",  # bnb.optim.PagedAdamW where the precision is bitsandbytes'
        }
    return found


def _global_batch(row: Row) -> int:
    """global_batch_size of config_hub/finetune; the tables' script has batch_size = 128."""
    if not row["peft"]:
        return 8 if "hi-" in row["model"] else 32 if "TinyLlama" in row["model"] else 64
    return 6 if "gemma" in row["model"] else 8


def _adapter(row: Row, tables: bool) -> dict[str, object]:
    peft = row["peft"] or {}
    wanted, model = str(peft.get("targets", "")), row["model"]
    if tables or wanted.startswith("q,v"):
        targets = query_and_value(model)
    else:
        kind = "phi3" if "Phi-3" in model else "phi" if "phi" in model else "llama"
        targets = _ALL[kind]
    return {
        "train.peft.method": "lora",
        "train.peft.r": peft["r"],
        "train.peft.targets": targets,
        "train.peft.dropout": 0.05 if tables or "gemma" not in model else 0.1,
        "train.peft.dtype": "bf16",  # made within fabric.init_module, as every parameter
    }


def query_and_value(model: str) -> list[str]:
    """lora_query and lora_value, litgpt's default, in transformers' names of a model's layers."""
    return _FUSED.get(model, ["q_proj", "v_proj"])
