"""Worker processes: forked from one that has imported everything, bounded in memory and CPU time, and replaced.

A worker that hangs is ended by a timer of its own CPU time, which no Python code can catch: the traceback of that
moment is kept. The machine may be busy; wall time decides nothing.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

SECONDS = 10.0
"""CPU time that one input may take."""
MEMORY = 2**30
"""Bytes that one input may add to a process."""
TURN = 400
"""Inputs that one worker reads: what is kept for later in caches must not be taken for the memory of an input."""

Read = Callable[[int], str]
"""Reads the input of a number and gives its kind. It raises where something went wrong."""


@dataclass
class Tally:
    """How many inputs of each kind were read, what went wrong, and the slowest."""

    read: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, object]] = field(default_factory=list)
    slowest: list[tuple[float, int, str]] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.read.values())

    def add(self, row: dict[str, object]) -> None:
        if "why" in row:
            self.wrong.append(row)
        kind, number, seconds = str(row["kind"]), int(str(row["number"])), float(str(row["seconds"]))
        self.read[kind] += 1
        self.cpu += seconds
        self.slowest = sorted([*self.slowest, (seconds, number, kind)], reverse=True)[:10]


APART = ("preflight.tracer", "preflight.batch", "preflight.editor")
"""Rooms that need what only some have, and that read no file of a project by themselves."""


def import_everything() -> None:
    """What a command imports when it needs it is imported once, before any process is forked."""
    import preflight
    import preflight_rules

    for package in (preflight, preflight_rules):
        for one in walk_packages(package.__path__, f"{package.__name__}."):
            if not one.name.startswith(APART) and "__main__" not in one.name:
                import_module(one.name)
    for name in ("hydra.core.config_search_path", "hydra._internal.config_loader_impl", "omegaconf", "ruamel.yaml"):
        import_module(name)


def scratch() -> str:
    """A folder for inputs, in memory where the machine has such a place."""
    return tempfile.mkdtemp(prefix="preflight-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


def run(numbers: Iterator[range], read: Read, processes: int, stop: Callable[[], bool]) -> Iterator[dict[str, object]]:
    """Reads all inputs, `processes` at a time, and gives a row for each: its kind, its CPU time, what went wrong."""
    gc.collect()
    gc.freeze()
    running: dict[int, _Turn] = {}
    waiting = list[range]()
    while True:
        while len(running) < processes and not stop():
            turn = waiting.pop() if waiting else next(numbers, None)
            if turn is None:
                break
            one = _Turn(turn, read)
            running[one.pid] = one
        if not running:
            return
        pid, status = os.wait()
        if pid in running:
            ended = running.pop(pid)
            yield from ended.rows(status)
            if (rest := ended.rest(status)) is not None:
                waiting.append(rest)


class _Turn:
    """One worker and the numbers that it reads."""

    def __init__(self, numbers: range, read: Read) -> None:
        self.numbers = numbers
        self.at = mmap.mmap(-1, 16)
        """The number that is being read, and how many bytes of rows are complete."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._work(read)
            finally:
                os._exit(0)

    def _work(self, read: Read) -> None:
        os.dup2(self.errors.fileno(), 2)
        faulthandler.enable(file=2)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        faulthandler.register(signal.SIGPROF, file=2, all_threads=False, chain=True)
        grown = _size()
        resource.setrlimit(resource.RLIMIT_AS, (grown + MEMORY, grown + MEMORY))
        for number in self.numbers:
            self.at[:8] = struct.pack("q", number)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            start = _cpu()
            row: dict[str, object] = {"number": number}
            try:
                row["kind"] = read(number)
            except BaseException as error:
                row |= {"kind": "?", "why": type(error).__name__, "words": _words(error)}
            row["seconds"] = round(_cpu() - start, 4)
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.file.write(json.dumps(row).encode() + b"\n")
            self.file.flush()

    def rows(self, status: int) -> Iterator[dict[str, object]]:
        """What the worker said, and why it ended if it did not come to its end."""
        self.file.seek(0)
        for line in self.file:
            yield json.loads(line)
        if status:
            self.errors.seek(0)
            words = self.errors.read()[-6000:].decode(errors="replace")
            why = "over the CPU time" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF else "ended"
            yield {"number": self._number(), "kind": "?", "why": f"{why} ({status})", "words": words, "seconds": 0.0}

    def rest(self, status: int) -> range | None:
        """The numbers after the one that ended the worker."""
        rest = range(self._number() + 1, self.numbers.stop)
        return rest if status and rest else None

    def _number(self) -> int:
        return int(struct.unpack("q", self.at[:8])[0])


def _size() -> int:
    """Bytes of this process's address space."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 4 * 2**30
    return pages * resource.getpagesize()


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _words(error: BaseException) -> str:
    lines = traceback.format_exception(error)
    text = "".join(lines)
    return text if len(text) < 6000 else text[:1500] + "\n...\n" + text[-4400:]
