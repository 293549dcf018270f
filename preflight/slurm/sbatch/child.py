"""Runs work in a child process: a crash or an endless loop in it does not stop the submission."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping

from preflight.vocabulary.errors import PreflightError, debugging

GRACE = 5
"""Seconds after its time limit at which a child ends by itself, if its parent was killed."""

Plain = Mapping[str, "str | bool | float | list[str] | None"]


class Unfinished(Exception):
    """There is no result; the message tells the user why."""


def in_child(work: Callable[[], Plain], seconds: float) -> Plain:
    """The result of `work`, sent as JSON. Raises Unfinished when it fails, dies or takes longer than `seconds`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(work, write, seconds)
    os.close(write)
    try:
        answer = _read(read, seconds)
    finally:  # also where the user gives up waiting
        os.close(read)
        for target in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                target(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    if not answer:
        raise Unfinished("the check ended without a result")
    found: Plain = json.loads(answer)
    reason = found.get("failed")
    if isinstance(reason, str):
        raise Unfinished(reason)
    return found


def _read(handle: int, seconds: float) -> bytes:
    end = time.monotonic() + seconds
    pieces: list[bytes] = []
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([handle], [], [], left)[0]:
            raise Unfinished(f"the check took more than {seconds:g} s")
        piece = os.read(handle, 2**16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _child(work: Callable[[], Plain], handle: int, seconds: float) -> None:
    """Never returns. The output of the work is dropped, because standard output belongs to sbatch."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + GRACE)
        nothing = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1) if debugging() else (0, 1, 2):
            os.dup2(nothing, own)
        answer = work()
    except PreflightError as error:
        answer = {"failed": str(error)}
    except BaseException as error:  # whatever it is, the parent has to go on
        first = (str(error).splitlines() or [""])[0]
        answer = {"failed": f"internal error: {type(error).__name__}: {first}"}
        if debugging():
            import traceback

            traceback.print_exc()
    with contextlib.suppress(BaseException):
        data = memoryview(json.dumps(answer).encode())
        while data:
            data = data[os.write(handle, data) :]
    os._exit(0)
