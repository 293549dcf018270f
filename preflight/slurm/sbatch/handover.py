"""Becomes the real sbatch: same arguments, environment, standard input and signals as if the user had called it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import zlib
from collections.abc import Sequence

from preflight.slurm.sbatch.real import mark
from preflight.system import kept_files

MAX_READ = 8 * 2**20
"""Bytes of a script on standard input that are checked; sbatch itself refuses scripts of more than 4 MiB
(max_script_size)."""

OPENED = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/(\d+)")
"""Names of open files: `sbatch /dev/stdin`, `sbatch <(command)`."""


def original_environment() -> dict[bytes, bytes]:
    """The environment that this process was started with.

    Python may have changed its environment since (a C locale becomes C.UTF-8, PEP 538), and so may preflight. sbatch
    passes all of it on to the job.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    pairs = (line.partition(b"=") for line in lines if b"=" in line)
    return {name: value for name, _, value in pairs if name}


def become(program: str, words: Sequence[str]) -> None:
    """Replaces this process with sbatch. Raises OSError when sbatch cannot be started; else does not return."""
    _as_started()
    mark(program)
    os.execve(program, _argv(words), original_environment())


def _argv(words: Sequence[str]) -> list[bytes]:
    return [b"sbatch", *(os.fsencode(word) for word in words)]


def _as_started() -> None:
    """Restores the signals of this process: Python ignores two signals that programs expect."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def run(program: str, words: Sequence[str]) -> int:
    """Starts sbatch, passes signals on to it, and returns its exit status. Raises OSError."""
    pid = os.fork()
    if pid == 0:
        try:
            become(program, words)
        finally:
            os._exit(126)
    passed = (signal.SIGTERM, signal.SIGHUP)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # a terminal sends them to sbatch as well
    for number in passed:
        signal.signal(number, lambda caught, _: os.kill(pid, caught))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


KEPT_SCRIPTS = 200
"""Scripts that were submitted with fixes and are kept. SLURM shows the path of a job's script as its `Command=`."""


def run_changed(program: str, words: Sequence[str], script_at: int, text: bytes) -> int:
    """Becomes sbatch with a changed script of the same name, because the job is named after it. Raises OSError.

    The script lies in the user's data directory and stays there, so that the job's `Command=` names what runs. If it
    cannot be kept, it lies in a temporary directory until sbatch has ended, and the exit status of sbatch is returned.
    """
    path = _kept(os.path.basename(words[script_at]), text)
    if path is not None:
        become(program, [*words[:script_at], path, *words[script_at + 1 :]])
    folder = tempfile.mkdtemp(prefix="preflight-")
    try:
        path = os.path.join(folder, os.path.basename(words[script_at]))
        with open(path, "wb") as file:
            file.write(text)
        return run(program, [*words[:script_at], path, *words[script_at + 1 :]])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(name: str, text: bytes) -> str | None:
    """The path of a script that is kept, in a folder named after its text; None if it cannot be written."""
    with contextlib.suppress(kept_files.NotKept, OSError):
        home = kept_files.submitted()
        folder = os.path.join(home, f"{zlib.crc32(text):08x}-{len(text)}")
        path = os.path.join(folder, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if kept_files.load(path) != text and not kept_files.save(path, text):
            return None
        os.utime(folder)
        _make_room(home)
        return path
    return None


def _make_room(home: str) -> None:
    """Deletes the scripts that were submitted longest ago."""
    with os.scandir(home) as found:
        folders = sorted((one for one in found if one.is_dir(follow_symlinks=False)), key=_submitted_at, reverse=True)
    for old in folders[KEPT_SCRIPTS:]:
        shutil.rmtree(old.path, ignore_errors=True)


def _submitted_at(folder: os.DirEntry[str]) -> float:
    with contextlib.suppress(OSError):
        return folder.stat(follow_symlinks=False).st_mtime
    return 0.0


def read_again(handle: int) -> bytes | None:
    """The content of an open file such as standard input, which can be read again afterwards; None: it is not open.

    A regular file is read without moving its position. The content of a pipe is kept in memory and replaces the pipe.
    """
    try:
        mode = os.fstat(handle).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return _from(handle, os.lseek(handle, 0, os.SEEK_CUR))
    kept = _anonymous()
    while piece := os.read(handle, 2**16):
        view = memoryview(piece)
        while view:
            view = view[os.write(kept, view) :]
    return _in_place(kept, handle)


def replace_input(text: bytes) -> None:
    """Makes this text the standard input."""
    handle = _anonymous()
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(text)
    _in_place(handle, 0)


def _in_place(handle: int, of: int) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, of, inheritable=True)
    os.close(handle)
    return _from(of, 0)


def _from(handle: int, offset: int) -> bytes:
    pieces, left = [], MAX_READ
    while left > 0 and (piece := os.pread(handle, left, offset)):
        pieces.append(piece)
        offset, left = offset + len(piece), left - len(piece)
    return b"".join(pieces)


def _anonymous() -> int:
    """A file without a name."""
    try:
        return os.memfd_create("script", os.MFD_CLOEXEC)
    except (OSError, AttributeError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
