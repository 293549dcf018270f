"""Independent pieces of work, done by forked copies of this process on several processors.

A copy has all that this process has read and computed, so nothing is sent to it. It takes the number of the next
piece from a pipe that all copies share, and sends the result back through a pipe of its own. What it asked of the file
system is noted here, as if this process had asked. There is no thread, no lock and no semaphore, and no copy outlives
the call.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct, field

from preflight.system import observed

MEMORY = 2 * 2**30
"""Bytes of this process and its copies together; a copy may come to hold as much as this process does."""
MOST_PIECES = 1000
"""Their numbers are written before anybody reads: a pipe holds at least a page of 4,096 bytes (pipe(7))."""
_NUMBER = struct.Struct("<i")
_LENGTH = struct.Struct("<q")


class Done(Struct):
    """The results of the pieces that were done, and why others were not."""

    results: dict[int, object] = field(default_factory=dict)
    lost: str = ""
    """Words about a copy that ended before its work did; "" where none has."""


def most_copies() -> int:
    """How many copies may work at a time; less than two where copies are of no use or not safe.

    Other systems than Linux cannot fork, or their libraries do not work in a copy. A copy has no threads but its own,
    so a lock that another one holds would stay locked; those that draw progress are daemons, and silent in a copy.
    """
    others = [one for one in threading.enumerate() if not one.daemon and one is not threading.current_thread()]
    if sys.platform != "linux" or others or threading.current_thread() is not threading.main_thread():
        return 0
    return min(len(os.sched_getaffinity(0)), MEMORY // _held() - 1)


def _held() -> int:
    """Bytes that this process has in memory (proc(5), statm)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return MEMORY  # nobody knows: no copies


def in_copies(pieces: int, work: Callable[[int], object], copies: int, told: Callable[[int], None]) -> Done:
    """The results of `work` for 0 to `pieces` - 1. `told` is called with the number of results so far.

    An exception of a piece is raised here. A result must be plain data.
    """
    done, started = Done(), dict[int, int]()
    tickets = _tickets(pieces)
    gc.freeze()  # a collection in a copy would write to all pages of memory that it shares with this process
    try:
        for _ in range(copies):
            with suppress(OSError):  # no more processes: those that are there do the work
                out, pid = _copy(tickets, work)
                started[out] = pid
        _collect(started, done, told)
    finally:
        gc.unfreeze()
        os.close(tickets)
        for out, pid in started.items():
            os.close(out)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return done


def _tickets(pieces: int) -> int:
    """A pipe with the numbers of all pieces; who reads one does this piece."""
    if pieces > MOST_PIECES:
        raise ValueError(f"{pieces} pieces of work are too many for one pipe")
    out, into = os.pipe()
    os.write(into, b"".join(_NUMBER.pack(number) for number in range(pieces)))
    os.close(into)
    return out


def _copy(tickets: int, work: Callable[[int], object]) -> tuple[int, int]:
    """The pipe of the results of a new copy, and its process."""
    out, into = os.pipe()
    parent = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: the one that draws progress does nothing in a copy
            pid = os.fork()
    except OSError:
        os.close(out)
        os.close(into)
        raise
    if pid == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.close(out)
            _serve(tickets, into, work, parent)
        finally:
            os._exit(0)  # this process writes what is in the buffers of its streams
    os.close(into)
    return out, pid


def _serve(tickets: int, into: int, work: Callable[[int], object], parent: int) -> None:
    """What a copy does. An end of its pipe without the record of what it read means that it was ended."""
    record = observed.start() if observed.recording() else None
    while os.getppid() == parent and (ticket := os.read(tickets, _NUMBER.size)):
        [number] = _NUMBER.unpack(ticket)
        try:
            _send(into, (number, work(number), None))
        except (Exception, RecursionError) as error:
            _send(into, (number, None, error))
    _send(into, (-1, record, None))


def _send(into: int, message: tuple[int, object, Exception | None]) -> None:
    try:
        data = pickle.dumps(message)
    except Exception as error:
        data = pickle.dumps((message[0], None, RuntimeError(f"{error} ({message[2]})")))
    data = _LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(into, data) :]


def _collect(started: dict[int, int], done: Done, told: Callable[[int], None]) -> None:
    """Reads the results until every copy is ready, and takes the copies that ended out of `started`."""
    buffers = {out: bytearray() for out in started}
    complete: set[int] = set()
    with selectors.DefaultSelector() as selector:
        for out in started:
            selector.register(out, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                if data:
                    buffers[key.fd] += data
                    for number, result, error in _messages(buffers[key.fd]):
                        if error is not None:
                            raise error
                        if number < 0:
                            complete.add(key.fd)
                            if isinstance(result, observed.Record):
                                observed.join(result)
                        else:
                            done.results[number] = result
                    told(len(done.results))
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(started.pop(key.fd), 0)
                if key.fd not in complete:
                    done.lost = _words(status)
                    observed.not_final(done.lost)


def _messages(buffer: bytearray) -> list[tuple[int, object, Exception | None]]:
    """The messages that are whole, taken out of the buffer."""
    found = []
    while len(buffer) >= _LENGTH.size:
        [length] = _LENGTH.unpack_from(buffer)
        end = _LENGTH.size + length
        if len(buffer) < end:
            break
        found.append(pickle.loads(bytes(buffer[_LENGTH.size : end])))
        del buffer[:end]
    return found


def _words(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"by signal {-code}" if code < 0 else f"with status {code}"
    return f"a process that did a part of the work ended {how}"
