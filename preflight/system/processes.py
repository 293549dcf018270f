"""Every program that preflight starts: Pythons in isolation, and the cluster's own commands.

A Python is started as `python -I` is: no current directory and no PYTHON* variable adds to its path, and it has few
variables beside. No program starts in the checked tree, and none is found there through PATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

from preflight.system import import_path, observed

if TYPE_CHECKING:
    import subprocess

NEUTRAL = os.path.abspath(os.sep)
"""Where programs start: relative entries of a path lead nowhere from here."""

_NEEDED = ("HOME", "USER", "LOGNAME", "USERPROFILE", "LOCALAPPDATA", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG",
           "LC_ALL", "LC_CTYPE", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")  # fmt: skip
_PATHS = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Lists of directories that libraries are loaded from: what leads into a checked tree is left out."""

# What -I does, said in the program: it drops PYTHONHASHSEED as well, which a tracer needs.
_AS_ISOLATED = "import sys\nsys.path[:] = [entry for entry in sys.path if entry]\n"
_WITH_OWN = "import site\nfor entry in {site!r}: site.addsitedir(entry)\nsys.path.extend({path!r})\n"


def ask_python(interpreter: str | None, code: str, arguments: Sequence[str], seconds: float) -> str:
    """What a program prints in an isolated Python (None: this one). Raises OSError or subprocess.SubprocessError."""
    import subprocess

    if interpreter is not None:
        observed.not_final(f"{interpreter} was asked")  # what is installed there is not looked at again
    done = subprocess.run(
        [interpreter or sys.executable, "-I", "-c", _prepared(interpreter, code), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=seconds, cwd=NEUTRAL,
        env=environment(),
    )  # fmt: skip
    return done.stdout


def start_python(interpreter: str | None, code: str, complaints: IO[bytes], seed: int) -> subprocess.Popen[bytes]:
    """An isolated Python with pipes to and from it, whose strings hash as `seed` says. Raises OSError.

    `-I` would ignore the seed. So this is what it stands for, one by one: `-s`, no PYTHON* variable but two, and a path
    without the current directory (PYTHONSAFEPATH since Python 3.11; before, the program's first line).
    """
    import subprocess

    observed.not_final("a program was started")
    more = {"PYTHONHASHSEED": str(seed), "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(
        [interpreter or sys.executable, "-s", "-c", _prepared(interpreter, code)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, cwd=NEUTRAL, env={**environment(), **more},
    )  # fmt: skip


def environment() -> dict[str, str]:
    """The variables that an isolated Python gets."""
    trees = import_path.checked_trees(sys.argv[1:])
    found = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    for name in _PATHS:
        kept = [one for one in os.environ.get(name, "").split(os.pathsep) if not import_path.foreign(one, trees)]
        if kept:
            found[name] = os.pathsep.join(kept)
    return found


def _prepared(interpreter: str | None, code: str) -> str:
    """The program, after the current directory is off the path and, for this Python, what only it would find is on."""
    if interpreter is not None:
        return _AS_ISOLATED + code
    site, path = _own_places()
    return _AS_ISOLATED + _WITH_OWN.format(site=site, path=path) + code


def _own_places() -> tuple[list[str], list[str]]:
    """This Python's user site where it is in use, and what it has of PYTHONPATH: torch may be installed there, and this
    process imports from there anyway. Nothing of a checked tree."""
    site = sys.modules.get("site")
    user = getattr(site, "USER_SITE", None) if getattr(site, "ENABLE_USER_SITE", False) else None
    trees = import_path.checked_trees(sys.argv[1:])
    stated = [] if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [one for one in stated if one in sys.path and not import_path.foreign(one, trees)]
    return [one for one in [user] if one and not import_path.foreign(one, trees)], path


def found_program(name: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """The path of a program; relative and empty entries of PATH, which mean the checked tree, do not count."""
    for folder in folders(variables):
        path = os.path.join(folder, name)
        if observed.program(path):
            return path
    return None


def folders(variables: Mapping[str, str]) -> list[str]:
    """The directories of PATH that are the same from everywhere."""
    stated = variables.get("PATH", os.defpath).split(os.pathsep)
    return [one for one in stated if os.path.isabs(one) and not one.startswith("/proc/")]


def ask_program(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """What a command of the cluster says; its first word is a name or a path. Raises OSError or TimeoutExpired.

    It has the user's whole environment: SLURM's commands find their configuration and their credentials by it.
    """
    import subprocess

    observed.not_final(f"{command[0]} was asked")
    path = command[0] if os.path.isabs(command[0]) else found_program(command[0])
    if path is None:
        raise FileNotFoundError(command[0])
    return subprocess.run(
        [path, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=seconds, check=False, cwd=NEUTRAL,
    )  # fmt: skip
