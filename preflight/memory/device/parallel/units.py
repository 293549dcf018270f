"""Units of sharding, which are gathered and reduced together: each layer, and all other parameters (the root)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from preflight.memory.device.law.made import MadeLaw, ParameterRow
from preflight.memory.device.law.sizes import Size, evaluate


def shard(elements: int, ranks: int) -> int:
    """Elements of one rank's part, padding included, where parts are equal: ceil(n / W)."""
    return -(-elements // ranks)


ALIGNMENT = 16
"""Bytes that FSDP1 aligns each original parameter to within its flat one (torch/distributed/fsdp/_flat_param.py,
_get_aligned_numel)."""


def flat_shard(elements: list[int], ranks: int, nbytes: int) -> int:
    """Elements of FSDP1's part of a flat parameter: each original one begins at a multiple of 16 bytes, the sum is
    padded to a multiple of the ranks (FlatParamHandle._init_flat_param_and_metadata, _get_shard)."""
    step = max(1, ALIGNMENT // nbytes)
    total = sum(-(-n // step) * step for n in elements)
    return shard(total, ranks)


def _cast(size: float, nbytes: int | None) -> float:
    """Bytes per element once a policy of mixed precision is applied: integers stay as they are (torch/distributed/fsdp/
    _fully_shard/_fsdp_param.py, init_dtype_attrs)."""
    return size if nbytes is None or size < LEAST_FLOAT else nbytes


LEAST_FLOAT = 2
"""Bytes of the smallest type that mixed precision casts."""


class FsdpUnit(Struct, frozen=True):
    """Parameters that are whole at the same time: (elements, bytes per element as stored, trainable)."""

    params: tuple[tuple[int, float, bool], ...]

    def sharded(self, ranks: int, *, trainable: bool = False) -> int:
        """Elements of one rank's parts."""
        return sum(shard(n, ranks) for n, _, trains in self.params if trains or not trainable)

    def part(self, ranks: int, nbytes: int | None = None, *, trainable: bool = False) -> int:
        """Bytes of one rank's parts, in `nbytes` per element (None: as stored)."""
        rows = ((n, size) for n, size, trains in self.params if trains or not trainable)
        return math.ceil(sum(shard(n, ranks) * _cast(size, nbytes) for n, size in rows))

    def whole(self, ranks: int, nbytes: int | None = None, *, trainable: bool = False) -> int:
        """Bytes of all ranks' parts together, padding included."""
        return ranks * self.part(ranks, nbytes, trainable=trainable)

    def flat(self, ranks: int, nbytes: int | None = None, *, trainable: bool = False) -> int:
        """Bytes of one rank's part of FSDP1's flat parameters, one per stored type."""
        total = 0
        for size in sorted({size for _, size, _ in self.params}):
            mine = [n for n, s, trains in self.params if s == size and (trains or not trainable)]
            each = int(_cast(size, nbytes))
            total += flat_shard(mine, ranks, each) * each if mine else 0
        return total

    @property
    def elements(self) -> int:
        return sum(n for n, _, _ in self.params)


class Units(Struct, frozen=True):
    """The units of a model at its dimensions."""

    root: FsdpUnit
    first: Mapping[str, FsdpUnit]
    """Layer 0 of each stack, which may have additional parameters (T5's relative positions)."""
    layer: Mapping[str, FsdpUnit]
    depth: Mapping[str, int]

    def of(self, stack: str, block: int) -> FsdpUnit:
        """The unit of the layer that block 0 to 4 of a tape's pass represents."""
        return self.first[stack] if block == 0 else self.layer[stack]

    @property
    def all(self) -> list[FsdpUnit]:
        """Every unit, as often as there are layers."""
        found = [self.root]
        for stack, count in self.depth.items():
            found += [self.first[stack], *[self.layer[stack]] * (count - 1)]
        return found


def units(made: MadeLaw, dims: Mapping[str, int]) -> Units:
    """The units of a law's model: a layer each, as transformers' wrapping by layer class does, and the rest."""
    p = made.parameters

    def at(rows: tuple[ParameterRow, ...]) -> tuple[tuple[int, float, bool], ...]:
        return tuple((evaluate(size, dims), nbytes, trains) for size, nbytes, trains in rows)

    layer = {stack: FsdpUnit(at(rows)) for stack, rows in p.layer.items()}
    first = {stack: FsdpUnit((*at(p.first.get(stack, ())), *layer[stack].params)) for stack in layer}
    depth = {stack: dims[made.tape.depths[stack]] for stack in layer}
    return Units(FsdpUnit(at(p.outside)), first, layer, depth)


def cut(held: Units, packed: float | None) -> Units:
    """The units with what is cut alone, packed weights as the bytes that they are stored in (Layout.packed)."""

    def of(unit: FsdpUnit) -> FsdpUnit:
        return FsdpUnit(tuple(_stored(row, packed) for row in unit.params if row[1] >= 1 or row[1] == packed))

    first = {stack: of(unit) for stack, unit in held.first.items()}
    return Units(of(held.root), first, {stack: of(unit) for stack, unit in held.layer.items()}, held.depth)


def _stored(row: tuple[int, float, bool], packed: float | None) -> tuple[int, float, bool]:
    elements, size, trains = row
    return (math.ceil(elements * size), 1, trains) if size == packed else row


def weight_sizes(made: MadeLaw, nbytes: int) -> frozenset[Size]:
    """The formulas of every parameter's size in `nbytes` per element: what a copy of it in that type measures. Packed
    weights are not cast: what is as large as they are in that type is the dequantised weight of a layer at work."""
    p = made.parameters
    rows = [*p.outside, *(row for each in (p.layer, p.first) for rows in each.values() for row in rows)]
    return frozenset(tuple((c * nbytes, m) for c, m in size) for size, each, _ in rows if each >= LEAST_FLOAT)
