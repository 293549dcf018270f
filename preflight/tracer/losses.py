"""The language-modelling loss as versions of transformers and other libraries compute it.

The installed transformers computes the newest; older ones copied the shifted logits, and the oldest handed them out in
fp32. Which version does what was read off modeling_llama.py and loss/loss_utils.py of 4.31 to 5.0.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .building import CannotBuild

CHUNKS = 8
"""Pieces that a chunked loss takes the sequence in (torchtune, modules/loss/ce_chunked_output_loss.py)."""
ROWS = 1024
"""Positions of a piece whose logits are freed after its loss: those of xtuner. Others take fewer (TRL 256)."""


def install(model: nn.Module, loss: str | None, compiler: Any = None, autocast: torch.dtype | None = None) -> None:
    """Make a causal language model compute its loss as `loss` says (None: as it does). `compiler`: what a function of
    tensors is compiled with; the loss is then a graph of its own.

    "shifted": fp32 and a copy of all but the last position (transformers 4.46 to 4.48);
    "shifted-out": the same, and the logits that are handed out are the fp32 ones (before 4.46);
    "chunked": the head and the loss run over pieces of the sequence, whose logits become fp32 one by one;
    "pieces": each piece's logits are freed after its loss and computed again in backward, so that they never exist as
    a whole (a checkpointed head);
    "log-probabilities": those of the labels, out of whole logits (trl, trainer/utils.py, selective_log_softmax);
    "log-probabilities-of-fp32": the same of logits that were cast to fp32 when the model returned (accelerate);
    "fused": the logits never exist as a whole (Liger's fused linear cross-entropy, Apple's cut cross-entropy).
    """
    compiler = compiler or _as_it_is
    if loss is None:
        model.loss_function = _whole(model.loss_function, compiler)
    elif loss in ("shifted-out", "log-probabilities-of-fp32"):
        _after_head(model, lambda logits: logits.float())
    if loss in ("shifted", "shifted-out"):
        model.loss_function = _whole(_shifted, compiler)
    elif loss == "chunked":
        head = model.get_output_embeddings()
        model.loss_function = _chunked(head.forward, compiler)
        head.forward = lambda hidden: hidden
    elif loss in ("log-probabilities", "log-probabilities-of-fp32"):
        model.loss_function = _whole(_log_probabilities, compiler)
    elif loss in ("fused", "pieces"):
        if "loss_function" not in inspect.getsource(type(model).forward):
            raise CannotBuild(
                f"{type(model).__name__} computes its own loss: how it does without whole logits is not known"
            )
        head = model.get_output_embeddings()
        weight, kernel = head.weight, _Fused if loss == "fused" else _Pieces
        head.forward = lambda hidden: hidden
        model.loss_function = lambda logits, *_, **__: kernel.apply(logits, weight, autocast)


def _after_head(model: nn.Module, change: Any) -> None:
    head = model.get_output_embeddings()
    plain = head.forward
    head.forward = lambda hidden: change(plain(hidden))


def _shifted(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    wanted = labels[..., 1:].contiguous()
    return F.cross_entropy(shifted.view(-1, vocab_size), wanted.view(-1), ignore_index=-100)


def _log_probabilities(logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **_: Any) -> torch.Tensor:
    """16-bit logits go through log_softmax, whose output stays for backward; of fp32 ones the logsumexp is taken."""
    logits, index = logits[:, :-1], labels[:, 1:].unsqueeze(-1)
    if logits.dtype is torch.float32:
        chosen = logits.gather(-1, index).squeeze(-1) - torch.logsumexp(logits, -1)
    else:
        chosen = F.log_softmax(logits, -1).gather(-1, index).squeeze(-1)
    return -chosen.float().sum()


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

    def loss(logits: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
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


class _Pieces(torch.autograd.Function):
    """The head and the loss of one piece after the other, in forward and again in backward: the piece's logits, their
    fp32 copy and its log-softmax, and in backward the gradients of both. The head's gradient is a sum over pieces."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, autocast: torch.dtype | None) -> torch.Tensor:
        ctx.given = (hidden, weight, autocast or hidden.dtype)
        cast = torch.empty_like(weight, dtype=autocast) if autocast not in (None, weight.dtype) else None
        logits = _piece(weight, autocast or hidden.dtype)
        single = torch.empty_like(logits, dtype=torch.float32)
        normal = torch.empty_like(single)
        del cast, logits, single, normal
        return hidden.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        hidden, weight, dtype = ctx.given
        grad = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        cast = torch.empty_like(weight, dtype=dtype) if dtype is not weight.dtype else None
        logits = _piece(weight, dtype)
        single = torch.empty_like(logits, dtype=torch.float32)
        normal = torch.empty_like(single)
        of_normal = torch.empty_like(single)
        del single, normal
        of_logits = torch.empty_like(logits)
        del of_normal, logits
        added = None if grad_weight is None else torch.empty_like(weight, dtype=dtype)
        del cast, of_logits, added
        return grad, grad_weight, None


def _piece(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty((ROWS, weight.shape[0]), dtype=dtype, device="meta")
