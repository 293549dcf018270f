"""Tensors of true values among tensors of meta: small integers that decide the shapes of a model's step.

The results of operations on true values alone are true, too, and are on no tape. `Values` acts above autograd,
`Scalars` on what kernels read; both are on while a model's forward runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class Values(TorchFunctionMode):
    """Lets tensors of the CPU, whose values are true, and tensors of meta be arguments of one operation: what meets
    meta is on meta from there on. A mask that has values selects as many elements as it does; a mask that has none
    selects all (the most that there can be). A list of numbers without values counts the tiles of each sample."""

    def __init__(self, model: dict[str, Any]) -> None:
        """`model`: "tiles" (of a sample), "varlen" (kernels of attention take packed lengths and no mask),
        "written_out" (attention makes its scores)."""
        super().__init__()
        self._model = model
        self._twins: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in _flat((*args, *kwargs.values())) if isinstance(one, torch.Tensor)]
        true = [one for one in tensors if one.device.type == "cpu"]
        if func is torch.Tensor.to or (func is torch.as_tensor and true):
            args, kwargs = _in_place(args, kwargs)
            func = torch.Tensor.to
        if len(true) == len(tensors) and not _of_meta(args, kwargs):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                return func(*args, **kwargs)
        if self._model.get("varlen") and func is F.scaled_dot_product_attention:
            args, kwargs = args[:3], {name: one for name, one in kwargs.items() if name != "attn_mask"}
        if func is torch.split and len(tensors) == 1 and args[0].dim() == 4 and self._alike(args[1]):
            return (self._pieces(args[0], args[1]),)
        if func is torch.cat and self._model.get("varlen") and len(args[0]) == 1:
            return args[0][0]
        if func is torch.Tensor.tolist:
            return [self._model.get("tiles", 1)] * args[0].shape[0]
        if func is torch.Tensor.__getitem__ and len(args) == 2:
            args = (args[0], self._selected(args[1], args[0].device.type == "meta"))
            tensors = [one for one in _flat(args) if isinstance(one, torch.Tensor)]
        if func is torch.Tensor.__setitem__ and isinstance(args[2], torch.Tensor):
            args = (args[0], self._selected(args[1], args[0].device.type == "meta"), args[2])
            tensors = [one for one in _flat(args) if isinstance(one, torch.Tensor)]
            true = [one for one in tensors if one.device.type == "cpu"]
        if true and len(true) < len(tensors):
            args = tuple(_changed(one, self._twin) for one in args)
            kwargs = {name: _changed(one, self._twin) for name, one in kwargs.items()}
        return func(*args, **kwargs)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of meta in place of one with values."""
        if tensor.device.type != "cpu" or not tensor.dim():
            return tensor
        known = self._twins.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        with _disable_current_modes():
            twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        self._twins[id(tensor)] = (weakref.ref(tensor), twin)
        return twin

    def _alike(self, lengths: list[int]) -> bool:
        """Whether attention to pieces makes and keeps the same as attention to all at once: with scores written out,
        only if all pieces have one length."""
        return len(lengths) > 1 and not (self._model.get("written_out") and len(set(lengths)) > 1)

    def _pieces(self, whole: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """Queries, keys or values of one image (or window) after another, as one tensor for attention. The tensors that
        it makes and keeps are the same; its temporary memory is that of all pieces, which is more. Kernels with packed
        lengths (`varlen`) divide nothing; otherwise the joined gradients of the pieces are a copy."""
        if self._model.get("varlen"):
            return whole
        _, heads, _, width = whole.shape
        if len(set(lengths)) > 1:
            found: torch.Tensor = _Divided.apply(whole, (1, heads, sum(lengths), width))
        else:
            strides = whole.stride()
            shape = (len(lengths), heads, lengths[0], width)
            found = _Divided.apply(whole, shape, (strides[2] * lengths[0], *strides[1:]))
        return found

    def _selected(self, index: Any, meta: bool) -> Any:
        """An index of a tensor (of meta, or with values) in which masks are the positions that they select, as kernels
        make of them."""
        if isinstance(index, torch.Tensor) and index.dtype is torch.bool:
            return self._positions(index, meta)
        if isinstance(index, tuple):
            found: list[Any] = []
            for one in index:
                mask = isinstance(one, torch.Tensor) and one.dtype is torch.bool
                found += self._positions(one, meta) if mask else [one]
            return tuple(found)
        return index

    def _positions(self, mask: torch.Tensor, meta: bool) -> tuple[torch.Tensor, ...]:
        if mask.device.type == "meta" and meta:
            return tuple(mask.nonzero().unbind(1))
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            known = torch.ones(mask.shape, dtype=torch.bool) if mask.device.type == "meta" else mask
            found = known.nonzero()
            return tuple((torch.empty_like(found, device="meta") if meta else found).unbind(1))


class _Divided(torch.autograd.Function):
    """A view in another shape, whose gradient is copied."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        ctx.shape = whole.shape
        return whole.as_strided(shape, strides or torch.empty(shape, device="meta").stride())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].new_empty(ctx.shape), None, None


class Scalars(TorchDispatchMode):
    """Numbers that operations read from tensors with values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "cpu":
            with _disable_current_modes():
                return func(*args)
        return func(*args, **(kwargs or {}))


def _in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `x.to(...)` for a tensor that stays where it is: its dtype alone changes."""
    first, *rest = args
    given = [one.dtype if isinstance(one, torch.Tensor) else one for one in (*rest, kwargs.get("dtype"))]
    dtype = next((one for one in given if isinstance(one, torch.dtype)), first.dtype)
    more = {name: one for name, one in kwargs.items() if name in ("copy", "memory_format")}
    return (first, dtype), more


def _of_meta(args: Any, kwargs: Any) -> bool:
    """Whether a result is asked for on meta."""
    devices = [kwargs.get("device"), *(one for one in args if isinstance(one, torch.device))]
    return any(one is not None and torch.device(one).type == "meta" for one in devices)


def _flat(values: Any) -> Iterator[Any]:
    for one in values:
        if isinstance(one, (tuple, list)):
            yield from _flat(one)
        else:
            yield one


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_changed(one, change) for one in value)
    return value
