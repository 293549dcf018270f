"""fitcheck's calibration runs on a Tesla T4 (fitcheck-llm 0.3.1, sdist: scripts/measure.py, data/measurements).

One warm-up step, then one measured step of `model(input_ids=batch, labels=batch)` with random tokens and no mask.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Row

NAME = "fitcheck"
_SOFTWARE = {
    "sweep": {"torch": "2.14.0", "transformers": "5.17.0", "peft": "0.20.0"},
    "p3": {"torch": "2.10.0", "transformers": "5.0.0", "peft": "0.19.1", "bitsandbytes": "0.50.2"},
}
"""data/measurements/README.md and each file's `_provenance`."""


def recognises(row: Row) -> bool:
    return "Anassbzdd/fitcheck" in row["source"]


def fields(row: Row) -> Fields:
    peft = row["peft"] or {}
    found: dict[str, object] = {
        "model.name": row["model"],
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.seq_len": row["seq_len"],
        "train.sequences": "exact",  # torch.randint((batch, length)), no attention_mask: measure.py, measure()
        "train.precision": "fp16",  # from_pretrained(dtype=float16), no autocast: build_model()
        "train.gradient_checkpointing": True,  # use_reentrant=False; calibration_sweep.py: GRAD_CHECKPOINT
        # SDPA is pinned to EFFICIENT_ATTENTION, keys and values expanded before it: _sdpa_backend()
        "train.attention": "efficient" if row["attn_impl"] == "sdpa" else "eager",
        "train.optimizer": "adamw",  # torch.optim.AdamW(params, lr=1e-4): build_optimizer()
        "train.optimizer_impl": "foreach",  # torch's default on CUDA
        "train.outputs_kept": "step",  # `out` lives through backward and step: one_step()
        "train.peft.method": "lora",
        "train.peft.r": peft["r"],
        "train.peft.targets": [f"{x}_proj" for x in peft["targets"].split(",")],
        "train.peft.dropout": 0.0,
        "train.peft.dtype": "fp32",  # peft's default (autocast_adapter_dtype), and build_optimizer() makes it so
        "machine.gpu": "T4",
        "software": _SOFTWARE["p3" if "-p3-" in row["id"] else "sweep"],
    }
    if row["id"].endswith("-nf4"):
        found |= {
            "train.quantization.type": "nf4",
            "train.quantization.double_quant": False,  # calibration_sweep.py: DOUBLE_QUANT
            "train.quantization.compute_dtype": "fp16",
            "train.quantization.upcast_rest": True,  # prepare_model_for_kbit_training
        }
    return found
