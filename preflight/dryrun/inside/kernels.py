"""Operations that have no shape without values, or another kernel on CUDA than on meta: what they return."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import values
from .patches import wrap

_ATEN = torch.ops.aten


class Kernels:
    """The table of such operations. `fake` makes a tensor of the device without an operation; `attention` is the
    tracer's."""

    def __init__(
        self, fake_mode: Any, fake: Callable[..., Any], assume: Callable[..., None], attention: Callable[..., Any]
    ) -> None:
        self._mode, self._fake, self._assume, self._attention = fake_mode, fake, assume, attention

    def table(self) -> dict[Any, Callable[..., Any]]:
        """The operations, and the function in place of each."""
        own: dict[Any, Callable[..., Any]] = {
            _ATEN._local_scalar_dense.default: self.item,
            _ATEN._to_copy.default: self.to_copy,
            _ATEN.copy_.default: self.copy_,
            _ATEN.nonzero.default: self.nonzero,
            _ATEN.index.Tensor: self.index,
            _ATEN._unique2.default: self.unique,
            _ATEN.unique_dim.default: lambda t, *_, **__: self.unique(t),
            _ATEN.unique_consecutive.default: self.unique,
            _ATEN.masked_select.default: self.masked_select,
            _ATEN.equal.default: self.equal,
            _ATEN._pin_memory.default: lambda t, *_, **__: t,
            _ATEN.is_pinned.default: lambda *_, **__: False,
            _ATEN.scaled_dot_product_attention.default: self.attention,
            _ATEN._amp_foreach_non_finite_check_and_unscale_.default: _nothing,
            _ATEN._amp_update_scale_.default: lambda t, *_, **__: t,
            _ATEN.record_stream.default: _nothing,
            _ATEN._thnn_fused_gru_cell.default: self.gru_cell,
            _ATEN._thnn_fused_gru_cell_backward.default: self.gru_cell_backward,
        }
        for name in dir(_ATEN):  # they write in place and allocate nothing
            if name.startswith("_fused_") and name.endswith("_") and hasattr(getattr(_ATEN, name), "default"):
                own[getattr(_ATEN, name).default] = _nothing
        return own

    def attention(self, q: Any, k: Any, v: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The kernel that CUDA would choose of those that the program allows."""
        allowed = torch.backends.cuda
        return self._attention(
            q,
            k,
            v,
            mask,
            *args,
            **kwargs,
            flash=allowed.flash_sdp_enabled(),
            efficient=allowed.mem_efficient_sdp_enabled(),
        )

    def item(self, t: Any) -> Any:
        if t.dtype is torch.bool and values.known(t) is None:
            self._assume("a question about values of the device was answered, yes for `all` and no for others")
        return values.item(t)

    def equal(self, first: Any, second: Any) -> bool:
        one, other = values.known(first), values.known(second)
        if one is not None and other is not None:
            return bool(torch.equal(one, other))
        return bool(first.shape == second.shape)

    def _count(self, mask: Any) -> int:
        """How many elements a mask picks: as many as it does, else all (the most that there can be)."""
        value = values.known(mask)
        if value is None:
            self._assume("a mask of unknown values picks every element, the most that it can")
            return int(mask.numel())
        return int(torch.count_nonzero(value))

    def nonzero(self, t: Any) -> Any:
        value = values.known(t)
        out = self._fake((self._count(t), t.dim()), (t.dim(), 1) if t.dim() else (1, 1), torch.int64, t.device)
        return out if value is None else values.give(out, value.nonzero())

    def to_copy(
        self, t: Any, dtype: Any = None, device: Any = None, memory_format: Any = torch.preserve_format, **_: Any
    ) -> Any:
        dtype, device = dtype or t.dtype, device or t.device
        if isinstance(t, FakeTensor):
            value = values.made_up(t) if device.type == "cpu" and t.device.type == "cuda" else None
            if value is not None:
                return value.to(dtype)
            with self._mode:
                out = _ATEN._to_copy.default(t, dtype=dtype, device=device, memory_format=memory_format)
            value = values.known(t)
            return out if value is None else values.give(out, value.to(dtype, copy=True))
        shape = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        shape = _ATEN._to_copy.default(shape, dtype=dtype, memory_format=memory_format)
        out = self._fake(shape.shape, shape.stride(), dtype, device)
        value = values.known(t)
        return out if value is None else values.give(out, value.detach().to(dtype, copy=True))

    def copy_(self, into: Any, source: Any, *_: Any, **__: Any) -> Any:
        value = values.known(source)
        if not isinstance(into, FakeTensor):
            if value is not None:
                into.copy_(value)
            return into
        there = values.known(into)
        if there is not None and value is not None:
            there.copy_(value)
        else:
            values.forget(into)
        return into

    def index(self, t: Any, indices: Any) -> Any:
        rest: list[Any] = []
        for one in indices:
            if one is not None and one.dtype in (torch.bool, torch.uint8) and one.dim():
                mask = one if isinstance(one, FakeTensor) else self.to_copy(one, device=t.device)
                found = self.nonzero(mask)
                picked, columns = values.known(found), found.unbind(1)
                if picked is not None:
                    columns = [values.give(o, v) for o, v in zip(columns, picked.unbind(1))]
                rest += columns
            else:
                rest.append(one)
        rest = [o if o is None or isinstance(o, FakeTensor) else self.to_copy(o, device=t.device) for o in rest]
        if not isinstance(t, FakeTensor):
            t = self.to_copy(t, device=next(o.device for o in rest if o is not None))
        with self._mode:
            out = _ATEN.index.Tensor(t, rest)
        known = [o if o is None else values.known(o) for o in rest]
        value = values.known(t)
        if value is None or not values.small(out) or any(k is None for k, o in zip(known, rest) if o is not None):
            return out
        return values.give(out, _ATEN.index.Tensor(value, known))

    def unique(self, t: Any, *_: Any, **__: Any) -> Any:
        value = values.known(t)
        if value is None:
            self._assume("`unique` of unknown values finds one value", "train.seq_len")
        size = 1 if value is None else value.unique().numel()
        return (
            self._fake((size,), (1,), t.dtype, t.device),
            self._fake(t.shape, t.stride(), torch.int64, t.device),
            self._fake((size,), (1,), torch.int64, t.device),
        )

    def _like(self, t: Any, *shape: int) -> Any:
        """An empty tensor of a shape, of the type of another."""
        return self._fake(shape, torch.empty(shape, device="meta").stride(), t.dtype, t.device)

    def gru_cell(self, of_input: Any, _: Any, hidden: Any, *__: Any, **___: Any) -> Any:
        """A step of a GRU, with what backward needs (RNN.cu: five numbers for each of the hidden state)."""
        rows, columns = hidden.shape
        return self._like(of_input, rows, columns), self._like(of_input, rows, 5 * columns)

    def gru_cell_backward(self, grad: Any, _: Any, has_bias: bool) -> Any:
        rows, columns = grad.shape
        gates = [self._like(grad, rows, 3 * columns) for _ in range(2)]
        biases = [self._like(grad, 3 * columns) if has_bias else None for _ in range(2)]
        return (*gates, self._like(grad, rows, columns), *biases)

    def masked_select(self, t: Any, mask: Any) -> Any:
        whole, chosen = torch.broadcast_tensors(t, mask)
        return self.index(whole.contiguous(), [chosen])


def _nothing(*_: Any, **__: Any) -> None:
    """An operation in place that allocates nothing."""


def _pack(real: Any, data: Any, lengths: Any, batch_first: bool) -> Any:
    """(rows of each moment after another, how many sequences each moment has): PackedSequence.cpp does the same."""
    if not data.is_cuda:
        return real(data, lengths, batch_first)
    known = [int(one) for one in lengths.tolist()]
    by_time = data.transpose(0, 1) if batch_first else data
    sizes = [sum(at < one for one in known) for at in range(max(known))]
    return torch.cat([by_time[at, :count] for at, count in enumerate(sizes)]), torch.tensor(sizes, dtype=torch.int64)


def _pad(real: Any, data: Any, batch_sizes: Any, batch_first: bool, value: float, total: int) -> Any:
    """(the padded table, the lengths)."""
    if not data.is_cuda:
        return real(data, batch_sizes, batch_first, value, total)
    sizes = [int(one) for one in batch_sizes.tolist()]
    padded = data.new_full((max(total, len(sizes)), sizes[0], *data.shape[1:]), value)
    at = row = 0
    for count, same in groupby(sizes):
        times = len(list(same))
        rows = data[row : row + times * count].view(times, count, *data.shape[1:])
        padded[at : at + times, :count].copy_(rows)
        at, row = at + times, row + times * count
    lengths = torch.tensor([sum(one > number for one in sizes) for number in range(sizes[0])])
    return padded.transpose(0, 1) if batch_first else padded, lengths


def packed_sequences() -> None:
    """Put torch's own steps, in Python, into what torch.nn.utils.rnn calls: their sizes are values on the CPU."""
    wrap(torch._VF, "_pack_padded_sequence", _pack)
    wrap(torch._VF, "_pad_packed_sequence", _pad)
