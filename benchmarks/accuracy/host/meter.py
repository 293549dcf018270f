"""Runs a command and finds the peak of what a memory limit cannot reclaim: anonymous plus shared memory, in bytes.

Where a memory cgroup can be made (version 1 or 2, as root) the kernel counts: every page once, queued batches that only
a file descriptor holds included. Elsewhere /proc does: `Pss_Anon` of every process of the tree, whose sum counts a page
that forked processes share once, and the blocks of every shared-memory file that one of them has open or mapped, by
inode. Resident sizes are never summed. The meter is a process of its own: busy processors do not make it miss a peak,
and what the kernel keeps as the cgroup's highest charge is recorded beside the sampled peak.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

INTERVAL = 0.004
"""Seconds between two samples of a cgroup; a sample takes 0.1 ms."""
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Gauge(Protocol):
    """Counts the memory of the processes that entered it."""

    method: str

    def enter(self) -> None: ...  # called in the child
    def read(self, roots: Sequence[int]) -> tuple[int, int]: ...
    def highest(self) -> int | None: ...
    def close(self) -> None: ...


class Cgroup:
    """A memory cgroup of our own."""

    def __init__(self, folder: Path, anonymous: str, highest: str) -> None:
        self.folder, self._anonymous, self._highest = folder, anonymous, highest
        self.method = f"cgroup {'v1' if anonymous == 'total_rss' else 'v2'}"
        self._stat = open(folder / "memory.stat", "rb", buffering=0)  # noqa: SIM115 (read hundreds of times a second)
        self._shared = "total_shmem" if anonymous == "total_rss" else "shmem"

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def read(self, roots: Sequence[int]) -> tuple[int, int]:
        found = self.stat()
        return found[self._anonymous], found[self._shared]

    def stat(self) -> dict[str, int]:
        """Every counter of the group, in bytes."""
        text = os.pread(self._stat.fileno(), 16384, 0).decode()
        return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}

    def highest(self) -> int | None:
        """The highest charge that the kernel saw, page cache and kernel memory included."""
        path = self.folder / self._highest
        return int(path.read_text()) if path.exists() else None

    def close(self) -> None:
        self._stat.close()
        for _ in range(100):  # the last process may be a moment in going
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                return


class Proc:
    """The same two figures from /proc, where no cgroup can be made."""

    method = "proc"

    def enter(self) -> None: ...

    def read(self, roots: Sequence[int]) -> tuple[int, int]:
        anonymous, files = 0, {}
        for pid in tree(roots):
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                anonymous += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon"))
                files.update(shared_files(pid))
        return anonymous * 1024, sum(files.values())

    def highest(self) -> int | None:
        return None

    def close(self) -> None: ...


def tree(roots: Sequence[int]) -> list[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(name))
    found, waiting = [], list(roots)
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def shared_files(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Shared-memory files that a process has open or mapped: (device, inode) and bytes."""
    shm = os.stat("/dev/shm").st_dev
    for kind in ("fd", "map_files"):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/{kind}"):
                with contextlib.suppress(OSError):
                    info = os.stat(f"/proc/{pid}/{kind}/{name}")
                    if info.st_dev == shm:
                        yield (info.st_dev, info.st_ino), info.st_blocks * 512


def gauge() -> Gauge:
    """A cgroup where one can be made, else /proc."""
    name = f"preflight-{os.getpid()}-{time.monotonic_ns()}"
    for root, anonymous, highest in (
        (V1, "total_rss", "memory.max_usage_in_bytes"),
        (V2, "anon", "memory.peak"),
    ):
        try:
            (root / name).mkdir()
        except OSError:
            continue
        if (root / name / "memory.stat").exists():
            return Cgroup(root / name, anonymous, highest)
        (root / name).rmdir()
    return Proc()


@dataclass
class Peak:
    """What a run took: `bytes` at its peak, of which `anonymous` and `shared`; each phase's own peak."""

    bytes: int = 0
    anonymous: int = 0
    shared: int = 0
    largest_shared: int = 0
    highest_charge: int | None = None
    method: str = ""
    phases: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    samples: int = 0
    killed: bool = False
    told: dict[str, object] = field(default_factory=dict)


def measure(commands: Sequence[Sequence[str]], environment: Mapping[str, str], ceiling: int, limit: float) -> Peak:
    """The peak of commands that run together, which say where they are in the file that HOST_PHASES names.

    Above `ceiling` bytes or after `limit` seconds they are ended and the result says so. Raises RuntimeError where one
    of them fails.
    """
    counter, found = gauge(), Peak()
    with tempfile.TemporaryDirectory(prefix="preflight-host-") as folder:
        phases = Path(folder, "phases")
        phases.touch()
        runs = [
            subprocess.Popen(
                command, env={**environment, "HOST_PHASES": str(phases), "HOST_RANK": str(rank)},
                preexec_fn=counter.enter, stdout=subprocess.DEVNULL, start_new_session=True,
            )
            for rank, command in enumerate(commands)
        ]  # fmt: skip
        try:
            _watch(counter, runs, phases, found, ceiling, limit)
        finally:
            for run in runs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)  # its workers too
                run.wait()
            found.highest_charge, found.method = counter.highest(), counter.method
            counter.close()
    return found


def _watch(
    counter: Gauge, runs: Sequence[subprocess.Popen[bytes]], phases: Path, found: Peak, ceiling: int, limit: float
) -> None:
    start, phase = time.monotonic(), "start"
    with phases.open() as told:
        while any(run.poll() is None for run in runs):
            for line in told.readlines():
                name, _, rest = line.strip().partition(" ")
                phase = name or phase
                if rest:
                    found.told.update(json.loads(rest))
            anonymous, shared = counter.read([run.pid for run in runs])
            total = anonymous + shared
            found.samples += 1
            found.largest_shared = max(found.largest_shared, shared)
            found.phases[phase] = max(found.phases.get(phase, 0), total)
            if total > found.bytes:
                found.bytes, found.anonymous, found.shared = total, anonymous, shared
            found.seconds = time.monotonic() - start
            if total > ceiling or found.seconds > limit:
                found.killed = True
                return
            time.sleep(INTERVAL)
    bad = [run.returncode for run in runs if run.returncode]
    if bad:
        raise RuntimeError(f"a measured process ended with status {bad[0]}")
