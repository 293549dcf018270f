"""The counters of CUDA's allocators, from a torch that pretends to have some: the program sees its own figures."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.guard.counters import CudaCounters, NoCounters, counters, follow_fractions, fraction_of


class Core:
    """As torch._C: current and peak bytes of each device."""

    def __init__(self, devices: int = 1) -> None:
        self.current, self.peaks = [0] * devices, [0] * devices
        self.resets = self.reads = 0

    def use(self, size: int, device: int = 0) -> None:
        self.current[device] += size
        self.peaks[device] = max(self.peaks[device], self.current[device])

    def _cuda_memoryStats(self, device: int) -> dict[str, Any]:
        self.reads += 1
        pools = {"all": {"current": self.current[device], "peak": self.peaks[device]}}
        names = ("requested_bytes", "allocated_bytes", "reserved_bytes")
        return {**{name: {"all": dict(pools["all"])} for name in names}, "num_alloc_retries": 1, "num_ooms": 2}

    def _cuda_resetPeakMemoryStats(self, device: int) -> None:
        self.peaks[device], self.resets = self.current[device], self.resets + 1


def torch_with(core: Core, started: bool = True) -> Any:
    def asked() -> bool:
        raise AssertionError("nothing may ask whether there is a GPU")

    cuda = SimpleNamespace(is_initialized=lambda: started, current_device=lambda: 0, is_available=asked,
                           device_count=lambda: len(core.current))  # fmt: skip
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
    assert [seen(torch)] == core.peaks


def test_the_gpu_that_takes_the_most_is_recorded() -> None:
    """A second GPU comes into use between two looks: its peak is there at the next."""
    core = Core(4)
    found = counters(torch_with(core))
    core.use(100)
    assert (found.take()["allocated"], found.gpus) == (100, 1)
    core.use(300, 2)
    core.use(-200, 2)
    core.reads = 0
    assert (found.take()["allocated"], core.reads) == (100, 1)
    found.look()
    assert (found.take()["allocated"], found.gpus) == (300, 2)
    assert found.take()["allocated"] == 100
    core.use(50, 2)
    assert (found.take()["allocated"], found.now()["allocated"]) == (150, 150)
    assert found.events() == {"retries": 2, "ooms": 4}


@pytest.mark.parametrize("told", [True, False], ids=["asked", "followed"])
def test_the_share_of_a_memory_fraction(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that cannot be asked is followed from the moment that the recorder is there."""
    monkeypatch.delattr(sys, "_preflight_fractions", raising=False)
    core: Any = Core()
    fractions = {}
    core._cuda_setMemoryFraction = lambda fraction, device: fractions.update({device: fraction})
    if told:
        core._cuda_getMemoryFraction = lambda device: fractions.get(device, 1.0)
    torch = torch_with(core)
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory=1000)
    follow_fractions(torch)
    assert CudaCounters(torch).share() is None
    torch._C._cuda_setMemoryFraction(0.25, 0)
    assert (CudaCounters(torch).share(), fractions) == (250, {0: 0.25})


def test_a_fraction_of_the_environment_is_read_before_cuda_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = torch_with(Core(), started=False)
    assert fraction_of(torch) == 1.0
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,per_process_memory_fraction:0.5")
    assert fraction_of(torch) == 0.5
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:.25")
    assert fraction_of(torch) == 0.25
