"""torchtune's README tables and tutorials (bd2a0fc): recipes/configs/llama3_2/3B_*, llama3_1/8B_*, llama2/7B_*."""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Inexpressible, Row

NAME = "torchtune"
GB = 10**9
"""memory_stats_log printed max_memory_reserved / 1e9 when the tutorials were written (torchtune/utils/memory.py)."""
_CHUNKED = "the loss is computed in chunks (CEWithChunkedOutputLoss), which no Job field says"
_WHY = {
    "chunkedce": _CHUNKED,
    "ac": _CHUNKED,
    "optbwd": "the optimizer steps within backward (optimizer_in_bwd), which no Job field says",
    "actoff": "activations are offloaded to the host, which no Job field says",
    "adam8": "activations are offloaded to the host, which no Job field says",
    "lora": "activations are offloaded to the host, which no Job field says",
    "qlora": "activations are offloaded to the host, which no Job field says",
}
"""README "Optimization flags": each row adds its technique to the row above; LoRA and QLoRA leave out two of them."""


def recognises(row: Row) -> bool:
    return "pytorch/torchtune" in row["source"]


def fields(row: Row) -> Fields | Inexpressible:
    name = row["id"].rpartition("-")[2]
    if row["id"].startswith("torchtune-llama3.2-3b") and name in _WHY:
        return Inexpressible(_WHY[name])
    if "tutorials" not in row["source"] and "llama3.2-3b" not in row["id"]:
        return Inexpressible("which of the recipes' settings the table overrides is not said")
    # The baseline and the tutorials train on alpaca, padded to each batch's longest; no document gives that length.
    dynamic = name == "baseline" or not isinstance(row["seq_len"], int)
    found: dict[str, object] = {
        "model.name": row["model"],
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.seq_len": None if dynamic else row["seq_len"],
        "train.sequences": "dynamic" if dynamic else "packed",
        "train.precision": "bf16",  # dtype: bf16, every parameter
        "train.gradient_checkpointing": "tutorials" in row["source"],  # enable_activation_checkpointing of the recipes
        "train.compile": name == "compile",
        "train.attention": "sdpa",  # packed batches: flex attention with a block mask, no scores are kept
        "train.optimizer": "adamw",
        "train.outputs_kept": "no",  # `del logits` before backward (recipes/full_finetune_single_device.py)
        "train.grad_accum": 1,
        "software": {"torchtune": "bd2a0fc"},
    }
    if row["gpu"] != "not stated":
        found["machine.gpu"] = row["gpu"]
    return found | (_adapter(row) if row["peft"] else {})


def _adapter(row: Row) -> dict[str, object]:
    """llama2/7B_(q)lora_single_device: rank, modules and fused AdamW; LoRA weights in the model's bf16."""
    peft = row["peft"] or {}
    wanted = str(peft.get("targets", "q,v"))
    mlp = ["gate_proj", "up_proj", "down_proj"]
    targets = ["q_proj", "v_proj"] + (["k_proj", "o_proj", *mlp, "lm_head"] if wanted.startswith("all") else [])
    if "o + mlp" in wanted:
        targets = ["q_proj", "v_proj", "o_proj", *mlp]
    found: dict[str, object] = {
        "train.peft.method": "lora",
        "train.peft.r": peft.get("r", 8),
        "train.peft.targets": targets,
        "train.peft.dtype": "bf16",
        "train.optimizer_impl": "fused",
    }
    if "nf4" in str(peft["method"]):
        found |= {
            "train.quantization.type": "nf4",
            "train.quantization.double_quant": True,  # torchao's to_nf4 quantises the scalers too
            "train.quantization.compute_dtype": "bf16",
            "train.quantization.upcast_rest": False,
        }
    return found
