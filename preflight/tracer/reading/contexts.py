"""What a `with` of the project may enter."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .. import cuda
from .values import Value


class Context(Value):
    """What a `with` enters: torch.no_grad(), autocast."""

    def __init__(self, make: Any) -> None:
        self.make = make


CONTEXTS: dict[str, Any] = {
    "torch.no_grad": torch.no_grad, "torch.inference_mode": torch.no_grad, "torch.enable_grad": torch.enable_grad,
    "torch.profiler.record_function": contextlib.nullcontext, "contextlib.nullcontext": contextlib.nullcontext,
}  # fmt: skip
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast_mode.autocast")


def context(name: str, args: list[Any], kwargs: dict[str, Any]) -> Context | None:
    """The context that a library's function makes; None for any other function."""
    if name in AUTOCASTS:
        named = args[1:] if args and isinstance(args[0], str) else args
        enabled = kwargs.get("enabled", next((one for one in named if isinstance(one, bool)), True))
        if enabled is False:
            return Context(cuda.without_autocast)
        dtype = kwargs.get("dtype", next((one for one in args if isinstance(one, torch.dtype)), None))
        return Context(lambda: cuda.autocast_in_step(dtype))
    if name in CONTEXTS:
        return Context(CONTEXTS[name])
    return None
