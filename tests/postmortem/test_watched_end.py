"""How a watched run ended, in the words of the post-mortem."""

from __future__ import annotations

import pytest

from preflight.postmortem.watched import explained
from preflight.vocabulary.watched import WatchedError, WatchedHost, WatchedRank, WatchedRun

TEXT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 512.00 MiB "
    "is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved "
    "by PyTorch but unallocated."
)
OOM = WatchedRank(0, error=WatchedError("OutOfMemoryError", "allocator", 2 << 30, "backward", TEXT))
PLAIN = WatchedRank(0, phase="validation")
GIB = 2**30


@pytest.mark.parametrize(
    "run",
    [
        WatchedRun(0, 1.0, (OOM,)),
        WatchedRun(-15, 1.0, (PLAIN,), asked_to_end=15),
        WatchedRun(1, 1.0, (WatchedRank(0, error=WatchedError("ValueError", text=TEXT)),)),
        WatchedRun(3, 1.0),
    ],
)
def test_nothing_is_said_of_memory(run: WatchedRun) -> None:
    assert explained(run) is None


def test_gpu_memory_with_the_phase_of_the_recorder() -> None:
    found = explained(WatchedRun(1, 1.0, (PLAIN, OOM)))
    assert found is not None
    assert found.limit in ("gpu", "gpu-fragmented")
    assert found.when.phase == "backward"
    assert "2 GiB" in found.title


def test_an_error_that_the_program_caught() -> None:
    found = explained(WatchedRun(1, 1.0, (WatchedRank(0, phase="forward", ooms=1),)))
    assert found is not None
    assert (found.limit, found.when.phase) == ("gpu", "forward")


def test_the_kernels_counter_names_the_group() -> None:
    run = WatchedRun(-9, 1.0, (PLAIN,), WatchedHost(limit=8 * GIB, peak=8 * GIB, kills=1))
    found = explained(run, "system.slice/slurmstepd.scope/job_77/step_0")
    assert found is not None
    assert (found.limit, found.when.phase) == ("cgroup", "validation")
    assert "SLURM job 77 reached its memory limit of 8 GiB" in found.title


def test_a_full_node_and_a_kill_that_nobody_explains() -> None:
    full = explained(WatchedRun(137, 1.0, (), WatchedHost(total=100 * GIB, least_available=GIB)))
    assert full is not None
    assert full.limit == "node"
    alone = explained(WatchedRun(-9, 1.0, (PLAIN,), WatchedHost(total=100 * GIB, least_available=50 * GIB)))
    assert alone is not None
    assert alone.limit == "killed"


def test_a_worker_of_a_loader() -> None:
    text = "DataLoader worker (pid 7) is killed by signal: Killed. "
    rank = WatchedRank(0, error=WatchedError("RuntimeError", "worker", None, "forward", text))
    found = explained(WatchedRun(1, 1.0, (rank,)))
    assert found is not None
    assert found.limit == "killed"
