"""Models that a framework computes with its own code, in the framework's terms: litgpt's one decoder class.

A checkpoint has the same weights everywhere, but what its step keeps hangs on the code that runs it
(`preflight/tracer/litgpt.py`). These are traced; no law of theirs is shipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.memory.device.workloads.remote import Likeness
from preflight.vocabulary.job import Job
from preflight.vocabulary.spelling import PARTS

_MLP = {"llama": "silu", "mistral": "silu", "phi3": "silu", "gemma": "geglu",
        "falcon": "gelu", "gpt-neox": "gelu", "phi": "gelu"}  # fmt: skip
"""Architectures whose litgpt form is known, with its MLP (litgpt/config.py)."""
_PARALLEL = frozenset({"falcon", "gpt-neox", "phi"})
_SHARED_NORM = frozenset({"falcon", "phi"})
WIDENED = (0, 2)
"""RMSNorm computes in fp32 (Lightning-AI/litgpt 6178c7cc, October 2023); earlier code states a release before this."""

DISTRIBUTED = (0, 5)
"""litgpt shards with ModelParallelStrategy, which loads parameter by parameter (litgpt/finetune/lora.py, 0.5)."""

WIDER, WIDER_QUANTISED = (0.05, 0.12), (0.05, 0.30)
"""How far transformers' law is from litgpt's runs (benchmarks/accuracy/sources/litgpt.py): LoRA -10 to +7 %, beside
quantised weights -23 to -9 %."""


def litgpt(job: Job, architecture: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The description of litgpt's model for a checkpoint; None: the job does not run litgpt, or its form is not known
    (models, adapters but LoRA and LLaMA-Adapter), or it is sharded or checkpointed, where transformers' layers stand
    for litgpt's.

    `config`: transformers' keys. A grouped projection of both queries and values under one name of transformers
    (query_key_value, qkv_proj) stands for litgpt's default of those two.
    """
    architecture = architecture.replace("_", "-")
    alone = job.parallel.strategy in ("none", "ddp") and not job.train.gradient_checkpointing
    known = architecture in _MLP and job.train.peft.method in (None, "none", "lora", "llama-adapter")
    if "litgpt" not in job.software or not known or not alone:
        return None
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if not isinstance(width, int) or not isinstance(heads, int):
        return None
    size = config.get("head_dim") or width // heads
    groups = config.get("num_key_value_heads") or heads
    if architecture == "falcon":
        groups = 1 if config.get("multi_query", True) else heads
    rotated = config.get("rotary_pct", config.get("partial_rotary_factor", 0.5 if architecture == "phi" else 1.0))
    if architecture == "gpt-neox":
        rotated = config.get("rotary_pct", 0.25)
    layer = architecture in _PARALLEL
    return {
        "n_layer": config.get("num_hidden_layers"),
        "n_embd": width,
        "n_head": heads,
        "n_query_groups": groups,
        "head_size": size,
        "rope_n_elem": int(size * rotated),
        "intermediate_size": config.get("intermediate_size") or config.get("ffn_hidden_size") or 4 * width,
        "vocab": job.train.vocab_size or config.get("vocab_size"),
        "bias": architecture in ("gpt-neox", "phi"),
        "head_bias": architecture == "phi",
        "norm": "layer" if layer else "rms+1" if architecture == "gemma" else "rms",
        "widens": _release(job) >= WIDENED,
        "mlp": _MLP[architecture],
        "parallel_residual": layer,
        "shared_attention_norm": architecture in _SHARED_NORM,
        "scale_embeddings": architecture == "gemma",
    }


def stand_in(job: Job, architecture: str) -> Likeness:
    """transformers' law in the place of litgpt's own, where that cannot be traced."""
    quantised = job.train.quantization.type not in (None, "none")
    note = "run by litgpt's own code, and reckoned as by transformers: with torch its own step is traced"
    return Likeness(architecture, dict, note, wider=WIDER_QUANTISED if quantised else WIDER)


def repeats_keys(job: Job) -> bool:
    """Whether grouped keys and values are copied for each query head (torchtune/modules/attention.py)."""
    return "torchtune" in job.software


def gathers(job: Job) -> bool:
    """Whether FSDP loads a checkpoint with all parameters whole on every GPU: litgpt until 0.5, through Fabric
    (lightning/fabric/strategies/fsdp.py, load_checkpoint: `summon_full_params(module, rank0_only=False)`)."""
    return job.parallel.strategy == "fsdp" and "litgpt" in job.software and _release(job) < DISTRIBUTED


def _release(job: Job) -> tuple[int, ...]:
    """litgpt's release; of one that is not stated, the newest."""
    return tuple(map(int, re.findall(r"\d+", job.software["litgpt"])[:2])) or (99, 0)


def switches(targets: Sequence[str] | None) -> list[str]:
    """litgpt's LoRA switches for target modules in transformers' names; its defaults where none are stated."""
    if targets is None:
        return ["query", "value"]
    found = []
    for part in ("query", "key", "value", "projection", "mlp", "head"):
        modules = {module for family in PARTS.values() for module in family[part]}
        if part == "key":  # a grouped projection stands for litgpt's default, which is the other two
            modules -= {module for family in PARTS.values() for module in family["query"]}
        if modules & set(targets) or part in targets:
            found.append(part)
    return found
