"""Losses that need values of the data: on meta, where tensors have no values, their questions get fixed answers.

Losses of detectors and segmenters match predictions with objects on the CPU, select elements by masks, and look for
values that are not finite. Here every object is matched. A mask selects as many elements as `picks` said, else all. All
values are finite, and all boxes have their corners in order.

The objects of a whole batch are in one list, as if one image had them all. Losses concatenate what they gather from
each image, so their results have the same size, and a step has as many events at every batch size.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

GUIDED = "SpeechT5GuidedMultiheadAttentionLoss"
NOISY = "get_contrastive_denoising_training_group"
MATCHERS = "linear_sum_assignment"
"""scipy's name of the Hungarian algorithm; modules of transformers import it by that name."""
_BEYOND = ("__ge__", "__gt__", "ge", "gt")
_CERTAIN = {"isfinite": True, "isinf": False, "isnan": False, "__ge__": True, "ge": True}
"""The assumed result of comparisons over all (or any) values: finite, and corners of boxes in order."""
_VIEWS = (torch.Tensor.flatten, torch.Tensor.reshape, torch.Tensor.view, torch.Tensor.contiguous, torch.Tensor.bool)


def picks(mask: torch.Tensor, count: int) -> torch.Tensor:
    """The mask, marked as selecting `count` of its elements."""
    mask._preflight_picks = count
    return mask


class Answers(TorchFunctionMode):
    """Answers operations that need values; all others run as they are. `halves`: half of the elements count as not zero
    (denoising queries: as many positive ones as negative)."""

    def __init__(self, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "cpu" and _is_meta(args[0]):
            return args[0]  # what lies in host memory is of no tape
        if name == "tolist" and _is_meta(args[0]):
            return _ones(args[0].shape)
        if name == "__setitem__" and _is_meta(args[0]) and _is_plain(args[1]) and isinstance(args[2], (int, float)):
            args[0][args[1]].fill_(args[2])  # a number is no tensor
            return None
        if func in (F.ctc_loss, torch.ctc_loss):
            return _ctc(*args, **kwargs)
        if name in ("__getitem__", "masked_select") and len(args) > 1:
            index = args[1]
            if isinstance(index, torch.Tensor) and index.dtype is torch.bool and _is_meta(index) and index.dim():
                return _Picked.apply(args[0], index.dim(), _count(index))
        if name == "nonzero" and _is_meta(args[0]):
            found = _count(args[0]) // (2 if self.halves else 1)
            return torch.empty(found, args[0].dim(), dtype=torch.int64, device="meta")
        if name in _BEYOND and _is_meta(args[0]) and not args[0].dim() and not args[0].is_floating_point():
            return False  # no label is above what there is
        if func is torch.rand and args and not args[0]:
            return 1.0  # no layer is left out by chance
        if name in ("all", "any") and hasattr(args[0], "_preflight_certain"):
            return args[0]._preflight_certain
        out = func(*args, **kwargs)
        certain = _CERTAIN.get(name)
        if certain is not None and isinstance(out, torch.Tensor) and args[0].is_floating_point():
            out._preflight_certain = certain
            return out
        if func is torch.Tensor.__invert__ and args[0].dtype is torch.bool:
            return picks(out, args[0].numel() - _count(args[0])) if hasattr(args[0], "_preflight_picks") else out
        if func in _VIEWS and hasattr(args[0], "_preflight_picks"):
            return picks(out, args[0]._preflight_picks)
        return out


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _is_plain(index: Any) -> bool:
    return all(isinstance(one, (int, slice)) for one in (index if isinstance(index, tuple) else (index,)))


def _count(mask: torch.Tensor) -> int:
    return int(getattr(mask, "_preflight_picks", mask.numel()))


def _ones(shape: Any) -> Any:
    return [_ones(shape[1:]) for _ in range(shape[0])] if shape else 1


def match(cost: Any, maximize: bool = False) -> tuple[Any, Any]:
    """The result of scipy's Hungarian algorithm for predictions (rows) and the objects of a batch (columns): a pair for
    each object."""
    import numpy as np

    pairs = np.arange(cost.shape[1])
    return pairs, pairs


def install_matcher() -> None:
    """Every module of transformers that imported the algorithm has the answer in its place; what makes noisy copies of
    boxes gets them by image, and gives the places of good ones in one list; SpeechT5's loss makes one guide."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("transformers."):
            continue
        if MATCHERS in vars(module):
            setattr(module, MATCHERS, match)
        real = vars(module).get(NOISY)
        if real is not None and not hasattr(real, "_preflight"):
            setattr(module, NOISY, _by_image(real))
        loss = vars(module).get(GUIDED)
        if loss is not None:
            loss._make_guided_attention_masks = _first_guide(loss._make_guided_attention_mask)


def install_first(matcher: torch.nn.Module) -> None:
    """A matcher that goes through its images one by one goes through the first alone, with the objects of all."""
    real = matcher.forward
    matcher.forward = lambda masks, logits, *labels: real(masks[:1], logits[:1], *labels)


def _first_guide(real: Any) -> Any:
    """What makes the guide of each sample by itself makes that of the first alone, as long as the longest: the samples
    come one after another, and each frees what it made. A loop over the batch would be a trace of that batch alone."""

    def made(loss: Any, heard: torch.Tensor, spoken: torch.Tensor, device: torch.device) -> torch.Tensor:
        tokens, frames = heard.shape[1], spoken.shape[1]
        found = torch.zeros((len(heard), frames, tokens), device=device)
        found[:1] = real(tokens, frames, loss.sigma, device)
        return found.unsqueeze(1)

    return made


class Together(list[Any]):
    """The labels of a batch: one entry, which holds those of `images` images."""

    images = 1


def _by_image(real: Any) -> Any:
    def made(targets: Any, *args: Any, **kwargs: Any) -> Any:
        images = getattr(targets, "images", 1)
        one = {name: values[: len(values) // images] for name, values in targets[0].items()}
        one["class_labels"] = one["class_labels"].int()  # what they are copied into
        found = real([one] * images, *args, **kwargs)
        meta = found[-1]
        if meta is not None:
            meta["dn_positive_idx"] = (torch.cat(list(meta["dn_positive_idx"])),)
        return found

    made._preflight = True  # type: ignore[attr-defined]
    return made


class _Picked(torch.autograd.Function):
    """`x[mask]`: a copy of the elements picked; backward puts them into zeros (index_put)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dims: int, count: int) -> torch.Tensor:
        ctx.like = x.new_empty(0), x.shape
        return x.new_empty(count, *x.shape[dims:])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        empty, shape = ctx.like
        return empty.new_zeros(shape), None, None


class Ctc(torch.autograd.Function):
    """ATen/native/cuda/LossCTC.cu: log_alpha in forward, log_beta and the gradient in backward, in fp32."""

    @staticmethod
    def forward(ctx: Any, log_probs: torch.Tensor, longest: int) -> torch.Tensor:
        frames, batch, _ = log_probs.shape
        alpha = log_probs.new_empty(batch, frames, 2 * longest + 1)
        ctx.save_for_backward(log_probs, alpha)
        return log_probs.new_empty(batch)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        log_probs, alpha = ctx.saved_tensors
        beta = torch.empty_like(alpha)
        gradient = torch.full_like(log_probs, float("-inf"))
        del beta
        return gradient, None


def _ctc(log_probs: torch.Tensor, targets: torch.Tensor, *_: Any, **options: Any) -> torch.Tensor:
    """The sum of all recordings' losses; `targets` holds all labels, as many of each recording."""
    longest = targets.numel() // log_probs.shape[1]
    losses: torch.Tensor = Ctc.apply(log_probs, longest)
    return losses.sum()
