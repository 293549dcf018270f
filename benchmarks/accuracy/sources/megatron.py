"""bigcode's Megatron-LM (issue 20): a grid of heads and layers. Neither the precision nor the figure's tier is said."""

from __future__ import annotations

from benchmarks.accuracy.truth import Inexpressible, Row

NAME = "megatron"


def recognises(row: Row) -> bool:
    return "bigcode-project/Megatron-LM" in row["source"]


def fields(row: Row) -> Inexpressible:
    return Inexpressible("Megatron's precision, optimizer and fused kernels are not stated")
