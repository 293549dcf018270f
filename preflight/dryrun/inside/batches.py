"""What a batch of a loader says: its length, the bytes of a sample; and the batch with sequences of another length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

_NUMBERS = (torch.int64, torch.int32)
"""Types of tokens, labels and masks."""


def tensors(batch: Any, depth: int = 4) -> Iterator[Any]:
    """The tensors of a batch: of lists, tuples and mappings in it, too. What nests deeper is no batch of a loader, or
    leads back to itself."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth and isinstance(batch, (list, tuple, Mapping)):
        for one in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors(one, depth - 1)


def length(batch: Any) -> int | None:
    """The length of its sequences: what all its tables of whole numbers have as columns. None if it has none, or has
    pictures or sound beside them."""
    found = list(tensors(batch))
    if any(t.dim() > 2 and t.is_floating_point() for t in found):
        return None
    columns = {int(t.shape[1]) for t in found if t.dim() == 2 and t.dtype in _NUMBERS}
    known = columns.pop() if len(columns) == 1 else 0
    return known if known > 1 else None


def facts(batch: Any, known: dict[str, Any]) -> dict[str, Any]:
    """What is noted of a loader, with its batch. It has a length if all its batches so far had the same."""
    size, own = known.get("batch_size"), length(batch)
    total = sum(t.numel() * t.element_size() for t in tensors(batch))
    more: dict[str, Any] = {"length": own if known.get("length", own) == own else None}
    if isinstance(size, int) and size > 0 and total:
        more["sample_bytes"] = -(-total // size)
    return {**known, **more}


def stretched(batch: Any, own: int, other: int) -> Any:
    """The batch with every table of `own` columns repeated or cut to `other`."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() != 2 or batch.shape[1] != own:
            return batch
        return batch.repeat(1, -(-other // own))[:, :other].contiguous()
    if isinstance(batch, dict):
        for name, value in list(batch.items()):
            batch[name] = stretched(value, own, other)
        return batch
    if isinstance(batch, Mapping) and hasattr(batch, "data"):  # transformers' BatchEncoding
        stretched(batch.data, own, other)
        return batch
    if type(batch) in (list, tuple):
        return type(batch)(stretched(one, own, other) for one in batch)
    return batch
