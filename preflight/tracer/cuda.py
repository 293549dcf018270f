"""Emulates CUDA on meta tensors: autocast with its weight cache, attention kernels, fused dropout.

torch.autocast does not act on meta tensors and `scaled_dot_product_attention` picks a CPU path there, so both are
emulated above autograd, in a TorchFunctionMode.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .building import CannotBuild
from .kernels import attention

_ATEN = torch.ops.aten


# Autocast's policy on CUDA, op by op (AT_FORALL_... of aten/src/ATen/autocast_mode.h; a test compares them with the
# kernels that torch has registered). The sets hold the Python-level callables by which each op can be reached. Autocast
# on the CPU has other lists: `cat` and `cross_entropy_loss` are in those alone.
LOWER_OPS = """
_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu addmm addmv addr
matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot lstm_cell gru_cell
rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
"""
FLOAT32_OPS = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm rms_norm
group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa
"""
# These take a dtype: autocast passes float32 where the caller gave none, instead of casting the input first.
FLOAT32_OUT_OPS = "softmax log_softmax prod cumprod cumsum sum norm linalg_vector_norm linalg_matrix_norm"
PROMOTE_OPS = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot"
# Composites of these, and what Python calls them.
_LOWER_TOO = " __matmul__ __rmatmul__"
_FLOAT32_TOO = " __pow__ __rpow__ __rdiv__ __rtruediv__ nll_loss_nd"
_FLOAT32_OUT_TOO = " special_softmax special_log_softmax"


def _callables(names: str) -> frozenset[Callable[..., Any]]:
    """Every builtin of these names. Python wrappers are left out, since the builtins that they call are recorded."""
    homes = (torch, torch.Tensor, F, torch._C._nn, torch._C._linalg, torch._C._special, torch._C._VariableFunctions)
    found = {getattr(home, name, None) for name in names.split() for home in homes}
    return frozenset(one for one in found if callable(one))


LOWER = _callables(LOWER_OPS + _LOWER_TOO)
FLOAT32 = _callables(FLOAT32_OPS + _FLOAT32_TOO)
FLOAT32_OUT = _callables(FLOAT32_OUT_OPS + _FLOAT32_OUT_TOO)
PROMOTE = _callables(PROMOTE_OPS)

_CROSS_ENTROPY = torch._C._nn.cross_entropy_loss
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
        self.stated = dtype
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
            out = self._attention(*args, **kwargs)
        elif func is _CROSS_ENTROPY and self.dtype is not None:
            out = self._cross_entropy(*args, **kwargs)
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

    def _attention(self, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **more: Any) -> Any:
        more = {**more, "flash": self.attention in ("sdpa", "flash"), "efficient": self.attention != "math"}
        return attention(query, key, value, attn_mask, *args, **more)

    def _cross_entropy(
        self, x: Any, target: Any, weight: Any = None, reduction: int = 1, ignored: int = -100, smoothing: float = 0.0
    ) -> Any:
        """LossNLL.cpp, cross_entropy_loss: a composite. It tells log_softmax the type of its input, so autocast leaves
        that in 16 bits; nll_loss makes a copy of it in fp32."""
        axis, mean = int(x.dim() > 1), reduction == 1
        classes, logs = x.shape[axis], torch.log_softmax(x, axis, dtype=x.dtype)
        shape = (1, classes, *[1] * (x.dim() - 2)) if axis else (classes,)
        weighted = logs if weight is None else logs * weight.view(shape)

        def total(rows: Any, count: Any) -> Any:
            return rows if reduction == 0 else rows.sum() / count if mean else rows.sum()

        if target.is_floating_point():
            wanted = target * (1 - smoothing) + smoothing / classes if smoothing else target
            return total(-(weighted * wanted).sum(axis, dtype=torch.float32), x.numel() / classes)
        wide = [self._cast(one, torch.float32) for one in (logs, weight)]
        loss = torch._C._nn.nll_loss_nd(wide[0], target, wide[1], reduction, ignored)
        if not smoothing:
            return loss
        out = target == ignored
        smooth = (-weighted.sum(axis, dtype=torch.float32)).masked_fill_(out, 0.0)
        counts = (~out).sum() if weight is None else weight.gather(0, target.masked_fill(out, 0).flatten()).sum()
        return (1 - smoothing) * loss + total(smooth, counts) * (smoothing / classes)


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Autocast off, as under torch.autocast(enabled=False)."""
    stack = torch.overrides._get_current_function_mode_stack()
    mode = next((one for one in reversed(stack) if isinstance(one, Cuda)), None)
    dtype = mode.dtype if mode is not None else None
    try:
        if mode is not None:
            mode.dtype = None
        yield
    finally:
        if mode is not None:
            mode.dtype = dtype


@contextlib.contextmanager
def autocast_in_step(dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast that a program enters itself within a step that is read: in the type that the job's precision says. A
    block of another type, or one where the job has no autocast, is refused."""
    stack = torch.overrides._get_current_function_mode_stack()
    mode = next((one for one in reversed(stack) if isinstance(one, Cuda)), None)
    if mode is None or mode.stated is None:
        if mode is None:
            yield
            return
        raise CannotBuild("the program enters autocast, and the job's precision says none")
    if dtype not in (None, mode.stated):
        raise CannotBuild(f"the program enters autocast to {dtype}, and the job's precision says another type")
    before, mode.dtype = mode.dtype, mode.stated
    try:
        yield
    finally:
        mode.dtype = before
        if before is None:
            mode._weights.clear()
