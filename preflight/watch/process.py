"""Starts the command as it is: same streams, same signals, same exit status. The recorder comes by PYTHONPATH."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.system.processes import ask_program, found_program
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.watched import WatchedHost, WatchedRun
from preflight.watch.host import PROCESSES, HostWatch, control_group
from preflight.watch.records import batches_of, pids_of, ranks_of

if TYPE_CHECKING:
    from ctypes import CDLL
    from subprocess import Popen

INSIDE = Path(__file__).parents[1] / "guard" / "start"
"""The folder whose sitecustomize loads the recorder."""
PREFIX, OWNER, ABOUT = "preflight-run-", "owner", "about.json"
"""The folder of records, and its files with the process that reads them, and with what is known of the run."""
RECORDS = "PREFLIGHT_RUN_RECORDS"
MODE = "PREFLIGHT_GUARD"

_PASSED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGALRM", "SIGCONT",
                 "SIGXCPU", "SIGURG")
    if hasattr(signal, name)
)  # fmt: skip
"""Signals that are passed on. Those that a terminal sends reach the command by themselves: it is of the same group."""
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU})
FROM_KERNEL = 0x80
"""si_code of a signal that no process sent (SI_KERNEL of asm-generic/siginfo.h): the terminal's."""
TICK_S = 0.5
QUIET_S = 600.0
"""Seconds without a change after which records count as left behind: another container may have the same folder."""


class Start(Struct, frozen=True):
    """One start of a command. `looked` is called now and then with the folder of records and what the host
    shows; it may give a signal."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    looked: Callable[[Path, WatchedHost], int | None] | None = None
    about: str = ""
    """What is known of the run before it starts, for whoever finds its records where this process was killed too."""
    say: Callable[[str], object] = len
    """Gets a line for the user; without it, nobody hears it."""
    mask: set[int | signal.Signals] | None = None
    """The signals that the command does not get; None: those that this process does not get."""


def watch(asked: Start) -> WatchedRun:
    """Runs the command to its end. Raises UsageError if it cannot be started."""
    if not hasattr(signal, "sigtimedwait"):
        raise UsageError("preflight run needs Linux")
    folder = made = Path(os.devnull, "none")
    try:
        folder = made = Path(tempfile.mkdtemp(prefix=PREFIX))
        (folder / OWNER).write_text(str(os.getpid()))
        (folder / ABOUT).write_text(asked.about)
    except OSError as error:
        asked.say(f"the command is not recorded: {error.strerror or error}")
        folder = Path(os.devnull, "none")
    try:
        return _watched(asked, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def left_behind() -> Iterator[Path]:
    """Folders of records whose `preflight run` was killed before it read them, as a job's end kills all processes."""
    try:
        folders = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:  # it is full
        return
    for folder in folders:
        try:
            status = folder.lstat()
            own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
            last = max(path.stat().st_mtime for path in folder.iterdir()) if own else time.time()
            quiet = abs(time.time() - last) > QUIET_S  # in the future: the clock was wrong, then or now
            alive = (PROCESSES / one for one in ((folder / OWNER).read_text().strip(), *map(str, pids_of(folder))))
            if quiet and not any(one.exists() for one in alive):
                yield folder
        except (OSError, ValueError):
            continue


def _watched(asked: Start, folder: Path) -> WatchedRun:
    began = time.monotonic()
    signals = {*_PASSED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        others = tuple(on_gpus())
        group = control_group()
        process = _started(asked, folder, before if asked.mask is None else asked.mask)
        host = HostWatch(process.pid, lambda: pids_of(folder), lambda: batches_of(folder), on_gpus, group=group)
        host.start()
        with _taken(_PASSED) as came:
            status, told = _wait(process, signals, came, asked, folder, host)
        found = host.stop()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ranks = [replace(one, process=host.on_gpus.get(one.pid or 0, 0)) for one in ranks_of(folder)]
    return WatchedRun(status, time.monotonic() - began, tuple(ranks), found, told, others)


def _started(asked: Start, folder: Path, mask: set[int | signal.Signals]) -> Popen[bytes]:
    import subprocess

    program = asked.words[0]
    path = program if os.sep in program else found_program(program)
    if path is None or not os.access(path, os.X_OK) or os.path.isdir(path):
        raise UsageError(f"{program}: there is no such command")
    own, libc = os.getpid(), _libc()

    def begin() -> None:
        """In the new process, before it becomes the command."""
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own:  # this process was killed before
                os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            asked.words, executable=path, env=environment(folder, asked.environment), preexec_fn=begin, close_fds=False
        )
    except OSError as error:
        raise UsageError(f"{program}: cannot be started: {error.strerror}") from error


PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h: the signal that a process gets when its parent dies, SIGKILL of the parent included."""


def _libc() -> CDLL | None:
    """The functions of this process's C library; None where it has no such function, or Python was built without it."""
    try:
        from ctypes import CDLL

        found = CDLL(None)
        return found if found.prctl else None
    except (ImportError, OSError, AttributeError):
        return None


def environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """The user's variables, and those of the recorder."""
    found = {**os.environ, **more}
    if found.get(MODE) != "off":
        old = found.get("PYTHONPATH")
        found["PYTHONPATH"] = str(INSIDE) + (os.pathsep + old if old else "")
        found[RECORDS] = str(folder)
    return found


def _wait(
    process: Popen[bytes],
    signals: set[signal.Signals],
    elsewhere: list[int],
    asked: Start,
    folder: Path,
    host: HostWatch,
) -> tuple[int, int]:
    """The status of the command, and the signal that somebody ended it with (0: none)."""
    told = 0
    while True:
        came = signal.sigtimedwait(signals, TICK_S)
        if came is not None and came.si_signo != signal.SIGCHLD:
            told = came.si_signo if came.si_signo in _ENDING else told
            if came.si_code != FROM_KERNEL and not _of_step(came.si_pid):
                _pass_on(process.pid, came.si_signo)
        while elsewhere:
            told = elsewhere[0] if elsewhere[0] in _ENDING else told
            _pass_on(process.pid, elsewhere.pop(0))
        status = process.poll()
        if status is not None:
            return status, told
        reply = asked.looked(folder, host.found) if came is None and asked.looked is not None else None
        if reply is not None:
            told = reply
            _pass_on(process.pid, reply)


@contextmanager
def unhurried() -> Iterator[set[int | signal.Signals]]:
    """Signals that end this process wait until this is done: somebody presses Ctrl-C twice, and the records stay.
    Gives those that waited before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    came: list[int] = []
    try:
        with _taken(_ENDING) as came:
            yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _taken(numbers: Iterable[signal.Signals]) -> Iterator[list[int]]:
    """Signals that came to another thread: a library that was imported before this one held them back has its own."""
    came: list[int] = []
    own = [one for one in numbers if signal.getsignal(one) not in (signal.SIG_IGN, None)]  # an ignored one stays so
    before = [(one, signal.signal(one, lambda number, _: came.append(number))) for one in own]
    try:
        yield came
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _of_step(sender: int) -> bool:
    """Whether SLURM signals all processes of a step: the command has the signal already. In a batch script, which has
    no step of that name, `--signal=B:` reaches the first process alone."""
    try:
        return "SLURM_STEP_ID" in os.environ and (PROCESSES / f"{sender}/comm").read_text().strip() == "slurmstepd"
    except OSError:
        return False


def _pass_on(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended
        return


def on_gpus() -> list[tuple[int, int]]:
    """Processes that hold memory of the GPUs: (pid, bytes). Empty where nvidia-smi is not there or does not answer."""
    if found_program("nvidia-smi") is None:
        return []
    import subprocess

    try:
        done = ask_program(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], 10)
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in done.stdout.splitlines():
        pid, _, size = line.partition(",")
        if pid.strip().isdigit() and size.strip().isdigit():
            found.append((int(pid), int(size) << 20))
    return found


def end_like(status: int) -> int:
    """The exit status for a command that ended with `status`. One that a signal ended: the same signal ends this."""
    if status >= 0:
        return status
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    number = -status
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 128 + number
