"""Optimizer steps: their states per parameter and their temporary tensors, as in torch and bitsandbytes.

Sources: torch/optim/{adam,adamw,sgd,adafactor}.py of 2.13, transformers/optimization.py (Adafactor), bitsandbytes
optim/{optimizer,ademamix}.py (states of tensors under 4,096 elements stay fp32, min_8bit_size; one fp32 absmax per 256
elements), torchao optim/{adam,subclass_8bit,subclass_4bit}.py, prodigyopt/prodigy.py,
schedulefree/{adamw,radam,sgd}_schedulefree.py of facebookresearch/schedule_free, lomo_optim/lomo.py of OpenLMLab/LOMO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from preflight.vocabulary.extensions import wrong
from preflight.vocabulary.optimizer import Copies, Optimizer, Params, Step, added

MIN_8BIT_ELEMENTS = 4096
BLOCK_8BIT = 256

_PLAIN: dict[str, Copies] = {
    # foreach: the list exp_avg_sq_sqrt; for-loop: the root, and the quotient, assigned to denom
    "adamw": Copies(2, 1, 2, 1),
    "adam": Copies(2, 1, 2, 1),
    "adamw-amsgrad": Copies(3, 1, 2, 1),  # the largest squares
    "adam-amsgrad": Copies(3, 1, 2, 1),
    "nadam": Copies(2, 1, 2, 1),
    "radam": Copies(2, 1, 2, 0),
    "sgd": Copies(0, 0, 0, 0),  # param.add_(grad) in place
    "sgd-momentum": Copies(1, 0, 0, 0),
    "lion": Copies(1, 1, 1, 1),  # the interpolated update, then its sign in place
    "rmsprop": Copies(1, 1, 1, 1),
    "rmsprop-momentum": Copies(2, 1, 1, 1),
    "rmsprop-centered": Copies(2, 1, 1, 1),  # the mean of the gradients
    "adagrad": Copies(1, 2, 1, 1),  # foreach: the scaled gradients and the roots
    # z in addition to the squares; only the root is made, gradients are divided in place
    "schedule-free-adamw": Copies(2, 1, 1, 1),
    "schedule-free-radam": Copies(2, 1, 1, 1),
    "schedule-free-sgd": Copies(1, 0, 0, 0),  # z
    "prodigy": Copies(4, 1, 1, 1),  # s, p0 and Adam's two; a difference or a root at a time, the latter bound as denom
}
# Implementations that go over parameters one by one whatever is asked for.
_LOOPS = ("prodigy",)
# Moments of each element that are kept in 8 bits, with a float32 for 256 of them. AdEMAMix has a slow and a fast mean.
_QUANTISED = {"adamw-8bit": 2, "lion-8bit": 1, "adamw-fp8": 2, "rmsprop-8bit": 1, "ademamix-8bit": 3}
# The same in float32 whatever the parameter's dtype, by bitsandbytes' kernels, which allocate nothing else.
_WHOLE = {"adamw-32bit": 2, "lion-32bit": 1, "rmsprop-32bit": 1, "ademamix": 3}
# Moments of paged optimizers, which lie in unified memory, outside of PyTorch's allocator. Those of tensors that are
# too small for it stay on the GPU, and so do the scales of 8-bit ones (init_state: absmax1, absmax2).
_PAGED = {
    "paged-adamw": 2,
    "paged-adamw-32bit": 2,
    "paged-adamw-8bit": 2,
    "paged-lion": 1,
    "paged-lion-8bit": 1,
    "paged-ademamix": 3,
    "paged-ademamix-8bit": 3,
}
MIN_PAGED_ELEMENTS = 100_000
"""bitsandbytes, optim/optimizer.py, get_state_buffer: smaller tensors are not paged."""
BLOCK_4BIT = 128
"""Elements that share a scale in torchao's 4-bit moments (optim/adam.py, AdamW4bit)."""

_LOW_RANK = (
    "it keeps moments of a low rank for the layers that optim_target_modules names: neither rank nor layers "
    "are fields of a Job"
)
_SHAPES = "what it keeps depends on the shapes of the matrices, and users choose which parameters it updates"
UNKNOWN: dict[str, str] = {
    "galore-adamw": f"{_LOW_RANK}; its decomposition's workspace is allocated by cuSOLVER",
    "galore-adamw-8bit": f"{_LOW_RANK}; its decomposition's workspace is allocated by cuSOLVER",
    "galore-adafactor": f"{_LOW_RANK}; its decomposition's workspace is allocated by cuSOLVER",
    "apollo-adamw": _LOW_RANK,
    "muon": _SHAPES,
    "shampoo": _SHAPES,
    "soap": _SHAPES,
    "adam-mini": "it keeps one moment for each block of parameters, and the blocks come from the names of the layers",
}
"""Why optimizers that are met have no law."""


FOREACH_BEFORE_2_1 = "foreach-2.0"
_SUMMED = ("adam", "adamw", "nadam")
"""Whose lists of roots and eps were added out of place until torch 2.1: a second copy of every parameter
(torch/optim/adamw.py of 2.0, _multi_tensor_adamw: `denom`)."""


def as_released(implementation: str, torch: tuple[int, ...] | None) -> str:
    """How a release of torch steps where `foreach` is asked for or left to it: parameter by parameter before 2.0, whose
    default was that; None: the release is not stated."""
    if implementation != "foreach" or torch is None or torch >= (2, 1):
        return implementation
    return "for-loop" if torch < (2, 0) else FOREACH_BEFORE_2_1


def step(name: str, implementation: str, params: Params) -> Step | None:
    """One optimizer's step over the trainable parameters; None for an optimizer that is not known."""
    return _step(name, implementation, tuple(params))


def with_weight_decay(plain: Step, params: Params) -> Step:
    """A step of SGD over lists of tensors with weight decay: it adds the decay to copies of all gradients at once
    (torch/optim/sgd.py, _multi_tensor_sgd)."""
    return replace(plain, waves=(tuple(n * size for n, size in params), *plain.waves))


@lru_cache(maxsize=256)
def _step(name: str, implementation: str, params: tuple[tuple[int, int], ...]) -> Step | None:
    """The same, remembered: batch and lengths, which a search varies most, change nothing here."""
    if name in _others():
        return _others()[name].step("foreach" if implementation == FOREACH_BEFORE_2_1 else implementation, params)
    if name in _PLAIN:
        copies = _PLAIN[name]
        if name in _LOOPS:
            implementation = "for-loop"
        if implementation == FOREACH_BEFORE_2_1:
            copies, implementation = replace(copies, foreach=copies.foreach + (name in _SUMMED)), "foreach"
        return copies(implementation, params)
    if name in _PAGED:
        return Step(tuple(s for n, _ in params for s in _paged(n, _PAGED[name], "8bit" in name)), ())
    if name in _WHOLE:
        return Step(tuple(4 * n for n, _ in params for _ in range(_WHOLE[name])), ())
    if name == "adamw-4bit":
        return Step(tuple(s for n, size in params for s in _four_bits(n, size)), ())
    if name == "adafactor":
        return _adafactor(params)
    if name == "lomo":
        return Step((), tuple((4 * n, 4 * n) for n, _ in params))  # gradient and parameter in fp32, one after the other
    if name in _QUANTISED:
        return Step(tuple(s for n, _ in params for s in _quantised(n, _QUANTISED[name])), ())
    return None


@lru_cache(maxsize=1)
def _others() -> Mapping[str, Optimizer]:
    """Laws of other distributions. Raises ExtensionError."""
    for name, (_, one) in added().items():
        if name in _own():
            raise wrong(one, f"preflight itself has the law of {name}")
    return {name: row for name, (row, _) in added().items()}


def _quantised(elements: int, moments: int) -> tuple[int, ...]:
    if elements < MIN_8BIT_ELEMENTS:
        return (4 * elements,) * moments
    return (elements * moments, 4 * moments * math.ceil(elements / BLOCK_8BIT))


def _paged(elements: int, moments: int, eight: bool) -> tuple[int, ...]:
    """The states that stay on the GPU."""
    if elements < MIN_PAGED_ELEMENTS:
        return _quantised(elements, moments) if eight else (4 * elements,) * moments
    return (4 * moments * math.ceil(elements / BLOCK_8BIT),) if eight else ()


def _four_bits(elements: int, size: int) -> tuple[int, ...]:
    """torchao's AdamW4bit: two moments of half a byte; those of small tensors, and of such as no whole number of blocks
    make, have the parameter's dtype (optim/adam.py, _new_buffer)."""
    if elements < MIN_8BIT_ELEMENTS or elements % BLOCK_4BIT:
        return (size * elements,) * 2
    return (elements // 2, 4 * (elements // BLOCK_4BIT)) * 2


def _adafactor(params: Params) -> Step:
    """transformers' Adafactor without first moments: a row and a column of fp32 statistics per matrix (here as for a
    square one), and per parameter the squared update, the update and the scaled update in fp32."""
    states = tuple(4 * math.isqrt(n) for n, _ in params for _ in range(2))
    return Step(states, tuple((4 * n, 4 * n, 4 * n) for n, _ in params))


def known() -> tuple[str, ...]:
    """Names of the optimizers that have a law."""
    return (*_own(), *_others())


def _own() -> tuple[str, ...]:
    return (*_PLAIN, "adafactor", "lomo", *_WHOLE, *_QUANTISED, "adamw-4bit", *_PAGED)


def unknown(name: str) -> str:
    """Why an optimizer has no law, for a message."""
    if name in UNKNOWN:
        return f"train.optimizer {name} has no law: {UNKNOWN[name]}"
    if name == "other":  # as programs are read
        return "the optimizer of the program is none that has a law: state train.optimizer if it keeps as much as one"
    return f"train.optimizer {name} has no law (known: {', '.join(known())})"
