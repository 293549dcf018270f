"""Packed sequences of faked tensors: torch's own steps in Python, since their sizes are values on the CPU."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch

from .patches import wrap


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


def install() -> None:
    """Put them into torch._VF, which torch.nn.utils.rnn calls."""
    wrap(torch._VF, "_pack_padded_sequence", _pack)
    wrap(torch._VF, "_pad_packed_sequence", _pad)
