"""Optimizer steps: what they keep per parameter, and what they hold for a moment, as torch and bitsandbytes do it.

Sources: torch/optim/{adam,adamw,sgd,adafactor}.py of 2.13, transformers/optimization.py (Adafactor), bitsandbytes
optim/optimizer.py (states of tensors under 4,096 elements stay fp32, min_8bit_size; one fp32 absmax per 256 elements),
schedulefree/{adamw,radam,sgd}_schedulefree.py of facebookresearch/schedule_free, lomo_optim/lomo.py of OpenLMLab/LOMO.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from preflight.records import dataclass

MIN_8BIT_ELEMENTS = 4096
BLOCK_8BIT = 256


@dataclass(frozen=True)
class Step:
    """`states`: bytes of each storage made in the first step, in order, and kept. `waves`: storages held together in
    every step; one wave is over before the next begins."""

    states: tuple[int, ...]
    waves: tuple[tuple[int, ...], ...]

    @property
    def temporary(self) -> int:
        """Bytes of the largest wave."""
        return max((sum(wave) for wave in self.waves), default=0)


Params = Sequence[tuple[int, int]]
"""(elements, bytes per element) of every trainable parameter."""

# States as copies of the parameter (in its own dtype); copies held for a moment of all parameters at once (foreach), or
# of one parameter (for-loop), and how many of those are still bound while the next parameter's are made. Fused kernels
# hold nothing.
_PLAIN: dict[str, tuple[int, int, int, int]] = {
    "adamw": (
        2,
        1,
        2,
        1,
    ),  # foreach: the list exp_avg_sq_sqrt; for-loop: the root, the quotient beside it, bound as denom
    "adam": (2, 1, 2, 1),
    "nadam": (2, 1, 2, 1),
    "radam": (2, 1, 2, 0),
    "sgd": (0, 0, 0, 0),  # param.add_(grad) in place
    "sgd-momentum": (1, 0, 0, 0),
    "lion": (1, 1, 1, 1),  # the interpolated update, then its sign in place
    "rmsprop": (1, 1, 1, 1),
    "adagrad": (1, 2, 1, 1),  # foreach: the scaled gradients and the roots
    "schedule-free-adamw": (2, 1, 1, 1),  # z beside the squares; the root alone is made, gradients are divided in place
    "schedule-free-radam": (2, 1, 1, 1),
    "schedule-free-sgd": (1, 0, 0, 0),  # z
}
# Bytes of state per element where it is quantised.
_QUANTISED = {"adamw-8bit": 2, "lion-8bit": 1, "adamw-4bit": 1, "adamw-fp8": 2}
# Paged states lie in unified memory, outside of PyTorch's allocator: bytes of state per element of the tensors that are
# too small for it, which stay on the GPU.
_PAGED = {"paged-adamw": 8, "paged-adamw-32bit": 8, "paged-adamw-8bit": 8, "paged-lion": 4, "paged-lion-8bit": 4}
MIN_PAGED_ELEMENTS = 100_000
"""bitsandbytes, optim/optimizer.py, get_state_buffer: smaller tensors are not paged."""


def step(name: str, implementation: str, params: Params) -> Step | None:
    """One optimizer's step over the trainable parameters; None for an optimizer that is not known."""
    return _step(name, implementation, tuple(params))


@lru_cache(maxsize=256)
def _step(name: str, implementation: str, params: tuple[tuple[int, int], ...]) -> Step | None:
    """The same, remembered: batch and lengths, which a search varies most, change nothing here."""
    if name in _PLAIN:
        copies, foreach, loop, bound = _PLAIN[name]
        states = tuple(n * size for n, size in params for _ in range(copies))
        if implementation == "fused":
            return Step(states, ())
        if implementation == "foreach":
            return Step(states, (tuple(n * size for n, size in params for _ in range(foreach)),) if foreach else ())
        sizes = [n * size for n, size in params]
        waves = zip(sizes, [0, *sizes], strict=False)
        return Step(states, tuple((size,) * loop + (before,) * bound for size, before in waves) if loop else ())
    if name in _PAGED:
        small = [n for n, _ in params if n < MIN_PAGED_ELEMENTS]
        if "8bit" in name:
            return Step(tuple(s for n in small for s in _quantised(n, _PAGED[name] // 4)), ())
        return Step(tuple(4 * n for n in small for _ in range(_PAGED[name] // 4)), ())
    if name == "adafactor":
        return _adafactor(params)
    if name == "lomo":
        return Step((), tuple((4 * n, 4 * n) for n, _ in params))  # gradient and parameter in fp32, one after the other
    if name in _QUANTISED:
        return Step(tuple(s for n, _ in params for s in _quantised(n, _QUANTISED[name])), ())
    return None


def _quantised(elements: int, bytes_per_element: int) -> tuple[int, ...]:
    if elements < MIN_8BIT_ELEMENTS:
        return (4 * elements,) * max(1, bytes_per_element)
    return (elements * bytes_per_element, 4 * max(1, bytes_per_element) * math.ceil(elements / BLOCK_8BIT))


def _adafactor(params: Params) -> Step:
    """transformers' Adafactor without first moments: a row and a column of fp32 statistics per matrix (here as for a
    square one), and per parameter the squared update, the update and the scaled update in fp32."""
    states = tuple(4 * math.isqrt(n) for n, _ in params for _ in range(2))
    return Step(states, tuple((4 * n, 4 * n, 4 * n) for n, _ in params))


def known() -> tuple[str, ...]:
    """Names of the optimizers that have a law."""
    return (*_PLAIN, "adafactor", "lomo", *_QUANTISED, *_PAGED)
