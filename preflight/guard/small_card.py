"""A card in small: the CPU's memory counted as a GPU's, with a budget past which torch.OutOfMemoryError is raised.

Every path that handles an out-of-memory error can be tried with it where there is no GPU. It counts the storages that
are alive. It does not see temporaries within an operation, there is no fragmentation, and it counts after the operation
has run. PREFLIGHT_SMALL_CARD=64MiB puts a whole program that `preflight run` starts on such a card.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_SIZE = re.compile(r"\s*([\d.]+)\s*(B|KiB|MiB|GiB)?\s*")
_UNITS = {None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
BLOCK = 512
"""Bytes that sizes are rounded up to, as the CUDA allocator does (kMinBlockSize of CUDACachingAllocator.cpp)."""

_cards: list[SmallCard] = []


def current() -> SmallCard | None:
    """The card that is in place."""
    return _cards[-1] if _cards else None


def size_of(text: str) -> int:
    """Bytes of "64MiB". Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size: write 64MiB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2]])


class SmallCard(TorchDispatchMode):
    """The mode. `budget` in bytes, or as "64MiB"; None: it only counts.

    Tensors that were made before count from the moment `hold` is called with them, or an operation returns them.
    """

    def __init__(self, budget: int | str | None = None, name: str = "small card") -> None:
        super().__init__()
        self.budget = size_of(budget) if isinstance(budget, str) else budget
        self.name = name
        self.live = self.peak = self.ooms = 0
        self.requested = self.requested_peak = 0
        self._alive: dict[int, Any] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Any:
        _cards.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        _cards.remove(self)
        return super().__exit__(*error)

    def hold(self, *things: Any) -> None:
        """Count the tensors of modules, optimizers and other things that are there already."""
        for thing in things:
            if isinstance(thing, torch.nn.Module):
                thing = [*thing.parameters(), *thing.buffers()]
            for one in tree_iter(thing):
                if isinstance(one, torch.Tensor):
                    self._born(one)

    def reset_peak(self) -> None:
        self.peak, self.requested_peak = self.live, self.requested

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in tree_iter(found):
            if isinstance(one, torch.Tensor):
                self._born(one)
        return found

    def _born(self, tensor: Any) -> None:
        if tensor.device.type == "meta" or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
            return
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have none
            return
        key, asked = storage._cdata, storage.nbytes()
        with self._lock:
            if key in self._alive:
                return
            size = -(-asked // BLOCK) * BLOCK
            if self.budget is not None and self.live + size > self.budget:
                self.ooms += 1
                raise self._error(asked)
            self._alive[key] = weakref.ref(storage, self._end_of(key, size, asked))
            self.live += size
            self.requested += asked
            self.peak = max(self.peak, self.live)
            self.requested_peak = max(self.requested_peak, self.requested)

    def _end_of(self, key: int, size: int, asked: int) -> Any:
        def died(_: Any) -> None:
            with self._lock:
                if self._alive.pop(key, None) is not None:
                    self.live -= size
                    self.requested -= asked

        return died

    def _error(self, asked: int) -> Exception:
        """The message of a CUDA GPU, with this card's figures."""
        budget = self.budget or 0
        kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
        free, live = _mib(max(0, budget - self.live)), _mib(self.live)
        return kind(  # type: ignore[no-any-return]
            f"CUDA out of memory. Tried to allocate {_mib(asked)}. GPU 0 has a total capacity of {_mib(budget)} of "
            f"which {free} is free. Of the allocated memory {live} is allocated by PyTorch, and 0 bytes is reserved by "
            f"PyTorch but unallocated. ({self.name})"
        )


def _mib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"
