"""The one classifier of exceptions: what is no out-of-memory error comes before what is."""

from __future__ import annotations

import pytest
import torch

from preflight.guard import memory_errors
from preflight.guard.memory_errors import classify


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("the shop is out of memory cards"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("Watchdog caught collective operation timeout: NCCL"),
        KeyError("out of memory"),
        FileNotFoundError(2, "no such file"),
        None,
    ],
)
def test_other_errors_are_none(error: BaseException | None) -> None:
    assert classify(error) is None


@pytest.mark.parametrize(
    ("error", "kind", "recoverable"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "allocator", True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; ...)"), "allocator", True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "allocator", True),
        (RuntimeError("CUDA error: out of memory"), "driver", False),
        (RuntimeError("HIP error: out of memory"), "driver", False),
        (RuntimeError("cuda runtime error (2) : out of memory at THCStorage.cu"), "driver", False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "library", True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "library", True),
        (RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"), "nccl", False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"), "host", False),
        (RuntimeError("CUDA error: out of memory in cudaHostAlloc"), "host", False),
        (MemoryError(), "host", False),
        (OSError(12, "Cannot allocate memory"), "host", False),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), "worker", False),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error."), "shm", False),
    ],
)  # fmt: skip
def test_kinds(error: BaseException, kind: str, recoverable: bool) -> None:
    found = classify(error)
    assert found is not None
    assert (found.kind, found.recoverable) == (kind, recoverable)
    assert memory_errors.words(found)


def test_causes_and_groups_are_searched() -> None:
    inner = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB.")
    outer = ValueError("the trial failed")
    outer.__cause__ = inner
    found = classify(outer)
    assert found is not None
    assert found.tried == 3 * 2**29
    inner.__context__ = outer  # a circle

    class Group(Exception):
        exceptions = (inner,)

    assert classify(Group()) is not None
    assert classify(outer) is not None


def test_the_size_on_the_host_is_read() -> None:
    found = classify(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."))
    assert found is not None
    assert found.tried == 4096
