"""The counters of a CUDA allocator, from a torch that pretends to have one: the program sees its own figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from preflight.guard.counters import CudaCounters, NoCounters, counters


class Core:
    """As torch._C: current and peak bytes of one device."""

    def __init__(self) -> None:
        self.current = self.peak = self.resets = 0

    def use(self, size: int) -> None:
        self.current += size
        self.peak = max(self.peak, self.current)

    def _cuda_memoryStats(self, device: int) -> dict[str, Any]:
        pools = {"all": {"current": self.current, "peak": self.peak}}
        names = ("requested_bytes", "allocated_bytes", "reserved_bytes")
        return {**{name: {"all": dict(pools["all"])} for name in names}, "num_alloc_retries": 1, "num_ooms": 2}

    def _cuda_resetPeakMemoryStats(self, device: int) -> None:
        self.peak, self.resets = self.current, self.resets + 1


def torch_with(core: Core, started: bool = True) -> Any:
    def asked() -> bool:
        raise AssertionError("nothing may ask whether there is a GPU")

    cuda = SimpleNamespace(is_initialized=lambda: started, current_device=lambda: 0, is_available=asked)
    return SimpleNamespace(_C=core, cuda=cuda)


def seen(torch: Any) -> int:
    """What the program reads: torch.cuda.max_memory_allocated."""
    return int(torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"])


def test_cuda_is_not_started() -> None:
    core = Core()
    assert type(counters(torch_with(core, started=False))) is NoCounters
    assert type(counters(SimpleNamespace(_C=object()))) is NoCounters


def test_each_phase_has_its_own_peak() -> None:
    core = Core()
    found = counters(torch_with(core))
    core.use(100)
    core.use(-60)
    assert found.take() == {"requested": 100, "allocated": 100, "reserved": 100}
    core.use(10)
    assert found.take()["allocated"] == 50
    assert found.now()["allocated"] == 50
    assert found.events() == {"retries": 1, "ooms": 2}


def test_the_program_reads_what_it_would_have_read() -> None:
    core = Core()
    torch = torch_with(core)
    found = counters(torch)
    assert isinstance(found, CudaCounters)
    core.use(100)
    core.use(-90)
    found.take()
    assert seen(torch) == 100
    torch._C._cuda_resetPeakMemoryStats(0)
    assert seen(torch) == 10
    core.use(20)
    found.take()
    found.take()
    core.use(-20)
    assert seen(torch) == 30
    found.remove()
    assert seen(torch) == core.peak
