"""Unsloth's table of the longest context that fits (docs.unsloth.ai, benchmarks; rows of Hugging Face with FA2).

A length at a boundary, no measured peak: mapped, not scored.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Row

NAME = "unsloth"
_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def recognises(row: Row) -> bool:
    return "unsloth.ai" in row["source"]


def fields(row: Row) -> Fields:
    return {
        "model.name": row["model"],
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.seq_len": row["seq_len"],
        "train.precision": "bf16-mixed",
        "train.outputs_cast": True,  # its Trainer has accelerate prepare the model
        "train.weights_dtype": "bf16",
        "train.quantization.type": "nf4",
        "train.quantization.double_quant": None,
        "train.quantization.compute_dtype": "bf16",
        "train.gradient_checkpointing": True,
        "train.attention": "flash",
        "train.optimizer": None,  # "adamw_8bit" is presumed, not said
        "train.peft.method": "lora",
        "train.peft.r": 32,
        "train.peft.targets": _LINEAR,
    }
