"""Frees what an exception holds: its traceback keeps every frame alive, and with them the tensors of the failed step.

To be called outside of `except`, when nothing else refers to the exception.
"""

from __future__ import annotations

import gc
import random
import sys
import traceback
from typing import Any

from .memory_errors import chain


def free(*errors: BaseException | None) -> None:
    """Clear the frames of exceptions and of their causes, collect garbage, give cached blocks of GPUs back."""
    for error in errors:
        for one in chain(error):
            if one.__traceback__ is not None:
                _clear(one.__traceback__)
                one.__traceback__ = None
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for name in ("cuda", "mps", "xpu"):
        part = getattr(torch, name, None)
        if part is not None and hasattr(part, "empty_cache") and _in_use(part):
            part.empty_cache()


def _clear(trace: Any) -> None:
    """`traceback.clear_frames`, which leaves frames that are running: those hold what they need."""
    traceback.clear_frames(trace)


def _in_use(part: Any) -> bool:
    started = getattr(part, "is_initialized", None) or getattr(part, "is_available", None)
    return bool(started()) if started is not None else False


class RandomState:
    """The random numbers of Python, numpy and torch (CPU and GPUs), as they were when this was made."""

    def __init__(self) -> None:
        import torch

        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore(self) -> None:
        import torch

        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
