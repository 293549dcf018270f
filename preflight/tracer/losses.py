"""The language-modelling loss as versions of transformers and other libraries compute it.

The installed transformers computes the newest; older ones copied the shifted logits, and the oldest handed them out in
fp32. Which version does what was read off modeling_llama.py and loss/loss_utils.py of 4.31 to 5.0.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CHUNKS = 8
"""Pieces that a chunked loss takes the sequence in (torchtune, modules/loss/ce_chunked_output_loss.py)."""


def install(model: nn.Module, loss: str | None, compiler: Any = None, autocast: torch.dtype | None = None) -> None:
    """Make a causal language model compute its loss as `loss` says (None: as it does). `compiler`: what a function of
    tensors is compiled with; the loss is then a graph of its own.

    "shifted": fp32 and a copy of all but the last position (transformers 4.46 to 4.48);
    "shifted-out": the same, and the logits that are handed out are the fp32 ones (before 4.46);
    "chunked": the head and the loss run over pieces of the sequence, whose logits become fp32 one by one;
    "fused": the logits never exist as a whole (Liger's fused linear cross-entropy, Apple's cut cross-entropy).
    """
    compiler = compiler or _as_it_is
    if loss is None:
        model.loss_function = _whole(model.loss_function, compiler)
    elif loss == "shifted-out":
        _after_head(model, lambda logits: logits.float())
    if loss in ("shifted", "shifted-out"):
        model.loss_function = _whole(_shifted, compiler)
    elif loss == "chunked":
        head = model.get_output_embeddings()
        model.loss_function = _chunked(head.forward, compiler)
        head.forward = lambda hidden: hidden
    elif loss == "fused":
        head = model.get_output_embeddings()
        weight = head.weight
        head.forward = lambda hidden: hidden
        model.loss_function = lambda logits, *_, **__: _Fused.apply(logits, weight, autocast)


def _after_head(model: nn.Module, change: Any) -> None:
    head = model.get_output_embeddings()
    plain = head.forward
    head.forward = lambda hidden: change(plain(hidden))


def _shifted(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    wanted = labels[..., 1:].contiguous()
    return F.cross_entropy(shifted.view(-1, vocab_size), wanted.view(-1), ignore_index=-100)


def _as_it_is(function: Any) -> Any:
    return function


def _whole(function: Any, compiler: Any) -> Any:
    """A loss of all logits; options that are no tensors are part of the graph."""

    calls: dict[str, Any] = {}

    def loss(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **options: Any) -> torch.Tensor:
        key = repr((vocab_size, sorted(options)))
        if key not in calls:
            calls[key] = compiler(lambda given, wanted: function(given, wanted, vocab_size, **options))
        made: torch.Tensor = calls[key](logits, labels)
        return made

    return loss


def _chunked(head: Any, compiler: Any) -> Any:
    """torchtune's CEWithChunkedOutputLoss and `set_num_output_chunks`: all pieces of logits, then the loss of each."""
    piece = compiler(lambda x, wanted: F.cross_entropy(x.float(), wanted, ignore_index=-100, reduction="sum"))

    def loss(logits: torch.Tensor, labels: torch.Tensor, **_: Any) -> torch.Tensor:
        wanted = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        hidden = logits.view(-1, logits.shape[-1])  # what came is the input of the head
        rows = -(-hidden.shape[0] // CHUNKS)
        pieces = [head(part) for part in hidden.split(rows)]
        total = hidden.new_zeros((), dtype=torch.float32)
        for x, part in zip(pieces, wanted.split(rows), strict=True):
            total = total + piece(x, part)
        return total

    return loss


class _Fused(torch.autograd.Function):
    """liger_kernel/ops/fused_linear_cross_entropy.py: gradients are made in forward, over chunks of rows whose logits
    take as much as the input does, rounded up to a power of two of rows: twice the input at most, which is what is
    allocated here once. Under autocast every chunk's product makes a copy of the whole head in 16 bits, and where the
    head is trained its gradient comes in 16 bits before it is added in fp32."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, autocast: torch.dtype | None) -> torch.Tensor:
        grad = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        cast = autocast is not None and weight.dtype is not autocast
        copy = torch.empty_like(weight, dtype=autocast) if cast else None
        chunk = torch.empty((2, *hidden.shape), dtype=hidden.dtype, device="meta")
        del copy
        added = torch.empty_like(weight, dtype=autocast) if cast and grad_weight is not None else None
        del chunk, added
        ctx.kept = (grad, grad_weight)
        return hidden.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        return (*ctx.kept, None)
