"""Qwen's and Qwen-VL's README "Profiling of Memory and Speed" (QwenLM/Qwen at 2df8e8a: finetune.py, finetune/*.sh).

No document says which figure the memory is, so these rows are mapped and not scored.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Inexpressible, Row

NAME = "qwen"
_TARGETS = ["c_attn", "c_proj", "w1", "w2"]
"""LoraArguments.lora_target_modules."""


def recognises(row: Row) -> bool:
    return "QwenLM/" in row["source"]


def fields(row: Row) -> Fields | Inexpressible:
    method = str((row["peft"] or {}).get("method", "")).lower()
    if "VL" in row["model"]:
        return Inexpressible("a vision-language model with a frozen image encoder")
    if method.startswith("qlora"):
        return Inexpressible("GPTQ's 4-bit weights are no quantisation that a Job names")
    if method == "lora(emb)":
        return Inexpressible("peft's modules_to_save trains copies of the embedding and the head")
    found: dict[str, object] = {
        "model.name": row["model"],
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.grad_accum": 8,  # finetune_lora_single_gpu.sh
        "train.seq_len": row["seq_len"],
        "train.sequences": "bound",  # preprocess() pads to model_max_length and passes a mask
        "train.precision": "bf16-mixed",  # --bf16 True
        "train.outputs_cast": True,  # its Trainer has accelerate prepare the model
        "train.weights_dtype": "bf16",  # the model's own config: Qwen loads in bf16 where nothing is said
        "train.gradient_checkpointing": True,  # --gradient_checkpointing
        "train.attention": "flash",  # "Flash attention 2 is applied"
        "train.optimizer": "adamw",  # optim: adamw_torch
        "machine.gpu": "A100-SXM4-80GB",
        "software": {"torch": "2.0.0"},
    }
    if method:
        found |= {"train.peft.method": "lora", "train.peft.r": 64, "train.peft.targets": _TARGETS,
                  "train.peft.dropout": 0.05, "train.peft.dtype": "bf16"}  # fmt: skip
    return found
