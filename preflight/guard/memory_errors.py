"""Which exceptions mean that memory ran out, of which kind, and whether the process may go on.

The one classifier of exceptions: the guard decides by it, the recorder notes its answer, and `preflight run` explains
an end by it. It goes by the class first. A text counts only in a class that torch or the system raises: a message of
the user's own about "out of memory" in another class means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_UNITS = {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]+) ?(bytes|B|KiB|MiB|GiB|TiB)\b")
_TRIED_ON_HOST = re.compile(r"you tried to allocate (\d+) bytes")

_LIBRARY = re.compile(
    r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"
    r"|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_ALLOC_FAILED|cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\. .*workspace"
)
_WORKER = re.compile(
    r"DataLoader worker \(pid[^)]*\) is killed by signal: Killed|DataLoader worker .* exited unexpectedly"
)
_SHM = re.compile(
    r"Unable to (?:open|write to) shared memory|unable to (?:open|mmap|resize).*torch_|Bus error"
    r"|insufficient shared memory"
)
_NCCL = re.compile(r"nccl\w*|NCCL", re.IGNORECASE)
_NO_MEMORY = re.compile(r"out of memory|Cuda failure 2\b", re.IGNORECASE)
_DRIVER = re.compile(
    r"(?:CUDA|HIP|cuda runtime) (?:driver )?error(?: \(2\))? ?:? out of memory|CUDA_ERROR_OUT_OF_MEMORY", re.IGNORECASE
)
_ALLOCATOR = re.compile(
    r"^(?:CUDA|HIP|XPU|NPU|HPU|MPS backend) out of memory\b|would exceed allowed memory\. \(out of memory\)",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|Cannot allocate memory|std::bad_alloc"
)
_PINNED = re.compile(r"pin(?:ned)?[_ ]memory|cudaHostAlloc|CachingHostAllocator", re.IGNORECASE)


@dataclass(frozen=True)
class OutOfMemory:
    """What an exception says. `recoverable`: whether this process may go on after what it holds was freed.

    `kind`: allocator (torch refused, the GPU is as before), library (cuBLAS, cuDNN), driver and nccl (the context may
    be unusable), host (the system refused), worker (a loader's process was killed), shm (/dev/shm was full).
    """

    kind: str
    recoverable: bool
    tried: int | None
    text: str


def classify(error: BaseException | None) -> OutOfMemory | None:
    """What an exception or one of its causes says of memory; None: it is another error."""
    for one in chain(error):
        stated: Any = getattr(one, "out_of_memory", None)  # an error of the guard, which has freed what it speaks of
        if stated is not None and hasattr(stated, "kind"):
            return OutOfMemory(stated.kind, stated.recoverable, stated.tried, stated.text)
        found = _kind(one)
        if found is not None:
            text = str(one)
            return OutOfMemory(found, found in ("allocator", "library"), _tried(text), text.split("\n")[0][:400])
    return None


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception with its causes, contexts and the members of groups, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen or len(seen) > 100:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _kind(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return "host"
    named = {(kind.__module__ or "").split(".")[0] + "." + kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "torch.OutOfMemoryError" in named:
        return "host" if _PINNED.search(text) else "allocator"
    if not isinstance(error, (RuntimeError, OSError)):
        return None
    if _WORKER.search(text):
        return "worker"
    if _SHM.search(text):
        return "shm"
    if isinstance(error, OSError):
        return "host" if error.errno == 12 else None  # ENOMEM
    if _LIBRARY.search(text):
        return "library"
    if _HOST.search(text):
        return "host"
    if _NCCL.search(text) and _NO_MEMORY.search(text):
        return "nccl"
    if _DRIVER.search(text):
        return "host" if _PINNED.search(text) else "driver"
    return "allocator" if _ALLOCATOR.search(text) else None


def _tried(text: str) -> int | None:
    found = _TRIED.search(text)
    if found is not None:
        return int(float(found[1]) * _UNITS[found[2]])
    host = _TRIED_ON_HOST.search(text)
    return int(host[1]) if host is not None else None


def words(found: OutOfMemory) -> str:
    """One line for the user."""
    what = {
        "allocator": "GPU memory ran out", "library": "a CUDA library got no GPU memory",
        "driver": "the CUDA driver got no GPU memory", "nccl": "NCCL got no GPU memory",
        "host": "the system refused host memory", "worker": "a DataLoader worker was killed",
        "shm": "/dev/shm was full",
    }[found.kind]  # fmt: skip
    return what + (f" at a request of {gib(found.tried)}" if found.tried else "")


def gib(size: Any) -> str:
    """Bytes in words; this package has no access to preflight's."""
    number = float(size)
    return f"{number / 2**30:.1f} GiB" if number >= 2**29 else f"{number / 2**20:.1f} MiB"
