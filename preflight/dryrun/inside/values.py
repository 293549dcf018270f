"""Values beside faked tensors: true ones where they are known, made-up ones where a number is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

MOST = {True: 1 << 16, False: 1 << 21}
"""Elements up to which values are kept true: of floating-point tensors (the weights of a model are not wanted), and of
integers and bools (token ids and masks of a batch are)."""
MOST_MADE_UP = 1 << 26
"""Bytes up to which what comes back from the device gets real, made-up values."""


class Token:
    """Whether the values of a storage are still true. All views of one storage share it."""

    valid = True


def known(t: Any) -> Any:
    """The true values of a tensor, on the CPU; None where they are not known."""
    if not isinstance(t, FakeTensor):
        return t if t.numel() <= MOST[t.is_floating_point()] else None
    value, token = getattr(t, "_dry_values", (None, None))
    return value if token is not None and token.valid else None


def give(t: Any, value: Any, token: Any = None) -> Any:
    """Say what the values of a faked tensor are."""
    t._dry_values = (value, token or Token())
    return t


def forget(t: Any) -> None:
    """The values are overwritten by unknown ones."""
    if getattr(t, "_dry_values", None):
        t._dry_values[1].valid = False


def token_of(t: Any) -> Any:
    """The token of a tensor's storage; None without values."""
    return getattr(t, "_dry_values", (None, None))[1]


def small(t: Any) -> bool:
    """Whether values of a tensor of this size are kept."""
    return bool(t.numel() <= MOST[t.is_floating_point()])


def made_up(t: Any) -> Any:
    """Real values for what comes back from the device; None where they would take too much memory."""
    value = known(t)
    if value is not None:
        return value.clone()
    if t.numel() * t.element_size() > MOST_MADE_UP:
        return None
    return torch.full(t.shape, 0.5 if t.is_floating_point() else 0, dtype=t.dtype)


def item(t: Any) -> Any:
    """The number in a tensor of one element: made up if it is not known (1, and False unless `all` made it)."""
    value = known(t)
    if value is not None:
        return value.item()
    if t.dtype is torch.bool:
        return getattr(t, "_dry_answer", False)
    return 1.0 if t.is_floating_point() else 1 + 0j if t.is_complex() else 1
