"""Norms, rotary embeddings and gated products as kernels that keep and make little (Liger's), on the meta device.

Written after liger_kernel/ops of 0.5 to 0.6: rms_norm.py (forward keeps the input and one fp32 number for each row;
backward writes over the incoming gradient), rope.py (rotates queries and keys in place, and their gradients too),
swiglu.py and geglu.py (forward keeps both factors; backward writes their gradients over them). Sums over the kernel's
blocks, of a row for each multiprocessor, are left out.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import torch
from torch import nn

_ROTATES = "apply_rotary_pos_emb"
_REPLACED: dict[Any, Any] = {}
"""Modules of transformers whose function is replaced at the moment, with the original one."""


def install(model: nn.Module, kernels: list[str]) -> None:
    """Replaces what `kernels` names ("norm", "rope", "mlp"). Functions that an earlier model had replaced come back."""
    for home, original in _REPLACED.items():
        setattr(home, _ROTATES, original)
    _REPLACED.clear()
    for module in model.modules():
        kind = type(module).__name__
        if "norm" in kernels and kind.endswith("RMSNorm") and hasattr(module, "weight"):
            module.forward = types.MethodType(lambda self, x: _Norm.apply(x, self.weight), module)
        elif "mlp" in kernels and all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
            module.forward = types.MethodType(_mlp, module)
        elif "rope" in kernels and kind.endswith("Attention"):
            home = sys.modules[type(module).__module__]
            original = getattr(home, _ROTATES, None)
            if original is not None and list(inspect.signature(original).parameters)[:2] == ["q", "k"]:
                _REPLACED.setdefault(home, original)
                setattr(home, _ROTATES, _rotate)


def _rotate(q: torch.Tensor, k: torch.Tensor, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    return _Rotate.apply(q, k)


def _mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = self.down_proj(_Gated.apply(self.gate_proj(x), self.up_proj(x)))
    return made


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        weight = ctx.saved_tensors[1]
        return grad, torch.empty_like(weight) if ctx.needs_input_grad[1] else None


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor) -> Any:
        return q.view_as(q), k.view_as(k)

    @staticmethod
    def backward(ctx: Any, dq: torch.Tensor, dk: torch.Tensor) -> Any:
        return tuple(grad.transpose(1, 2).contiguous().transpose(1, 2) for grad in (dq, dk))


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        gate, up = ctx.saved_tensors
        return gate.view_as(gate), up.view_as(up)
