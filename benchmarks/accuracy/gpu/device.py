"""The device's counters: what PyTorch's allocator and the driver say. Everything that asks CUDA stands here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Protocol

import torch

COUNTERS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
"""Statistics of torch.cuda.memory_stats: current and peak of each are recorded."""


class Device(Protocol):
    """What a case asks of the device that it runs on."""

    name: str
    """As torch.device takes it."""

    def synchronize(self) -> None: ...

    def reset_peaks(self) -> None: ...

    def counters(self) -> dict[str, int]:
        """Bytes by counter: "allocated", "allocated_peak", ..."""
        ...

    def used(self) -> int | None:
        """Bytes in use on the device by anybody; None: it does not say."""
        ...

    def record(self, enabled: bool) -> None:
        """Begin or end the allocator's history."""
        ...

    def label(self, text: str) -> None:
        """Name what allocates from here on, in the history."""
        ...

    def snapshot(self) -> Mapping[str, Any]: ...

    def facts(self) -> dict[str, Any]: ...


class Cuda:
    """The current CUDA device."""

    name = "cuda"

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def reset_peaks(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def counters(self) -> dict[str, int]:
        stats = torch.cuda.memory_stats()
        found = {}
        for counter in COUNTERS:
            short = counter.removesuffix("_bytes")
            found[short] = int(stats.get(f"{counter}.all.current", 0))
            found[f"{short}_peak"] = int(stats.get(f"{counter}.all.peak", 0))
        found["retries"] = int(stats.get("num_alloc_retries", 0))
        return found

    def used(self) -> int | None:
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def record(self, enabled: bool) -> None:
        if enabled:
            torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python")
        else:
            torch.cuda.memory._record_memory_history(enabled=None)

    def label(self, text: str) -> None:
        put = getattr(torch.cuda.memory, "_set_memory_metadata", None)  # from PyTorch 2.10 on
        if put is not None:
            put(text)

    def snapshot(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = torch.cuda.memory._snapshot()
        return found

    def facts(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(0)
        return {
            "gpu": properties.name,
            "total": properties.total_memory,
            "compute_capability": [properties.major, properties.minor],
            "driver": _nvidia_smi("driver_version"),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", "")),
        }


def _nvidia_smi(query: str) -> str | None:
    """One answer of nvidia-smi for the first device; None where it is not there."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def used_before() -> int | None:
    """Bytes in use before this process has a context, as nvidia-smi says; asks no CUDA."""
    text = _nvidia_smi("memory.used")
    return int(text) * 2**20 if text is not None and text.isdigit() else None


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what a step allocates."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "transformers", "peft", "timm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
