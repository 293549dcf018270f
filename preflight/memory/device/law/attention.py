"""Which attention a job runs, by its setting, its release of transformers, its GPU and its dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.memory.device.families import Family
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.notation import NEWEST
from preflight.vocabulary.notation import release as numbers

FLASH_FROM = (8, 0)
"""Compute capability from which PyTorch has flash attention (sdp_utils.cpp, check_flash_attention_hardware_support)."""

_SDPA_SINCE = {
    (4, 36): "llama whisper falcon gpt_bigcode bart",
    (4, 37): "mistral qwen2 mixtral",
    (4, 38): "gemma",
    (4, 39): "phi stablelm starcoder2 cohere",
    (4, 40): "qwen2_moe olmo",
    (4, 41): "bert vit deit wav2vec2 hubert",
    (4, 42): "gemma2 gpt2 gpt_neox",
    (4, 43): "clip siglip",
    (4, 45): "phi3 roberta xlm-roberta mbart m2m_100 dinov2 albert camembert",
    (4, 46): "distilbert opt",
    (4, 47): "olmo2",
}
SDPA_SINCE = {name: release for release, names in _SDPA_SINCE.items() for name in names.split()}
"""Release of transformers whose model of this type first ran scaled_dot_product_attention where nothing was said
(`_supports_sdpa = True` in its modeling file; read off the releases 4.36 to 4.49)."""


SDPA_TORCH = (2, 0)
"""Release of PyTorch that has scaled_dot_product_attention; transformers runs it from 2.1 on (`is_torch_sdpa_available`
asks for 2.1.1)."""


def torch_before(job: Job, since: tuple[int, ...]) -> bool:
    """Whether a release of PyTorch is stated that is older."""
    return (numbers(job.software.get("torch")) or NEWEST) < since


_WINDOWED = {"mistral": 4096, "mixtral": None, "phi3": None, "starcoder2": None}
"""Types whose layers all attend to `sliding_window` positions, and its default (their configurations in 5.23)."""
_BY_SWITCH = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
"""Types where `use_sliding_window` says so, of the layers from `max_window_layers` on."""


def window(architecture: str, config: Mapping[str, Any]) -> int | None:
    """How many positions layers attend to, None: all. Over longer sequences transformers makes a mask of it, and the
    tape is that of padded batches: within 0.3 % of traces with a window."""
    reach = config.get("sliding_window", _WINDOWED.get(architecture))
    switched = architecture in _BY_SWITCH and config.get("use_sliding_window")
    return reach if isinstance(reach, int) and (architecture in _WINDOWED or switched) else None


def attention(
    job: Job, family: Family | None, release: tuple[int, ...] | None, own: str | None = None, reach: int | None = None
) -> tuple[str, bool]:
    """(attention, whether it is given a mask: of padding, or of a window). `release`: of transformers, None where it is
    not known. `own`: what a model's own code computes whatever is asked for. `reach`: see `window`."""
    train = job.train
    asked: str = own or train.attention or "sdpa"
    mask = (family is None or family.padded) and train.sequences not in ("exact", "packed")
    mask = mask or (reach is not None and (train.seq_len or 0) >= reach)
    since = SDPA_SINCE.get(family.model_type) if family is not None else None
    older = (release and since and release < since) or torch_before(job, (2, 1))
    if "attention" not in train.model_fields_set and own is None and older:
        asked = "eager"
    if asked == "flash":
        return "sdpa", False  # padding is taken out before the kernel (flash_attn_varlen)
    kind = "sdpa" if asked in ("efficient", "math") else asked
    return (family.attentions[0] if family is not None and kind not in family.attentions else asked), mask


def kernel(asked: str, mask: bool, half: bool, gpu: Gpu | None) -> str:
    """The law's name for the kernels that CUDA picks: "sdpa" is flash attention, "efficient" its replacement on GPUs
    without it. `half`: attention is computed in 16 bits."""
    if asked not in ("sdpa", "efficient"):
        return asked
    if mask or not half:
        return "sdpa"  # flash takes neither masks nor fp32: the tracer picks the other kernel by itself
    old = gpu is not None and gpu.compute_capability < FLASH_FROM
    return "efficient" if old or asked == "efficient" else "sdpa"


def repeats_keys(job: Job) -> bool:
    """Whether grouped keys and values are copied for each query head (torchtune/modules/attention.py)."""
    return "torchtune" in job.software
