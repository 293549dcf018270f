"""What CUDA's kernels take, on meta and on the faked device of a dry run: the kernel of attention that is chosen, and
workspaces."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_ATEN = torch.ops.aten
MASK_ALIGNMENT = 8
"""Elements that the last dimension of an attention bias is padded to (mem_eff_alignment, ATen/native/transformers/
attention.cpp)."""
_FLASH_ALIGNMENT = 8
"""Elements that a head is padded to for flash attention (attention.cpp, pad_last_dim)."""
_FLASH_HEAD = 256
"""The largest head that flash attention takes (sdp_utils.cpp, check_head_dim_size_flash)."""


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: Any = None, enable_gqa: bool = False, flash: bool = True, efficient: bool = True,
) -> Any:  # fmt: skip
    """Flash attention for 16 bits without a mask, else the memory-efficient kernel, which has whole heads, else the
    one that is written out (sdp_utils.cpp, select_sdp_backend). `flash`, `efficient`: the kernels that are allowed."""
    half, head = q.dtype in (torch.float16, torch.bfloat16), q.shape[-1]
    grouped = enable_gqa and q.shape[-3] != k.shape[-3]
    dense = q.dim() == 4 and q.dtype is not torch.float64
    if dense and flash and half and mask is None and head <= _FLASH_HEAD and v.shape[-1] == head:
        spare = -head % _FLASH_ALIGNMENT
        if spare:
            q, k, v = (F.pad(x, (0, spare)) for x in (q, k, v))
            scale = scale or head**-0.5
        out = _ATEN._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :head] if spare else out
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    if not dense or not efficient:
        return _ATEN._scaled_dot_product_attention_math(
            q, k, v, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=grouped
        )[0]
    if grouped:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    if mask is not None:
        spare = -mask.shape[-1] % MASK_ALIGNMENT
        mask = F.pad(mask, (0, spare))[..., : mask.shape[-1]] if spare else mask
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    return _ATEN._scaled_dot_product_efficient_attention(q, k, v, mask, wanted, dropout_p, is_causal, scale=scale)[0]


def kernel_scratch(func: Any, args: Any) -> list[torch.Tensor]:
    """Workspaces of CUDA kernels in the caching allocator, which meta kernels do not have."""
    if func is _ATEN._softmax_backward_data.default:
        # SoftMax.cu, softmax_backward_cuda_out: `tmp = grad * output`.
        return [torch.empty_like(args[0])]
    if func is _ATEN._scaled_dot_product_flash_attention_backward.default:
        # flash_api.cpp, mha_bwd: dq_accum and softmax_d in fp32 (rows rounded up to 128, which is left out here), and
        # for grouped heads keys' and values' gradients at full heads.
        query, key = args[1], args[2]
        scratch = [torch.empty_like(query, dtype=torch.float32), query.new_empty(query.shape[:-1], dtype=torch.float32)]
        if query.shape[1] != key.shape[1]:
            shape = (*query.shape[:2], *key.shape[2:])
            scratch += [key.new_empty(shape), key.new_empty(shape)]
        return scratch
    return []
