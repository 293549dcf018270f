"""The rank of a job under a layout: alone, or one of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.rank import DeviceRank
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.values import Unknown

PACKED = 0.5
"""Bytes per element of bitsandbytes' 4-bit weights, their scales left out."""


def rank_of(
    layout: ShardLayout, resolved: Resolved, laws: Laws, rows: Sequence[tuple[int, float, bool]]
) -> DeviceRank | Unknown:
    """One rank under a layout. `rows`: the whole model's parameters, as Parameters.sizes gives them."""
    quantized = resolved.setup.quantization
    packed = PACKED if quantized and quantized.type == "4bit" else None
    layout = replace(layout, hidden=_hidden(resolved.all_dims), packed=packed)
    if layout.alone:
        return _alone(layout, laws, dict(resolved.all_dims), rows)
    from preflight.memory.device.parallel.group import member

    return member(layout, resolved, laws)


def derive(rank: DeviceRank, laws: Laws) -> Laws:
    """The same rank's law of another kind of step (validation, generation). Raises NotRegular."""
    if rank.layout.alone:
        return laws
    from preflight.memory.device.parallel.group import derived

    return derived(laws, rank.layout, rank.dims)


def _alone(
    layout: ShardLayout, laws: Laws, dims: Mapping[str, int], rows: Sequence[tuple[int, float, bool]]
) -> DeviceRank:
    rows = tuple(rows)
    trainable, nbytes = _TRAINABLE.get(rows, None, lambda: _trainable(rows))
    gradients = 0 if layout.offload == "gradients" else nbytes
    owned = () if layout.offload == "optimizer" else trainable
    return DeviceRank(layout, laws, dims, rows, (), gradients, owned, ())


_TRAINABLE: BoundedCache[tuple[tuple[tuple[int, int], ...], int]] = BoundedCache(64)


def _trainable(rows: Sequence[tuple[int, float, bool]]) -> tuple[tuple[tuple[int, int], ...], int]:
    """(elements, bytes per element) of what is trained, and the bytes of it all."""
    found = tuple((n, int(size)) for n, size, trains in rows if trains)
    return found, sum(n * size for n, size in found)


def _hidden(dims: Mapping[str, int]) -> int | None:
    """The model's width, however the family writes it."""
    if "h" in dims:
        return dims["h"]
    return dims["a"] * dims["d"] if "a" in dims and "d" in dims else None
