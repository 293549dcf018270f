"""PyTorch's out-of-memory messages of every version since 1.0, whatever text stands around or between their parts.

1.x     Tried to allocate A (GPU 0; T total capacity; X already allocated; F free; R reserved in total by PyTorch)
        (before 1.5 "C cached" in place of the last, at first without what is allocated)
2.1     A. GPU 0 has a total capacty of T of which F is free. [...] Of the allocated memory X is allocated by PyTorch,
        and R is reserved by PyTorch but unallocated.        ("capacity" from 2.2 on)
async   Allocation on device 0 would exceed allowed memory. (out of memory), then lines "Currently allocated : X",
        "Requested : A", "Device limit : T", "Free (according to CUDA): F"      (the cudaMallocAsync backend)
between "Process N has B memory in use." for other processes, "Including non-PyTorch memory, this process has B memory
        in use."; in a container this process can be a "Process N" too. "B allowed;" with a fraction set.

Each figure is found by its own words: people shorten and break these messages when they quote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.postmortem.evidence import Evidence, GpuOom, HostAllocation
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.trace import Traces
from preflight.postmortem.units import SIZE, size

MOST_LINES = 8
"""Lines that a message may be broken into."""

_START = re.compile(rf"(?<!you )Tried to allocate {SIZE}|out of memory\.? ?\(GPU \d|would exceed allowed memory")
_BARE = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|cuda runtime error \(2\)", re.IGNORECASE
)
_LITERAL = re.compile(r"""["'][^"']*out of memory[^"']*["']\s*(?:in|not in|==|,\s*$)|except\b|\bdef\b|\braise\b""")
_ADVICE = re.compile(r"\b(?:if|when(?:ever)?|in case|avoids?|prevents?|tip|hint|note)\b.*out of memory", re.IGNORECASE)
"""A sentence about the error, and not the error: `Tip: if you see "CUDA out of memory. Tried to allocate ..."`."""
_PINNING = "_utils/pin_memory.py"
"""The thread that copies batches to page-locked memory of the host: CUDA names its failures like those of the GPU."""
_DEVICE = re.compile(r"\b(?:GPU|Allocation on device) (\d{1,3})\b")
_FIGURES = {
    "tried": re.compile(rf"Tried to allocate {SIZE}|\bRequested\s*: {SIZE}", re.IGNORECASE),
    "capacity": re.compile(
        rf"total capaci?ty of {SIZE}|{SIZE} total capacity|\bhas {SIZE} total|Device limit\s*: {SIZE}", re.IGNORECASE
    ),
    "free": re.compile(rf"{SIZE} (?:is )?(?-i:free)\b|Free \(according to CUDA\)\s*: {SIZE}", re.IGNORECASE),
    "allocated": re.compile(
        rf"{SIZE} (?:is )?(?:already )?allocated\b(?! in private)|Currently allocated\s*: {SIZE}", re.IGNORECASE
    ),
    "reserved": re.compile(rf"{SIZE} (?:reserved in total|cached)", re.IGNORECASE),
    "unallocated": re.compile(rf"{SIZE} is reserved by PyTorch but unallocated", re.IGNORECASE),
    "allowed": re.compile(rf"{SIZE} allowed;", re.IGNORECASE),
    "own": re.compile(rf"this process has {SIZE} memory in use|\bProcess using {SIZE}", re.IGNORECASE),
    "private_pools": re.compile(rf"with {SIZE} allocated in private pools", re.IGNORECASE),
}
_OTHER = re.compile(rf"\bProcess (\d+) has {SIZE} memory in use", re.IGNORECASE)
_MORE = re.compile(rf"{SIZE}|reserved by PyTorch|fragmentation|memory in use|allocated|capacity", re.IGNORECASE)


class PyTorch(Parser):
    """Reads one log; `traces` knows the traceback above each stream's current line."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._pending: dict[str, list[LogLine]] = {}

    @property
    def awake(self) -> bool:
        return bool(self._pending)

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        """The evidence of a line. A message ends at a line of its stream that has none of its words."""
        started = self._pending.get(line.stream)
        text = line.text
        if ("llocate" in text or "exceed allowed" in text) and _START.search(text) and not _ADVICE.search(text):
            yield from self._done(line.stream)
            self._pending[line.stream] = [line]
            if "unallocated" in text or "reserved in total" in text or "cached)" in text:
                yield from self._done(line.stream)
        elif started is not None:
            if len(started) < MOST_LINES and _MORE.search(text):
                started.append(line)
            else:
                yield from self._done(line.stream)
        elif "out of memory" in text and _BARE.search(text) and not _LITERAL.search(text):
            frames = self._traces.frames(line.stream)
            if any(frame.path.endswith(_PINNING) for frame in frames):
                yield HostAllocation(line.place, pinned=True, frames=frames)
            elif not _ADVICE.search(text):
                yield GpuOom(line.place, "cuda", stream=line.stream, frames=frames)

    def _done(self, stream: str) -> Iterator[Evidence]:
        lines = self._pending.pop(stream, None)
        if lines is not None:
            yield read(lines, self._traces)

    def end(self) -> Iterator[Evidence]:
        for stream in list(self._pending):
            yield from self._done(stream)


def read(lines: list[LogLine], traces: Traces) -> GpuOom:
    """The figures of one message."""
    text = " ".join(line.text.strip() for line in lines)
    found = {name: _figure(pattern, text) for name, pattern in _FIGURES.items()}
    device = _DEVICE.search(text)
    capacity = found["capacity"]
    others = []
    for pid, number, unit in _OTHER.findall(text):
        bytes_ = size(number, unit)
        if bytes_:
            others.append((int(pid[-9:]), bytes_))
    allocated, unallocated, own = found["allocated"], found["unallocated"], found["own"]
    reserved = found["reserved"]
    if reserved is not None and allocated is not None and reserved < allocated:
        reserved += allocated  # "cached" of the first generation
    if reserved is None and allocated is not None and unallocated is not None:
        reserved = allocated + unallocated
    if not own or (capacity is not None and own > 2 * capacity):  # "0 bytes" and WSL's 2^64: the driver does not know
        own = None
    first = lines[0]
    return GpuOom(
        first.at(max(0, first.text.find("Tried to allocate") - len("CUDA out of memory. "))),
        "pytorch",
        int(device[1]) if device else None,
        found["tried"],
        capacity,
        allocated,
        reserved,
        found["free"],
        found["allowed"],
        own,
        tuple(others),
        found["private_pools"],
        first.stream,
        traces.frames(first.stream),
    )


def _figure(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = (value for value in found.groups() if value is not None)
    return size(number, unit)
