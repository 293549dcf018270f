"""Batches in parts, and results joined again: tensors, and lists, tuples, dicts and objects of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class CannotSplit(ValueError):
    """A batch has no samples that could be taken apart; the message says why."""


def samples(batch: Any) -> int:
    """How many samples a batch has: the first dimension that all of its tensors share. Raises CannotSplit."""
    sizes = set(_sizes(batch))
    if len(sizes) != 1:
        raise CannotSplit(
            f"its tensors have {' and '.join(map(str, sorted(sizes)))} samples"
            if sizes
            else "no part of the batch has samples"
        )
    return sizes.pop()


def elements(batch: Any) -> int:
    """Elements of all tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return int(batch.numel())
    if isinstance(batch, Mapping):
        return sum(map(elements, batch.values()))
    return sum(map(elements, batch)) if isinstance(batch, (list, tuple)) else 0


def _sizes(batch: Any) -> list[int]:
    if isinstance(batch, torch.Tensor):
        return [batch.shape[0]] if batch.dim() else []
    if isinstance(batch, Mapping):
        return [size for value in batch.values() for size in _sizes(value)]
    if _is_list_of_samples(batch):
        return [len(batch)]
    if isinstance(batch, (list, tuple)):
        return [size for value in batch for size in _sizes(value)]
    return []


def _is_list_of_samples(batch: Any) -> bool:
    """A list of texts, numbers or targets, one for each sample, and no list of tensors of whole batches."""
    return (
        isinstance(batch, list)
        and bool(batch)
        and not any(isinstance(one, (torch.Tensor, list, tuple)) for one in batch)
    )


def split(batch: Any, parts: int) -> list[Any]:
    """A batch in parts of nearly equal size, in order. Raises CannotSplit."""
    size = samples(batch)
    parts = min(parts, size)
    if parts < 1:
        raise CannotSplit("the batch is empty")
    ends = [size * number // parts for number in range(parts + 1)]
    return [_slice(batch, start, end) for start, end in zip(ends, ends[1:])]


def _slice(batch: Any, start: int, end: int) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[start:end] if batch.dim() else batch
    if isinstance(batch, Mapping):
        found = {key: _slice(value, start, end) for key, value in batch.items()}
        if type(batch) is dict:
            return found
        try:
            return type(batch)(found)  # type: ignore[call-arg]
        except Exception as error:
            raise CannotSplit(f"a {type(batch).__name__} cannot be made of its parts") from error
    if _is_list_of_samples(batch):
        return batch[start:end]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_slice(value, start, end) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_slice(value, start, end) for value in batch)
    return batch


def joined(results: list[Any]) -> Any:
    """Results of parts as one, in their order. A result that is no collection of samples is refused."""
    first = results[0]
    if len(results) == 1:
        return first
    if isinstance(first, torch.Tensor):
        if not first.dim():
            raise CannotSplit("the evaluation returns one number for a batch, and numbers of parts cannot be joined")
        return torch.cat(results)
    if isinstance(first, Mapping):
        found = {key: joined([one[key] for one in results]) for key in first}
        return found if type(first) is dict else type(first)(**found)
    if isinstance(first, tuple):
        values = [joined([one[index] for one in results]) for index in range(len(first))]
        return type(first)(*values) if hasattr(first, "_fields") else tuple(values)
    if isinstance(first, list):
        return [one for result in results for one in result]
    if first is None:
        return None
    raise CannotSplit(f"the evaluation returns a {type(first).__name__}, and those of parts cannot be joined")
