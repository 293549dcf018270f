"""Emulates CUDA on meta tensors: autocast with its weight cache, attention kernels, fused dropout.

torch.autocast does not act on meta tensors and `scaled_dot_product_attention` picks a CPU path there, so both are
emulated above autograd, in a TorchFunctionMode.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_ATEN = torch.ops.aten
MASK_ALIGNMENT = 8
"""Elements that the last dimension of an attention bias is padded to (mem_eff_alignment, ATen/native/transformers/
attention.cpp)."""


# Autocast's policy, op by op, as PyTorch publishes it ("CUDA Ops that can autocast to float16", "... to float32", "...
# that promote to the widest input type", in the documentation of torch.amp, and aten/src/ATen/autocast_mode.h). The
# sets hold the Python-level callables by which each op can be reached.
_LOWER = """
__matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d
conv_transpose2d conv_transpose3d conv_tbc _convolution linear matmul mm mv prelu einsum gru_cell lstm_cell
rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
_FLOAT32 = """
__pow__ __rpow__ __rdiv__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist
cosine_similarity cross_entropy_loss dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss
layer_norm log log10 log1p log2 margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss
nll_loss_nd nll_loss2d norm pdist poisson_nll_loss pow reciprocal renorm rsqrt sinh smooth_l1_loss soft_margin_loss
softplus tan triplet_margin_loss frobenius_norm nuclear_norm logit bilinear_upsample
"""
# These take a dtype: autocast passes float32 where the caller gave none, instead of casting the input first.
_FLOAT32_OUT = "softmax log_softmax prod cumprod cumsum sum linalg_vector_norm linalg_matrix_norm special_log_softmax"
_PROMOTE = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot cat stack"


def _callables(names: Iterable[str]) -> frozenset[Callable[..., Any]]:
    """Every builtin of these names. Python wrappers are left out, since the builtins that they call are recorded."""
    homes = (torch, torch.Tensor, F, torch._C._nn, torch.linalg, torch.special, torch._C._VariableFunctions)
    found = set()
    for name in names:
        for home in homes:
            for spelling in (name, f"{name}_") if home is not torch.Tensor else (name,):
                candidate = getattr(home, spelling, None)
                if callable(candidate) and not spelling.endswith("__" if home is not torch.Tensor else "\0"):
                    found.add(candidate)
    return frozenset(found)


LOWER = _callables(_LOWER.split())
FLOAT32 = _callables(_FLOAT32.split())
FLOAT32_OUT = _callables(_FLOAT32_OUT.split())
PROMOTE = _callables(_PROMOTE.split())

_SOFTMAX = (torch.softmax, torch.Tensor.softmax, torch.log_softmax, torch.Tensor.log_softmax)


def _widens(args: Any, kwargs: Any) -> bool:
    """Whether a softmax is asked to turn fp16 into fp32."""
    dtype = kwargs.get("dtype", args[2] if len(args) > 2 else None)
    return args[0].dtype is torch.float16 and dtype is torch.float32


class Cuda(TorchFunctionMode):
    """Emulates CUDA under autocast to `dtype` (None: autocast off); `observe` sees every result."""

    def __init__(self, dtype: torch.dtype | None, attention: str, observe: Callable[[Any], None]) -> None:
        super().__init__()
        self.dtype, self.attention, self.observe = dtype, attention, observe
        self._weights: dict[int, torch.Tensor] = {}

    def again(self) -> Cuda:
        """A mode for recomputation under checkpointing: autocast is entered anew there, with an empty cache."""
        return Cuda(self.dtype, self.attention, self.observe)

    def _cast(self, x: Any, dtype: torch.dtype) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(self._cast(item, dtype) for item in x)
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dtype in (dtype, torch.float64):
            return x
        # cached_cast, autocast_mode.cpp: only fp32 leaves that require grad are cached, and only when cast down.
        if dtype is self.dtype and x.is_leaf and x.requires_grad and x.dtype is torch.float32:
            if id(x) not in self._weights:
                self._weights[id(x)] = x.to(dtype)
            return self._weights[id(x)]
        return x.to(dtype)

    def _autocast(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert self.dtype is not None
        to = None
        if func in LOWER:
            to = self.dtype
        elif func in FLOAT32:
            to = torch.float32
        elif func in FLOAT32_OUT:
            first = args[0] if args else kwargs.get("input")
            if isinstance(first, torch.Tensor) and first.is_floating_point() and kwargs.get("dtype") is None:
                kwargs = {**kwargs, "dtype": torch.float32}
        elif func in PROMOTE:
            flat = [one for arg in args for one in (arg if isinstance(arg, (tuple, list)) else [arg])]
            tensors = [one for one in flat if isinstance(one, torch.Tensor)]
            if any(t.dtype is torch.float32 for t in tensors):
                to = torch.float32
        if to is not None:
            args = tuple(self._cast(a, to) for a in args)
            kwargs = {k: self._cast(v, to) for k, v in kwargs.items()}
        return args, kwargs

    def __torch_function__(self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, types.FunctionType) and func.__module__ in ("torch.nn.functional", "torch.functional"):
            return self._inside(func, args, kwargs)
        if self.dtype is not None:
            args, kwargs = self._autocast(func, args, kwargs)
        if func is F.scaled_dot_product_attention:
            out = self._sdpa(*args, **kwargs)
        elif func is torch.dropout and args[2] and args[1] > 0:
            # CUDA's fused dropout keeps a bool mask (native_dropout); meta would keep a float noise tensor.
            out = torch.native_dropout(args[0], args[1], True)[0]
        elif func in _SOFTMAX and _widens(args, kwargs):
            # CUDA fuses a softmax of fp16 into fp32 (at::softmax, half_to_float); bf16 is converted first.
            fused = _ATEN._log_softmax if "log" in func.__name__ else _ATEN._softmax
            out = fused(args[0], args[1] if len(args) > 1 else kwargs["dim"], True)
        else:
            out = func(*args, **kwargs)
        self.observe(out)
        return out

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a Python-level composite, with this mode on for its inner calls.

        Its own override checks are switched off, or it would come back here for ever.
        """
        names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
        homes = (vars(F), vars(torch.functional))  # not func.__globals__: dispatchers are made elsewhere
        saved = [(home, name, home[name]) for home in homes for name in names if name in home]
        for home, name, _ in saved:
            home[name] = lambda *_: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            for home, name, original in saved:
                home[name] = original

    def _sdpa(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """The kernel CUDA would choose (sdp_utils.cpp): flash for 16-bit without a mask, memory-efficient otherwise,
        math for grouped heads that memory-efficient attention does not take."""
        q, k, v = query, key, value
        grouped = enable_gqa and q.shape[-3] != k.shape[-3]
        half = q.dtype in (torch.float16, torch.bfloat16)
        head = q.shape[-1]
        takes_flash = half and attn_mask is None and head <= 256 and v.shape[-1] == head
        if takes_flash and self.attention in ("sdpa", "flash"):
            return _ATEN._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
        if grouped and self.attention != "math":
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        if self.attention == "math":
            return _ATEN._scaled_dot_product_attention_math(
                q, k, v, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=grouped
            )[0]
        if attn_mask is not None:
            spare = -attn_mask.shape[-1] % MASK_ALIGNMENT
            if spare:
                attn_mask = F.pad(attn_mask, (0, spare))[..., : attn_mask.shape[-1]]
            attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
        return _ATEN._scaled_dot_product_efficient_attention(
            q, k, v, attn_mask, q.requires_grad or k.requires_grad, dropout_p, is_causal, scale=scale
        )[0]
