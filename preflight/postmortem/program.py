"""Errors of host memory that a program reports: DataLoader workers, shared memory, refused memory, processes, kills."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.postmortem.evidence import (
    Evidence,
    HostAllocation,
    Killed,
    SharedMemoryFull,
    TooManyFiles,
    TooManyProcesses,
    WorkerDied,
)
from preflight.postmortem.reading import LogLine, Parser
from preflight.postmortem.trace import Traces
from preflight.postmortem.units import SIZE, count, size

_WORKER = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ?(\d+)?[\d, ]*\) (?:is killed by signal: (.*)|exited unexpectedly)"
)
_SHM = re.compile(
    r"unable to (?:write to file|mmap .*from file|resize file) </(?:dev/shm/)?torch_\S+>"
    r"|Unexpected bus error encountered in worker|No space left on device.*(?:/dev/shm|torch_)"
    r"|unable to open shared memory object"
)
_CPU = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes"
)
_NUMPY = re.compile(rf"Unable to allocate {SIZE} for an array")
_ERRNO = re.compile(
    r"(?:\[Errno 12\]|errno=12|Error code 12).*Cannot allocate memory"
    r"|(?:^|\s)(?:numpy\S*\.)?_?(?:Array)?MemoryError\b|std::bad_alloc"
)
_PINNED = re.compile(r"cudaHostAlloc|cudaErrorMemoryAllocation.*host|CachingHostAllocator", re.IGNORECASE)
_THREADS = re.compile(
    r"can't start new thread|fork: (?:retry: )?(?:Resource temporarily unavailable|Cannot allocate)"
    r"|pthread_create failed.*(?:Resource|EAGAIN)|BlockingIOError: \[Errno 11\] Resource temporarily unavailable"
    r"|libgomp: Thread creation failed"
)
_KILLED = re.compile(
    r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)"
    r"|exitcode\s*:\s*-9 \(pid: (?P<elastic>\d+)\)|\(exitcode: -9\) local_rank: (?P<rank>\d+) \(pid: (?P<binary>\d+)\)"
    r"|died with <Signals\.SIGKILL: 9>|exits with return code = -9|process \d+ terminated with signal SIGKILL"
    r"|returned non-zero exit status (?:-9|137)|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? (?:137|-9)\b"
    r"|: line \d+:\s*(?P<shell>\d+) Killed\b|^\s*\[?\d*\]?\+?\s*Killed\s*$|code=killed, status=9/KILL"
)


_BARE = re.compile(r"\s*(?:(?:exit|rc|ret|status|exit[ _]?(?:code|status)|return[ _]?code)\s*[=:]?\s*)?137\s*", re.I)
"""The status that a script prints: `echo $?`, `echo "rc=$?"`. A column of numbers is none."""


class Program(Parser):
    """Reads one log."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._before = ""

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        text, before = line.text, self._before
        self._before = text
        frames = self._traces.frames(line.stream)
        if "DataLoader worker" in text and (found := _WORKER.search(text)):
            signal = (found[2] or "").split(".")[0].strip()
            yield WorkerDied(line.place, int(found[1][-9:]) if found[1] else None, signal, frames)
        elif "Too many open files" in text:
            yield TooManyFiles(line.place, frames)
        elif ("torch_" in text or "bus error" in text or "shared memory" in text) and _SHM.search(text):
            yield SharedMemoryFull(line.place, frames)
        elif found := _CPU.search(text) if "CPUAllocator" in text else None:
            yield HostAllocation(line.place, count(found[1]), frames=frames)
        elif found := _NUMPY.search(text) if "Unable to allocate" in text else None:
            yield HostAllocation(line.place, size(found[1], found[2]), frames=frames)
        elif _THREADS.search(text):
            yield TooManyProcesses(line.place)
        elif ("alloc" in text or "emoryError" in text) and _ERRNO.search(text) and "CUDA" not in text:
            yield HostAllocation(line.place, pinned=_PINNED.search(text) is not None, frames=frames)
        elif ("9" in text or "137" in text or "Killed" in text) and (found := _KILLED.search(text)):
            pid = found["pid"] or found["elastic"] or found["binary"] or found["shell"]
            rank = found["rank"]
            yield Killed(line.place, int(pid[-9:]) if pid else None, int(rank[-9:]) if rank else None)
        elif text.endswith("137") and _BARE.fullmatch(text) and not before.strip().isdecimal():
            yield Killed(line.place, None, None)
