"""Counters of memory: of the CUDA allocator, of the card in small, or none.

Peaks are kept per phase, so the allocator's counters are reset between phases. The program may read and reset the same
counters: it gets the figures that it would have had. The peak before each of our resets is kept, and added to what
the program reads until it resets them itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import Any

from . import small_card

LOOK_S = 5.0
"""Seconds between looks for GPUs that the process has begun to use."""
TIERS = ("requested", "allocated", "reserved")
Peaks = dict[str, int]


class NoCounters:
    """A process without a GPU."""

    device = "none"
    gpus = 0
    """GPUs that the process takes memory of."""

    def look(self) -> None:
        """Look now for GPUs that the process has begun to use."""

    def take(self) -> Peaks:
        """The peaks since the last call."""
        return {}

    def now(self) -> Peaks:
        return {}

    def events(self) -> dict[str, int]:
        """Counts: allocations that were tried again after the cache was emptied, and that failed."""
        return {}

    def share(self) -> int | None:
        """The most bytes that this process may reserve; None: as many as the GPU has."""
        return None


class CardCounters(NoCounters):
    """The card in small. It has no cache: reserved is what is allocated."""

    device = "small card"

    def __init__(self, card: Any) -> None:
        self._card = card

    def take(self) -> Peaks:
        card = self._card
        found = {"requested": card.requested_peak, "allocated": card.peak, "reserved": card.peak}
        card.reset_peak()
        return found

    def now(self) -> Peaks:
        return {"requested": self._card.requested, "allocated": self._card.live, "reserved": self._card.live}

    def events(self) -> dict[str, int]:
        return {"retries": 0, "ooms": self._card.ooms}


class CudaCounters(NoCounters):
    """The allocator's counters, read where all of torch reads them: torch._C. A process may use several GPUs: the
    figures are those of the one that takes the most. GPUs that are new are looked for now and then, since few use more
    than one, and a peak stays until it is taken."""

    device = "cuda"
    _KEYS = {"requested": "requested_bytes", "allocated": "allocated_bytes", "reserved": "reserved_bytes"}

    def __init__(self, torch: Any) -> None:
        self._torch, self._core = torch, torch._C
        self._stats, self._reset = self._core._cuda_memoryStats, self._core._cuda_resetPeakMemoryStats
        self._hidden: dict[int, dict[str, dict[str, int]]] = {}
        """Device -> group -> pool -> the highest peak that a reset of ours took from the program's view."""
        self._others: list[int] = []
        """GPUs in use beside the current one."""
        self._look_at = 0.0
        self._core._cuda_memoryStats = self._for_program
        self._core._cuda_resetPeakMemoryStats = self._reset_by_program

    def remove(self) -> None:
        """Torch as it was."""
        self._core._cuda_memoryStats, self._core._cuda_resetPeakMemoryStats = self._stats, self._reset

    def _for_program(self, device: int) -> Any:
        found = self._stats(device)
        for group, pools in self._hidden.get(device, {}).items():
            for pool, peak in pools.items():
                figures = found[group][pool]
                figures["peak"] = max(figures["peak"], peak)
        return found

    def _reset_by_program(self, device: int) -> Any:
        self._hidden.pop(device, None)
        return self._reset(device)

    def look(self) -> None:
        self._look_at = 0.0

    @property
    def gpus(self) -> int:  # type: ignore[override]
        return len({*self._others, self._torch.cuda.current_device()})

    def _read(self) -> list[tuple[int, Any]]:
        """The figures of each GPU in use, the current one first."""
        current = self._torch.cuda.current_device()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            found = {device: self._stats(device) for device in range(self._torch.cuda.device_count())}
            self._others = [device for device, stats in found.items() if self._of(stats, "peak").get("reserved")]
        return [(device, self._stats(device)) for device in dict.fromkeys([current, *self._others])]

    def take(self) -> Peaks:
        if not self._torch.cuda.is_initialized():
            return {}
        taken = self._read()
        for device, found in taken:
            hidden = self._hidden.setdefault(device, {})
            for group, pools in found.items():
                if isinstance(pools, dict):
                    kept = hidden.setdefault(group, {})
                    for pool, figures in pools.items():
                        if isinstance(figures, dict) and "peak" in figures:
                            kept[pool] = max(kept.get(pool, 0), figures["peak"])
            self._reset(device)
        return self._most([self._of(found, "peak") for _, found in taken])

    def now(self) -> Peaks:
        if not self._torch.cuda.is_initialized():
            return {}
        return self._most([self._of(found, "current") for _, found in self._read()])

    def _most(self, found: list[Peaks]) -> Peaks:
        return {tier: max(one.get(tier, 0) for one in found) for tier in found[0]}

    def _of(self, found: Any, which: str) -> Peaks:
        return {tier: int(found[key]["all"][which]) for tier, key in self._KEYS.items() if key in found}

    def events(self) -> dict[str, int]:
        if not self._torch.cuda.is_initialized():
            return {}
        found = [one for _, one in self._read()]
        names = {"retries": "num_alloc_retries", "ooms": "num_ooms"}
        return {name: sum(int(one.get(key, 0)) for one in found) for name, key in names.items()}

    def share(self) -> int | None:
        cuda, fraction = self._torch.cuda, fraction_of(self._torch)
        if fraction >= 1.0 or not cuda.is_initialized():
            return None
        return int(fraction * cuda.get_device_properties(cuda.current_device()).total_memory)


_FRACTIONS = "_preflight_fractions"
"""The attribute of `sys` with the fractions that the program set, by device, in releases of torch that do not tell."""


def follow_fractions(torch: Any) -> None:
    """Notes the fractions that are set from now on, if this torch cannot be asked for them."""
    core = torch._C
    if not hasattr(core, "_cuda_setMemoryFraction") or hasattr(core, "_cuda_getMemoryFraction"):
        return
    if hasattr(sys, _FRACTIONS):
        return
    real = core._cuda_setMemoryFraction
    kept: dict[int, float] = {}
    setattr(sys, _FRACTIONS, kept)

    def following(fraction: float, device: int) -> Any:
        found = real(fraction, device)
        kept[device] = fraction
        return found

    core._cuda_setMemoryFraction = following


def fraction_of(torch: Any) -> float:
    """The share of the current GPU that the allocator may reserve, by set_per_process_memory_fraction or by
    PYTORCH_CUDA_ALLOC_CONF. CUDA is not started for it."""
    if not torch.cuda.is_initialized():
        settings = (os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
        found = re.search(r"\bper_process_memory_fraction:(\d*\.?\d+)", next(filter(None, settings), ""))
        return float(found[1]) if found is not None else 1.0
    device = torch.cuda.current_device()
    with contextlib.suppress(Exception):  # another allocator, or a torch that does not tell
        return float(torch._C._cuda_getMemoryFraction(device))
    return float(getattr(sys, _FRACTIONS, {}).get(device, 1.0))


def counters(torch: Any) -> NoCounters:
    """The counters of this process. A torch that keeps them elsewhere has none that can be read without harm.

    Nothing here may start CUDA, or ask whether there is any: the program may still choose its devices, or fork.
    """
    card = small_card.current()
    if card is not None:
        return CardCounters(card)
    core = torch._C
    if (
        hasattr(core, "_cuda_memoryStats")
        and hasattr(core, "_cuda_resetPeakMemoryStats")
        and torch.cuda.is_initialized()
    ):
        return CudaCounters(torch)
    return NoCounters()
