"""Runs one command with limits, and says what it took: `supervisor.py SECONDS BYTES REPORT COMMAND...`.

It is a process of its own, so that it counts one command alone. The tracer outlives the command by a moment and is
counted too: on Linux an orphan becomes a child of its supervisor, which waits for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER, linux/prctl.h."""
LEFT_OVER_SECONDS = 5
"""How long processes that outlive the command may take to end."""


def main(argv: list[str]) -> int:
    seconds, memory, report = int(argv[0]), int(argv[1]), Path(argv[2])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    start = time.monotonic()
    child = subprocess.Popen(argv[3:], preexec_fn=lambda: _limit(seconds, memory), start_new_session=True)
    status, timed_out = _wait(child.pid, start + seconds)
    _end_children(time.monotonic() + LEFT_OVER_SECONDS)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    kib = 1 if sys.platform == "darwin" else 1024
    found = {
        "status": status,
        "timed_out": timed_out,
        "wall_seconds": round(time.monotonic() - start, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_bytes": used.ru_maxrss * kib,
    }
    report.write_text(json.dumps(found), encoding="utf-8")
    return 0


def _limit(seconds: int, memory: int) -> None:
    """CPU seconds and bytes of address space, of each process."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _wait(pid: int, deadline: float) -> tuple[int, bool]:
    """The exit status (minus the signal that ended it), and whether the time was up."""
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), True


def _end_children(deadline: float) -> None:
    """Waits for the processes that are left, and ends those that do not end by themselves."""
    while True:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if found:
            continue
        if time.monotonic() > deadline:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
