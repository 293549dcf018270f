"""Operations that could take any amount of memory or time, with their limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .stopped import DIGITS, DIMENSIONS, ELEMENTS, ITEMS, PIECES, Budget, Stopped
from .values import Value


def checked(value: Any) -> Any:
    """A value, if it is within the limits."""
    if isinstance(value, (str, list, tuple, dict, set)) and len(value) > ITEMS:
        raise Stopped(f"a value has more than {ITEMS:,} items")
    if isinstance(value, int) and value.bit_length() > DIGITS:
        raise Stopped(f"a number has more than {DIGITS} bits")
    if isinstance(value, torch.Tensor) and (value.dim() > DIMENSIONS or value.numel() > ELEMENTS):
        raise Stopped(f"a tensor has more than {DIMENSIONS} dimensions, or too many elements")
    return value


def multiplied(left: Any, right: Any) -> Any:
    """`a * b`; a sequence is repeated."""
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (str, list, tuple)) and isinstance(times, int) and len(items) * times > ITEMS:
            raise Stopped(f"a value has more than {ITEMS:,} items")
    return left * right


def multiplied_in_place(left: Any, right: Any) -> Any:
    """`a *= b`."""
    if not isinstance(left, torch.Tensor):
        return multiplied(left, right)
    left *= right
    return left


def raised(left: Any, right: Any) -> Any:
    """`a ** b`."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 1) > 4 * DIGITS:
        raise Stopped(f"a number has more than {DIGITS} bits")
    return left**right


def shifted(left: Any, right: Any) -> Any:
    """`a << b`."""
    if not isinstance(right, int) or right > DIGITS:
        raise Stopped(f"a number has more than {DIGITS} bits")
    return left << right


def released(values: list[Any]) -> None:
    """Let go of values in their order, as Python does with operands and arguments: a list lets go of its last first."""
    while values:
        del values[0]


def iterate(value: Any, budget: Budget) -> Iterator[Any]:
    """The items of a value; each takes a step."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] > PIECES:
            raise Stopped(f"a tensor is taken apart into more than {PIECES:,} parts")
        known = getattr(value, "_preflight_values", None)
        value = value.unbind(0)
        for one, number in zip(value, known or ()):  # noqa: B905 - Python 3.9
            one._preflight_values = number
    elif isinstance(value, Value) or not isinstance(
        value, (list, tuple, dict, set, str, range, Iterator, torch.nn.Module, *_VIEWS)
    ):
        raise Stopped("the items of this object are not known")
    elif isinstance(value, torch.nn.Module) and not isinstance(value, _HOLDERS):
        raise Stopped("the items of a module are not known")
    return _counted(value, budget)


_EMPTY: dict[str, str] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))
_HOLDERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)


def _counted(value: Iterable[Any], budget: Budget) -> Iterator[Any]:
    for one in value:
        budget.step()
        yield one


def pieces(tensor: torch.Tensor, size: Any, dim: Any, by_size: bool) -> None:
    """Raises Stopped where a tensor is taken apart into too many tensors."""
    if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return
    long = tensor.shape[dim]
    many = -(-long // size) if by_size and isinstance(size, int) and size > 0 else size if not by_size else 0
    if isinstance(many, int) and min(many, long) > PIECES:
        raise Stopped(f"a tensor is taken apart into more than {PIECES:,} parts")
