"""A stand-in for a CUDA device: counts the storages of a real CPU step as its allocator would, and keeps a history."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_

CONTEXT = 300 * 2**20
ROUNDING = 512
SEGMENT = 2 * 2**20


class FakeCuda(TorchDispatchMode):
    """Use as a context around what is measured. `limit`: bytes at which it is out of memory."""

    name = "cpu"

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.now = {"requested": 0, "allocated": 0, "active": 0, "reserved": 0}
        self.peaks = dict(self.now)
        self.history: list[dict[str, Any]] = []
        self.recording = False
        self.labelled = ""
        self._live: dict[int, Any] = {}
        self._serial = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tree_map_(self._see, out)
        return out

    def _see(self, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return
        storage = value.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._live or not size:
            return
        if self.limit is not None and self.now["allocated"] + size > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.\nmore")
        self._serial += 1
        address = self._serial
        self._live[key] = weakref.ref(storage, lambda _: self._gone(key, address, size))
        self._add(size, 1)
        self._log("alloc", address, size)

    def _gone(self, key: int, address: int, size: int) -> None:
        self._live.pop(key, None)
        self._add(size, -1)
        self._log("free_requested", address, size)

    def _add(self, size: int, sign: int) -> None:
        rounded = -(-size // ROUNDING) * ROUNDING
        self.now["requested"] += sign * size
        for counter in ("allocated", "active"):
            self.now[counter] += sign * rounded
        self.now["reserved"] = max(self.now["reserved"], -(-self.now["allocated"] // SEGMENT) * SEGMENT)
        self.peaks = {name: max(self.peaks[name], size) for name, size in self.now.items()}

    def _log(self, action: str, address: int, size: int) -> None:
        if self.recording:
            event = {"action": action, "addr": address, "size": size, "user_metadata": self.labelled, "frames": []}
            self.history.append(event)

    # --- what a case asks of its device ---

    def synchronize(self) -> None:
        pass

    def reset_peaks(self) -> None:
        self.peaks = dict(self.now)

    def counters(self) -> dict[str, int]:
        return {**self.now, **{f"{name}_peak": size for name, size in self.peaks.items()}, "retries": 0}

    def used(self) -> int | None:
        return self.now["reserved"] + CONTEXT

    def record(self, enabled: bool) -> None:
        self.recording = enabled

    def label(self, text: str) -> None:
        self.labelled = text

    def snapshot(self) -> Mapping[str, Any]:
        return {"device_traces": [list(self.history)]}

    def facts(self) -> dict[str, Any]:
        return {"gpu": "A100 40GB", "total": 40 * 2**30}
