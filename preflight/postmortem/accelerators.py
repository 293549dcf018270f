"""Failed GPU allocations outside PyTorch's allocator: of cuBLAS, cuDNN, NCCL, JAX, TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.postmortem.evidence import Evidence, GpuOom
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.trace import Traces
from preflight.postmortem.units import LARGEST, SIZE, size

_JAX = re.compile(rf"(?:RESOURCE_EXHAUSTED|out of memory).*?(?:allocat\w+) (?:{SIZE}|(\d+)\s+bytes)", re.IGNORECASE)
_JAX_BARE = re.compile(
    r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate|XLA:TPU compile)|CUDA_ERROR_OUT_OF_MEMORY"
)
_TENSORFLOW = re.compile(r"OOM when allocating tensor with shape\s?\[([\d,]*)\] and type (\w+)")
_TENSORFLOW_BARE = re.compile(r"ResourceExhaustedError\b.*(?:OOM|memory)|OOM when allocating tensor")
_CUBLAS = re.compile(r"(?:RuntimeError|CUDA error).*CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED when calling")
_CUDNN = re.compile(
    r"CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_NOT_SUPPORTED|Unable to find a valid cuDNN algorithm"
    r"|FIND was unable to find an engine"
)
_TYPES = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "int8": 1}


class Accelerators(Parser):
    """Reads one log."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        text = line.text
        if "Tried to allocate" in text or "torch.cuda.OutOfMemoryError" in text:
            return  # PyTorch's own
        if "CUBLAS" in text and _CUBLAS.search(text):
            yield self._made(line, "cublas")
        elif ("uDNN" in text or "CUDNN" in text or "unable to find an engine" in text) and _CUDNN.search(text):
            yield self._made(line, "cudnn")
        elif "NCCL" in text and "out of memory" in text:
            yield self._made(line, "nccl")
        elif "OOM when" in text or "ResourceExhausted" in text:
            if found := _TENSORFLOW.search(text):
                yield self._made(line, "tensorflow", _tensor(found[1], found[2]))
            elif _TENSORFLOW_BARE.search(text):
                yield self._made(line, "tensorflow")
        elif "RESOURCE_EXHAUSTED" in text or "CUDA_ERROR_OUT_OF_MEMORY" in text:
            if "llocat" in text and (found := _JAX.search(text)):
                number = size(found[1], found[2]) if found[1] else int(found[3][:18])
                yield self._made(line, "jax", number)
            elif _JAX_BARE.search(text):
                yield self._made(line, "jax")

    def _made(self, line: LogLine, library: str, tried: int | None = None) -> GpuOom:
        frames = self._traces.frames(line.stream)
        return GpuOom(line.place, library, tried=tried, stream=line.stream, frames=frames)  # type: ignore[arg-type]


def _tensor(shape: str, kind: str) -> int | None:
    """Bytes of a tensor that TensorFlow names by its shape and type."""
    total = _TYPES.get(kind)
    for part in shape.split(","):
        if total is None or not part or len(part) > 12:
            return None
        total *= int(part)
    return total if total is not None and total < LARGEST else None
