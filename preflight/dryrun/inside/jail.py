"""Starts a program in namespaces of its own: `python -I jail.py REQUEST`.

It sees a copy of the files: what it writes lies in memory and is gone with it. It has no network but itself, no
devices, no sockets of services, and none of the processes around it. When it ends, everything that it started ends.
The kernel has to give the namespaces (user, mount, network, process, IPC) and overlayfs without privileges; where it
does not, the reply on the status descriptor says so, and nothing was started.

It runs in preflight's own Python, with the standard library alone. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _DROP_BOUND, _AMBIENT, _SUBREAPER = 1, 38, 24, 47, 36
"""unshare(2), mount(2), umount2(2), prctl(2)."""
_SETATTR, _RECURSIVE, _ATTR_RDONLY, _ATTR_NOSUID = 442, 0x8000, 1, 2
"""mount_setattr(2); the number is the same on every architecture since Linux 5.12."""
_UP_FLAGS, _UP = 0x8914, 0x1 | 0x40
"""netdevice(7): SIOCSIFFLAGS, IFF_UP | IFF_RUNNING."""
_OWN = ("/proc", "/dev", "/sys", "/run")
"""Places that are made anew."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> int:
    """A function of libc. Raises OSError with its name."""
    made = [one.encode() if isinstance(one, str) else one for one in arguments]
    result = int(getattr(_libc, name)(*made))
    if result < 0:
        number = ctypes.get_errno()
        words = " ".join(str(one) for one in arguments[:3])
        raise OSError(number, f"{name} {words}: {os.strerror(number)}")
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _mounts() -> list[str]:
    """The places of all mounts."""
    with open("/proc/self/mountinfo", encoding="latin-1") as file:
        escaped = [line.split()[4].encode("latin-1").decode("unicode_escape") for line in file]
    return [os.fsdecode(one.encode("latin-1")) for one in escaped]


def _readonly(place: str) -> None:
    """A bind mount read-only, with the flags that it must keep."""
    flags = 0
    kept = os.statvfs(place).f_flag
    for name, flag in (("ST_NOSUID", _NOSUID), ("ST_NODEV", _NODEV), ("ST_NOEXEC", _NOEXEC)):
        if kept & getattr(os, name, 0):
            flags |= flag
    _mount("none", place, None, _BIND | _REMOUNT | _RDONLY | flags)


class _Tree:
    """The tree of files that the program will see, built under `root`."""

    def __init__(self, scratch: str, disk: int) -> None:
        _mount("none", "/", None, _REC | _PRIVATE)
        _mount("tmpfs", scratch, "tmpfs", _NOSUID | _NODEV, f"size={disk},mode=700")
        self._scratch, self._disk, self._count = scratch, disk, 0
        self._places = [place for place in _mounts() if place != scratch]
        self.root = os.path.join(scratch, "root")
        os.mkdir(self.root)
        _mount(self.root, self.root, None, _BIND)  # pivot_root wants a mount

    def _overlay(self, lower: str, target: str) -> None:
        """A copy on write of a directory."""
        if any(letter in lower for letter in ",:\\\n"):
            raise OSError(22, f"{lower}: a name that overlayfs does not take")
        self._count += 1
        upper, work = (os.path.join(self._scratch, f"{name}{self._count}") for name in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        os.chmod(upper, os.stat(lower).st_mode & 0o7777)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        try:
            _mount("overlay", target, "overlay", _NOSUID | _NODEV, f"{options},userxattr")
        except OSError:
            _mount("overlay", target, "overlay", _NOSUID | _NODEV, options)

    def build(self, own: list[str]) -> None:
        """`own`: directories of the user's that others' directories may hold. Overlayfs cannot write below a directory
        whose owner the user namespace does not know, so these have an overlay each."""
        self._copy("/")
        for place in own:
            inner = any(one.startswith(place + "/") for one in self._places)
            if place != "/" and not inner and os.path.isdir(self.root + place):
                with contextlib.suppress(OSError):
                    self._overlay(place, self.root + place)
        _mount("tmpfs", self.root + self._scratch, "tmpfs", _NOSUID | _NODEV, f"size={self._disk},mode=700")
        self._devices()
        self._system()
        self._processes()

    def _copy(self, place: str) -> None:
        """A directory in the new tree. A user namespace may not take a tree apart from the mounts in it, so a directory
        that holds some is made anew, and what lies in it is copied one by one."""
        target = self.root + place if place != "/" else self.root
        if place in _OWN:
            return
        if any(one.startswith(place.rstrip("/") + "/") for one in self._places):
            self._made_anew(place, target)
            return
        try:
            self._overlay(place, target)
        except OSError:  # a file system that overlayfs does not take: read-only
            _mount(place, target, None, _BIND | _REC)
            _readonly(target)

    def _made_anew(self, place: str, target: str) -> None:
        os.chmod(target, (os.stat(place).st_mode & 0o7777) | 0o700)
        with os.scandir(place) as entries:
            for entry in entries:
                name = os.path.join(target, entry.name)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), name)
                elif entry.is_dir():
                    os.mkdir(name)
                    if os.access(entry.path, os.R_OK | os.X_OK):
                        self._copy(entry.path)
                elif entry.is_file() and os.access(entry.path, os.R_OK):
                    with open(name, "w", encoding="ascii"):
                        pass
                    _mount(entry.path, name, None, _BIND)
                    _readonly(name)

    def _devices(self) -> None:
        dev = self.root + "/dev"
        os.makedirs(dev, exist_ok=True)
        _mount("tmpfs", dev, "tmpfs", _NOSUID, "size=64k,mode=755")
        for name in _DEVICES:
            with open(f"{dev}/{name}", "w", encoding="ascii"):
                pass
            _mount(f"/dev/{name}", f"{dev}/{name}", None, _BIND)
        for name, to in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                         ("stderr", "/proc/self/fd/2")):  # fmt: skip
            os.symlink(to, f"{dev}/{name}")
        os.mkdir(f"{dev}/shm")
        _mount("tmpfs", f"{dev}/shm", "tmpfs", _NOSUID | _NODEV, f"size={self._disk},mode=1777")

    def _system(self) -> None:
        """/sys read-only, or empty; /run empty: sockets of services are there."""
        system, run = self.root + "/sys", self.root + "/run"
        if os.path.isdir(system):
            _mount("/sys", system, None, _BIND | _REC)
            attributes = struct.pack("QQQQ", _ATTR_RDONLY, 0, 0, 0)
            done = _libc.syscall(_SETATTR, -100, system.encode(), _RECURSIVE, attributes, len(attributes))
            if done < 0:
                _call("umount2", system, _DETACH)
        if os.path.isdir(run):
            _mount("tmpfs", run, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")

    def _processes(self) -> None:
        """/proc of the new process namespace. The files of it that change the machine are read-only."""
        proc = self.root + "/proc"
        _mount("proc", proc, "proc", _NOSUID | _NODEV | _NOEXEC)
        for name in ("sys", "sysrq-trigger", "irq", "bus"):
            place = f"{proc}/{name}"
            if os.path.lexists(place):
                _mount(place, place, None, _BIND)
                _readonly(place)

    def enter(self) -> None:
        os.chdir(self.root)
        _call("pivot_root", ".", ".")
        _call("umount2", ".", _DETACH)
        os.chdir("/")


def _loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, _UP_FLAGS, struct.pack("16sh22x", b"lo", _UP))


def _drop_privileges() -> None:
    """No capability is left after the next exec, and none can come back by it."""
    _call("prctl", _AMBIENT, 4, 0, 0, 0)
    for number in range(64):
        if _libc.prctl(_DROP_BOUND, number, 0, 0, 0) < 0:
            break
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def limits(memory: int, files: int) -> None:
    """Bytes of memory, and of one file."""
    for name, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, files), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(name)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (most, most))


def _enter(request: dict[str, Any]) -> NoReturn:
    """The first process of the namespaces: builds the tree and waits for the program."""
    _call("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    tree = _Tree(request["scratch"], request["disk"])
    tree.build([os.path.realpath(one) for one in (request["directory"], os.path.expanduser("~"))])
    tree.enter()
    _loopback()
    program = os.fork()
    if program:
        _wait(program)
    _call("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.makedirs(os.path.join(request["scratch"], "tmp"), exist_ok=True)
    _drop_privileges()
    _become(request)


def _become(request: dict[str, Any]) -> NoReturn:
    """The program itself."""
    os.chdir(request["directory"])
    limits(request["memory"], request["disk"])
    command = request["command"]
    if not os.access(command[0], os.X_OK):
        raise PermissionError(13, f"{command[0]} cannot be started")
    os.write(request["status"], b"started\n")
    for number in request["close"]:
        os.close(number)
    os.execve(command[0], command, request["environment"])


def _without_namespaces(request: dict[str, Any]) -> NoReturn:
    """The program with its limits alone. What it leaves behind becomes a child of this process, and is ended."""
    with contextlib.suppress(OSError, AttributeError):  # no Linux
        _call("prctl", _SUBREAPER, 1, 0, 0, 0)
    program = os.fork()
    if not program:
        _become(request)
    code = _until_end(program)
    _end_children()
    os._exit(code)


def _end_children() -> None:
    """End every process below this one."""
    for _ in range(100):
        below = [int(name) for name in os.listdir("/proc") if name.isdecimal()] if os.path.isdir("/proc/self") else []
        mine = [number for number in below if _parent(number) == os.getpid()]
        if not mine:
            return
        for number in mine:
            try:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
            except OSError:
                continue


def _parent(number: int) -> int:
    try:
        with open(f"/proc/{number}/stat", encoding="latin-1") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _wait(child: int, in_between: bool = False) -> NoReturn:
    """Ends as the child does."""
    os._exit(_until_end(child, in_between))


def _until_end(child: int, in_between: bool = False) -> int:
    """The exit status of the program, whatever else is a child of this process. Signals to stop are passed on; SIGUSR1
    ends the program at once. `in_between`: the child is the first process of the namespaces."""

    def passed(number: int, _: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    def ended_now(*_: Any) -> None:
        passed(signal.SIGUSR1 if in_between else signal.SIGKILL, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, passed)
    signal.signal(signal.SIGUSR1, ended_now)
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main(path: str) -> None:
    """Enter new namespaces and start the program there."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        _call("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if not request["isolate"]:
            _without_namespaces(request)
    except BaseException as error:
        _failed(request, error)
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
        first = os.fork()
    except OSError as error:
        _failed(request, error)
    if first:
        _wait(first, in_between=True)
    try:
        _enter(request)
    except BaseException as error:
        _failed(request, error)


def _failed(request: dict[str, Any], error: BaseException) -> NoReturn:
    os.write(request["status"], f"failed {error}\n".encode("utf-8", "replace"))
    os._exit(97)


if __name__ == "__main__":
    main(sys.argv[1])
