"""The host's memory while a command runs: of its control group, of the node, and of its processes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from preflight.vocabulary.watched import WatchedHost

EVERY_S = 0.5
GPUS_EVERY = 20
"""Looks at the host for one question to nvidia-smi, which takes tenths of a second."""
CGROUPS, PROCESSES = Path("/sys/fs/cgroup"), Path("/proc")
UNLIMITED = 1 << 60
"""Version 1 of control groups writes nearly 2^63 where there is no limit."""


class ControlGroup(Struct, frozen=True):
    """The folder of a control group for memory, of version 1 or 2."""

    folder: Path
    version: int

    def _number(self, *names: str) -> int | None:
        found = _text(self.folder / names[self.version - 1]).strip()
        return int(found) if found.isdigit() and int(found) < UNLIMITED else None

    @property
    def limit(self) -> int | None:
        """The least of its own limit and those above it: each of them kills."""
        found, folder = [], self.folder
        while folder.is_relative_to(CGROUPS) and folder != CGROUPS.parent:
            one = ControlGroup(folder, self.version)._number("memory.limit_in_bytes", "memory.max")
            found += [one] if one is not None else []
            folder = folder.parent
        own = self._number("memory.limit_in_bytes", "memory.max")
        return min([*found, *([own] if own is not None else [])], default=None)

    @property
    def used(self) -> int | None:
        """Bytes in use without the page cache, which the kernel gives back before it kills."""
        used = self._number("memory.usage_in_bytes", "memory.current")
        if used is None:
            return None
        statistics = dict(line.split(" ", 1) for line in _text(self.folder / "memory.stat").splitlines() if " " in line)
        given_back = "total_inactive_file" if self.version == 1 else "inactive_file"
        return max(0, used - int(statistics.get(given_back, "0")))

    @property
    def pressure(self) -> float:
        """The share of the last ten seconds in which all processes waited for memory, in per cent; of the node for
        version 1."""
        text = _text(self.folder / "memory.pressure") or _text(PROCESSES / "pressure" / "memory")
        found = re.search(r"^full avg10=([\d.]+)", text, re.MULTILINE)
        return float(found[1]) if found is not None else 0.0

    @property
    def kills(self) -> int:
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in _text(self.folder / name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.isdigit():
                return int(value)
        return 0


def control_group(pid: int | str = "self") -> ControlGroup | None:
    """The control group for memory of a process; None where there is none to read."""
    for line in _text(PROCESSES / str(pid) / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        version = 2 if controllers == "" else 1 if "memory" in controllers.split(",") else 0
        if version:
            root = CGROUPS / "memory" if version == 1 else CGROUPS
            for folder in (root / path.lstrip("/"), root):  # in a container, its own group is the root
                mark = "memory.usage_in_bytes" if version == 1 else "memory.current"
                if (folder / mark).exists():
                    return ControlGroup(folder, version)
    return None


def descendants(pid: int) -> Iterator[int]:
    """A process and all that it started, as far as they still know their parents."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(PROCESSES):
        if entry.isdigit():
            after = _text(PROCESSES / entry / "stat").rpartition(")")[2].split()
            if len(after) > 1:
                children.setdefault(int(after[1]), []).append(int(entry))
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += children.get(one, ())


def private_and_shared(pid: int) -> tuple[int, int]:
    """Bytes of a process in memory: what it has alone (or shares by fork), and shared memory as in /dev/shm."""
    found = {"RssAnon": 0, "RssShmem": 0}
    for line in _text(PROCESSES / str(pid) / "status").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found["RssAnon"], found["RssShmem"]


def node() -> tuple[int | None, int | None]:
    """Bytes of the node, and those that are available."""
    figures: dict[str, int] = {}
    for line in _text(PROCESSES / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if value.split():
            figures[name] = int(value.split()[0]) * 1024
    return figures.get("MemTotal"), figures.get("MemAvailable")


def _text(path: Path) -> str:
    """A file of the kernel; "" where it cannot be read, as when a process has just ended."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("ascii", "replace")
    except OSError:
        return ""


class HostWatch:
    """Looks at the host until it is told to stop.

    `ranks` gives the processes that train, `batches` the batches that the loaders handed out so far, `gpus` the
    (pid, bytes) of processes on the GPUs, as nvidia-smi shows them.
    """

    def __init__(
        self,
        pid: int,
        ranks: Callable[[], set[int]] = set,
        batches: Callable[[], int] = int,
        gpus: Callable[[], list[tuple[int, int]]] = list,
        *,
        group: ControlGroup | None,
    ) -> None:
        self.pid, self.ranks, self.batches, self.gpus, self.group = pid, ranks, batches, gpus, group
        self.on_gpus: dict[int, int] = {}
        self._growth = Growth()
        self._end, self._thread = threading.Event(), threading.Thread(target=self._watch, daemon=True)
        total, available = node()
        self._kills = group.kills if group is not None else 0
        used = group.used if group is not None else None
        self.found = WatchedHost(
            group.limit if group is not None else None, used, used, total=total, least_available=available
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> WatchedHost:
        """The last look, and what was found. A control group that is gone was read before."""
        self._end.set()
        self._thread.join()
        self._look(False)
        return self.found

    def _watch(self) -> None:
        looks = 0
        while not self._end.wait(EVERY_S):
            self._look(True)
            if looks % GPUS_EVERY == 0:
                for pid, size in self.gpus():
                    self.on_gpus[pid] = max(self.on_gpus.get(pid, 0), size)
            looks += 1

    def _look(self, processes: bool) -> None:
        old, group = self.found, self.group
        used = group.used if group is not None else None
        kills = max(old.kills, (group.kills if group is not None else 0) - self._kills)
        private = shared = workers = others = count = 0
        ranks = self.ranks()
        for pid in descendants(self.pid) if processes else ():
            own, mapped = private_and_shared(pid)
            count += 1
            private, shared = private + own, max(shared, mapped)
            if pid not in ranks and pid != self.pid:
                workers, others = max(workers, own), others + own
        total, available = node()
        self.found = WatchedHost(
            old.limit, old.before, _most(old.peak, used), kills, max(old.resident, private + shared),
            max(old.workers, workers), max(old.processes, count), total, _least(old.least_available, available),
            used, used is not None and used > (old.used or used), group.pressure if group is not None else 0.0,
            (self._growth.seen(self.batches(), others, count) if processes else 0) or old.growth,
        )  # fmt: skip


BATCHES = 20
"""Batches before workers have all that they need, and the fewest over which growth is told."""
LEAST_GROWTH = 16 * 2**20
"""Bytes below which growth is noise: allocators keep freed pages."""


class Growth:
    """What the workers of loaders grow with each batch, while their number stays. A list of Python objects that forks
    share is copied page by page as it is read."""

    def __init__(self) -> None:
        self._first: tuple[int, int, int] | None = None

    def seen(self, batches: int, size: int, count: int) -> int:
        """Bytes by which they grow with a batch; 0: they do not, or it is too early."""
        if self._first is None or self._first[2] != count or batches < self._first[0]:
            self._first = (batches, size, count) if batches >= BATCHES else None
            return 0
        since, grown = batches - self._first[0], size - self._first[1]
        return grown // since if since >= BATCHES and grown >= LEAST_GROWTH else 0


def _most(one: int | None, other: int | None) -> int | None:
    return max((size for size in (one, other) if size is not None), default=None)


def _least(one: int | None, other: int | None) -> int | None:
    return min((size for size in (one, other) if size is not None), default=None)
