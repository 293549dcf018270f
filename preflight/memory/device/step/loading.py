"""Loading weights onto the GPU, and the cached blocks that loading leaves.

Weights that will be quantised arrive in 16 bits, one after the other, are quantised there, and the 16-bit storage is
freed: PyTorch keeps it (transformers, quantizers/quantizer_bnb_4bit.py; bitsandbytes, Params4bit._quantize). k-bit
preparation then casts what was not quantised to fp32, one parameter after the other (peft, utils/other.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.quantization import whole as quantised_at
from preflight.memory.device.step.allocator import MemoryBlock
from preflight.memory.device.step.replay import Replay

LOADED = 2
"""Bytes of an element as it is loaded before it is quantised."""
SCALES = 4 / 64
"""Bytes per element of 4-bit weights' scales: a float32 for 64 elements (bitsandbytes, quantize_4bit)."""
DOUBLE_SCALES = (1 + 4 / 256) / 64
"""The same doubly quantised: a byte for 64 elements, and a float32 for 256 of those (compress_statistics)."""
MOST_COPIES = 64
"""Copies of a model that are allocated storage by storage; more are one block for each weight, which fits as little."""


def scales(rows: Sequence[Weight], double: bool) -> list[Weight]:
    """A quantised model's parameters with the scales that it has."""
    return [(n, DOUBLE_SCALES if double and each == SCALES else each, trains) for n, each, trains in rows]


def load(
    replay: Replay, rows: Sequence[Weight], quantization: QuantizedWeights | None, share: float = 1.0, copies: int = 1
) -> None:
    """Allocates a model's parameters. `rows`: (elements, bytes per element, trainable); `share`: what one rank
    keeps."""
    if quantization is None:
        sizes = [math.ceil(n * each * share) for n, each, _ in rows]
        if copies > MOST_COPIES:
            sizes, copies = [size * copies for size in sizes], 1
        replay.hold([size for size in sizes for _ in range(copies) if size], "weights", "load")
        return
    whole = quantised_at(quantization)
    waiting: list[tuple[list[tuple[MemoryBlock, int]], int]] = []
    for elements, each, trains in rows:
        size = math.ceil(elements * each * share)
        if trains:
            continue
        if each == whole:
            original = replay.hold([round(elements * LOADED * share)], "weights", "load")
            replay.hold([size], "weights", "load")
            replay.drop(original)
        elif quantization.upcast_rest and each == 2 * LOADED:
            waiting.append((replay.hold([size // 2], "weights", "load"), size))
        else:
            replay.hold([size], "weights", "load")
    for held, size in waiting:
        replay.hold([size], "weights", "load")
        replay.drop(held)
    replay.hold([math.ceil(n * each * share) for n, each, trains in rows if trains], "weights", "load")
