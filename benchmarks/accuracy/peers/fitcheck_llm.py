"""fitcheck-llm (github.com/Anassbzdd/fitcheck): formulas for LoRA, QLoRA and full training of dense decoders.

It names three tiers: tensors (requested and allocated alike), allocator and process; the allocator's and the context's
share are one figure, of which the context is its profile's.
"""

from __future__ import annotations

from benchmarks.accuracy.peers.base import (
    Answer,
    Described,
    Refused,
    adapts,
    capacity_gpu,
    described,
    installed,
    quantised,
)
from benchmarks.accuracy.truth import MIB, TIERS, Tier
from preflight.vocabulary.job import Job

_GPUS = {"T4": "t4", "V100 16GB": "v100-16", "P100": "p100-16", "L4": "l4", "A10": "a10", "A10G": "a10",
         "A100 40GB": "a100-40", "A100 80GB": "a100-80", "H100 80GB": "h100", "H200": "h200", "RTX 3090": "3090",
         "RTX 4090": "4090", "RTX A6000": "a6000", "L40S": "l40s", "RTX 5090": "5090",
         "RTX 3060": "3060-12"}  # fmt: skip
_PRECISIONS = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
_OPTIMIZERS = {
    "adamw": "adamw",
    "adam": "adamw",
    "adamw-8bit": "adam8bit",
    "sgd": "sgd",
    "sgd-momentum": "sgd-momentum",
}
_TARGETS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
_LIKE_LLAMA = {"llama", "mistral", "qwen2", "qwen3"}
"""A gated MLP and no other layers, which is what its parameter count is of; it compares that count with the hub's and
refuses a model that differs (config_parser.py, _reconcile_param_count). Without the hub, the architecture decides."""


class Fitcheck:
    name = "fitcheck"
    tiers: tuple[Tier, ...] = TIERS

    def __init__(self) -> None:
        self.version = installed("fitcheck-llm")

    def estimate(self, job: Job) -> Answer | Refused:
        """Its `estimate` with the job's settings, where it has an option for each of them."""
        config, training = _config(job), _training(job)
        if isinstance(config, Refused):
            return config
        if isinstance(training, Refused):
            return training
        import fitcheck
        from fitcheck.config_parser import _count_params, _parse_fields

        values = {key: value for key, value in config.config.items() if value is not None}
        try:
            parsed = _parse_fields({"model_type": config.architecture, **values})
            dims = {key: getattr(parsed, key) for key in _DIMENSIONS}
            model = fitcheck.ModelConfig(name=config.name, num_params=_count_params(parsed), **dims)
            gpu = _GPUS.get(capacity_gpu(job) or "")
            spec = fitcheck.get_gpu(gpu) if gpu else fitcheck.get_gpu(vram_mib=job.machine.gpu_memory or 80 * 1024)
            found = fitcheck.estimate(model, fitcheck.TrainingConfig(**training), spec)
        except ValueError as error:
            return Refused(str(error).splitlines()[0][:100])
        return _tiers(found, gpu, training)


_DIMENSIONS = ("hidden_size", "num_layers", "num_attention_heads", "num_kv_heads", "intermediate_size", "vocab_size",
               "head_dim", "tie_word_embeddings")  # fmt: skip


def _tiers(found: object, gpu: str | None, training: dict[str, object]) -> Answer:
    from fitcheck.overhead_db import get_overhead_profile

    profile = get_overhead_profile(gpu, bool(training["flash_attn"]), str(training["quantization"]))
    total, overhead = getattr(found, "total_mib"), getattr(found, "overhead_mib")  # noqa: B009
    tensors = round((total - overhead) * MIB)
    return {"requested": tensors, "allocated": tensors, "reserved": round((total - profile.base_context_mib) * MIB),
            "process": round(total * MIB)}  # fmt: skip


def _config(job: Job) -> Described | Refused:
    if job.task not in (None, "causal-lm"):
        return Refused("only decoders that predict text")
    if job.parallel.strategy not in (None, "none"):
        return Refused("one GPU only")
    found = described(job)
    if isinstance(found, Described) and found.architecture not in _LIKE_LLAMA:
        return Refused(f"{found.architecture} is not shaped as Llama is")
    return found


def _training(job: Job) -> dict[str, object] | Refused:
    train = job.train
    if train.batch_size is None or train.seq_len is None:
        return Refused("batch size and length have to be stated")
    precision = _PRECISIONS.get(train.precision or "")
    if precision is None:
        return Refused(f"no option for {train.precision}")
    optimizer = _OPTIMIZERS.get(train.optimizer or "")
    if optimizer is None:
        return Refused(f"no option for the optimizer {train.optimizer}")
    if train.compile:
        return Refused("no option for compiled models")
    found: dict[str, object] = {
        "precision": precision,
        "optimizer": optimizer,
        "batch_size": train.batch_size,
        "seq_len": train.seq_len,
        "lora_rank": None,
        "grad_checkpoint": bool(train.gradient_checkpointing),
        "flash_attn": train.attention != "eager",
        "quantization": "none",
    }
    if quantised(job):
        kind = train.quantization.type
        if kind not in ("nf4", "int8"):
            return Refused(f"no option for {kind}")
        found |= {"quantization": kind, "double_quant": bool(train.quantization.double_quant)}
    if adapts(job):
        targets = train.peft.targets
        if train.peft.method != "lora" or not isinstance(targets, list) or not set(targets) <= _TARGETS:
            return Refused("no option for these adapters")
        found |= {"lora_rank": train.peft.r, "lora_targets": targets}
    return found
