"""Which attention a job runs: what it asks for, what its transformers had, what its GPU and dtypes allow."""

from __future__ import annotations

from preflight.job import Job
from preflight.machines.model import Gpu
from preflight.memory.device.families import Family

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


def attention(job: Job, family: Family | None, release: tuple[int, ...] | None,
              own: str | None = None) -> tuple[str, bool]:  # fmt: skip
    """(attention, whether padding reaches it as a mask). `release`: of transformers, None where it is not known. `own`:
    what a model's own code computes whatever is asked for."""
    train = job.train
    asked: str = own or train.attention or "sdpa"
    mask = (family is None or family.padded) and train.sequences not in ("exact", "packed")
    since = SDPA_SINCE.get(family.model_type) if family is not None else None
    if "attention" not in train.model_fields_set and release and since and release < since:
        asked = "eager"
    if asked == "flash":
        return "sdpa", False  # padding is taken out before the kernel (flash_attn_varlen)
    kind = "sdpa" if asked in ("efficient", "math") else asked
    return (family.attentions[0] if family is not None and kind not in family.attentions else asked), mask


def kernel(asked: str, mask: bool, half: bool, gpu: Gpu | None) -> str:
    """The law's name for the kernels that CUDA picks: "efficient" where flash attention, which "sdpa" stands for, is
    not to be had but would have been picked. `half`: attention is computed in 16 bits."""
    if asked not in ("sdpa", "efficient"):
        return asked
    if mask or not half:
        return "sdpa"  # flash takes neither masks nor fp32: the tracer picks the other kernel by itself
    old = gpu is not None and gpu.compute_capability < FLASH_FROM
    return "efficient" if old or asked == "efficient" else "sdpa"
