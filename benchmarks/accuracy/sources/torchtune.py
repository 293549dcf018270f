"""torchtune's README tables and tutorials (bd2a0fc): recipes/configs/llama3_2/3B_*, llama3_1/8B_*, llama2/7B_*."""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Inexpressible, Row

NAME = "torchtune"
GB = 10**9
"""memory_stats_log printed max_memory_reserved / 1e9 when the tutorials were written (torchtune/utils/memory.py)."""
_LADDER = ("baseline", "packed", "compile", "chunkedce", "ac", "optbwd", "actoff", "adam8")
"""README "Optimization flags": each row adds its technique to the row above."""
_MLP = ["gate_proj", "up_proj", "down_proj"]
_ADAPTED = ("lora", "qlora")
"""Its last rows: all of it but optimizer_in_bwd and AdamW8bit."""


def recognises(row: Row) -> bool:
    return "pytorch/torchtune" in row["source"]


def fields(row: Row) -> Fields | Inexpressible:
    if "llama3.2-3b" in row["id"] and "tutorials" not in row["source"]:
        return _ladder(row, row["id"].rpartition("-")[2])
    if "tutorials" in row["source"]:
        return _common(row) | _tutorial(row)
    if "a6000" in row["id"]:
        return Inexpressible("which of the recipe's settings the table overrides is not said")
    return _common(row) | _table(row)


def _common(row: Row) -> dict[str, object]:
    found: dict[str, object] = {
        "model.name": row["model"],
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.grad_accum": 1,
        "train.precision": "bf16",  # dtype: bf16, every parameter
        "train.attention": "sdpa",  # packed batches: flex attention with a block mask, no scores are kept
        "train.optimizer": "adamw",
        # The table's first row has 25.5 GiB in all: 8 bytes for each parameter, and no room for foreach's temporaries.
        "train.optimizer_impl": "fused",
        "train.outputs_kept": "no",  # `del logits` before backward (recipes/full_finetune_single_device.py)
        "software": {"torchtune": "bd2a0fc"},
    }
    return found | ({"machine.gpu": row["gpu"]} if row["gpu"] != "not stated" else {})


def _ladder(row: Row, name: str) -> dict[str, object]:
    step = _LADDER.index("actoff") if name in _ADAPTED else _LADDER.index(name)
    has = _LADDER[: step + 1]
    found = _common(row) | {
        # The baseline pads alpaca to each batch's longest, which no document gives; packed batches are full.
        "train.seq_len": row["seq_len"] if "packed" in has else None,
        "train.sequences": "packed" if "packed" in has else "dynamic",
        "train.compile": "compile" in has,
        "train.loss": "chunked" if "chunkedce" in has else "full",  # CEWithChunkedOutputLoss: 8 chunks
        "train.gradient_checkpointing": "ac" in has,
        "train.optimizer_in_backward": "optbwd" in has and name not in _ADAPTED,
        "train.activation_offload": "actoff" in has,
    }
    if name == "adam8":
        found["train.optimizer"] = "adamw-8bit"
    if name in _ADAPTED:  # llama3_2/3B_(q)lora_single_device.yaml
        found |= _adapter(["q_proj", "v_proj", "o_proj", *_MLP], 64, name == "qlora")
    return found


def _table(row: Row) -> dict[str, object]:
    """README "Memory and training speed": batch 2, packed to 2,048, compiled; the rest as the recipe's file has it."""
    found: dict[str, object] = {
        "train.seq_len": row["seq_len"],
        "train.sequences": "packed",
        "train.compile": True,
        "train.loss": "chunked",  # CEWithChunkedOutputLoss, later LinearCrossEntropyLoss
        "train.gradient_checkpointing": True,  # enable_activation_checkpointing: True in each
    }
    if "70b" in row["id"]:  # 70B_full.yaml, 70B_lora.yaml on 8 GPUs: FSDP2; "CPU offload with fused optimizer"
        found |= {"parallel.strategy": "fsdp", "parallel.gpus_per_node": 8, "parallel.ranks_per_node": 8}
        if not row["peft"]:
            apart = {"custom_sharded_layers": ["tok_embeddings", "output"]}
            found |= {"parallel.offload": "parameters", "parallel.options": apart, "train.optimizer_impl": "fused"}
    elif not row["peft"]:  # 8B_full_single_device.yaml
        found |= {"train.optimizer": "paged-adamw-8bit", "train.optimizer_in_backward": True}
    if row["peft"]:  # 8B_(q)lora_single_device.yaml, 70B_lora.yaml: output_proj is the attention's
        targets = ["q_proj", "v_proj", "o_proj", *_MLP]
        found |= _adapter(targets, 16 if "70b" in row["id"] else 8, "qlora" in row["id"])
    return found


def _tutorial(row: Row) -> dict[str, object]:
    """llama2/7B_(q)lora_single_device, whose batches are padded to their longest: no document gives that length."""
    peft = row["peft"] or {}
    wanted = str(peft.get("targets", "q,v"))
    targets = ["q_proj", "v_proj"]
    if wanted.startswith("all"):
        targets += ["k_proj", "o_proj", *_MLP, "lm_head"]
    if "o + mlp" in wanted:
        targets += ["o_proj", *_MLP]
    return {
        "train.seq_len": None,
        "train.sequences": "dynamic",
        "train.gradient_checkpointing": True,  # enable_activation_checkpointing: True
        **_adapter(targets, peft.get("r", 8), "nf4" in str(peft.get("method"))),
    }


def _adapter(targets: list[str], rank: int, quantised: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "train.peft.method": "lora",
        "train.peft.r": rank,
        "train.peft.targets": targets,
        "train.peft.dtype": "bf16",
        "train.optimizer_impl": "fused",  # fused: True
    }
    if quantised:
        found |= {
            "train.quantization.type": "nf4",
            "train.quantization.double_quant": True,  # torchao's to_nf4 quantises the scalers too
            "train.quantization.compute_dtype": "bf16",
            "train.quantization.upcast_rest": False,
        }
    return found
