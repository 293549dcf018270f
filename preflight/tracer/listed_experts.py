"""Experts as releases of transformers before 5 have them: a list of modules with linear layers of their own, which are
quantised and get adapters like any other, where 5 has one parameter of three dimensions for all experts of a layer.

Written after modeling_mixtral.py, modeling_qwen2_moe.py, modeling_qwen3_moe.py and modeling_olmoe.py of 4.36 to 4.57:
each expert takes its tokens out of the batch, and index_add_ puts back what it makes of them, times the router's
weight. Which tokens an expert gets depends on the data. Here as many experts as a token chooses get every token, the
others none: so as much is kept for backward as under any routing, and no expert takes more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_NAMES = {"mixtral": ("w1", "w3", "w2")}
_USUAL = ("gate_proj", "up_proj", "down_proj")


class _Expert(nn.Module):
    """A gated network: `names` of its layers that make the gate, the factor beside it, and the output."""

    def __init__(self, names: tuple[str, ...], width: int, inner: int, act_fn: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.names, self.act_fn = names, act_fn
        for name, (inside, outside) in zip(names, ((width, inner), (width, inner), (inner, width)), strict=True):
            setattr(self, name, nn.Linear(inside, outside, bias=False, dtype=dtype, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (getattr(self, name) for name in self.names)
        made: torch.Tensor = down(self.act_fn(gate(x)) * up(x))
        return made


class _Experts(nn.ModuleList):
    """All experts of a layer, called as the fused ones are: with the tokens, the experts that each token chooses, and
    the weights of these."""

    def forward(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        chosen = index.shape[-1]
        total = torch.zeros_like(hidden)
        everyone = torch.zeros(hidden.shape[0], dtype=torch.int64, device="meta")
        for number, expert in enumerate(self):
            tokens = everyone if number < chosen else everyone[:0]
            made = expert(hidden[tokens]) * weights[tokens, number % chosen, None]
            total.index_add_(0, tokens, made.to(total.dtype))
        return total


def install(model: nn.Module, architecture: str) -> None:
    """Replaces the experts of every layer; nothing in a model without such."""
    names = _NAMES.get(architecture, _USUAL)
    for parent in list(model.modules()):
        for name, fused in list(parent.named_children()):
            whole = getattr(fused, "gate_up_proj", None)
            if isinstance(whole, nn.Parameter) and whole.dim() == 3:
                count, twice, width = whole.shape
                made = (_Expert(names, width, twice // 2, fused.act_fn, whole.dtype) for _ in range(count))
                setattr(parent, name, _Experts(made))
