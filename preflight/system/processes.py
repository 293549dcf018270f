"""Starts programs: isolated Pythons, and the commands of the cluster.

A Python is started like `python -I`: the current directory and PYTHON* variables add nothing to its path. It gets few
other variables. No program starts in the checked tree, and PATH finds none there.
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
"""The directory in which programs start. Relative entries of a path find nothing here."""

_NEEDED = ("HOME", "USER", "LOGNAME", "USERPROFILE", "LOCALAPPDATA", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG",
           "LC_ALL", "LC_CTYPE", "TZ", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")  # fmt: skip
_PATHS = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Lists of directories of programs and libraries. Directories of a checked tree are left out."""

# The same as -I, done by the program itself: -I ignores PYTHONHASHSEED, too, which a tracer needs.
_AS_ISOLATED = "import sys\nsys.path[:] = [entry for entry in sys.path if entry]\n"
_WITH_OWN = "import site\nfor entry in {site!r}: site.addsitedir(entry)\nsys.path.extend({path!r})\n"


def ask_python(interpreter: str | None, code: str, arguments: Sequence[str], seconds: float) -> str:
    """The output of a program in an isolated Python (None: this one). Raises OSError or subprocess.SubprocessError."""
    if interpreter is not None:
        observed.not_final(f"{interpreter} was asked")  # what is installed there is not looked at again
    command = [interpreter or sys.executable, "-I", "-c", _prepared(interpreter, code), *arguments]
    done = _run(command, seconds, environment())
    done.check_returncode()
    return done.stdout


def _run(command: Sequence[str], seconds: float, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A program with no input, run to its end."""
    import subprocess

    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        cwd=NEUTRAL,
        env=variables,
    )


def start_python(interpreter: str | None, code: str, errors: IO[bytes], seed: int) -> subprocess.Popen[bytes]:
    """An isolated Python with pipes to and from it; `seed` is that of its hashes. Raises OSError.

    `-I` would ignore the seed. So its parts are given one by one: `-s`, no PYTHON* variable except two, and a path
    without the current directory (by PYTHONSAFEPATH since Python 3.11, before by the program's first line).
    """
    import subprocess

    observed.not_final("a program was started")
    more = {"PYTHONHASHSEED": str(seed), "PYTHONSAFEPATH": "1"}
    command = [interpreter or sys.executable, "-s", "-c", _prepared(interpreter, code)]
    pipe, variables = subprocess.PIPE, {**environment(), **more}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, cwd=NEUTRAL, env=variables)


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
    """The program, after lines that take the current directory off the path and, for this Python, add its places."""
    if interpreter is not None:
        return _AS_ISOLATED + code
    site, path = _own_places()
    return _AS_ISOLATED + _WITH_OWN.format(site=site, path=path) + code


def _own_places() -> tuple[list[str], list[str]]:
    """This Python's user site, if it is used, and its entries of PYTHONPATH, without those of a checked tree.

    torch may be installed there, and this process imports from there anyway.
    """
    site = sys.modules.get("site")
    user = getattr(site, "USER_SITE", None) if getattr(site, "ENABLE_USER_SITE", False) else None
    trees = import_path.checked_trees(sys.argv[1:])
    stated = [] if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [one for one in stated if one in sys.path and not import_path.foreign(one, trees)]
    return [one for one in [user] if one and not import_path.foreign(one, trees)], path


def found_program(name: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """The path of a program. Relative and empty entries of PATH do not count: they would be in the checked tree."""
    for folder in folders(variables):
        path = os.path.join(folder, name)
        if observed.program(path):
            return path
    return None


def folders(variables: Mapping[str, str]) -> list[str]:
    """The absolute directories of PATH."""
    stated = variables.get("PATH", os.defpath).split(os.pathsep)
    return [one for one in stated if os.path.isabs(one) and not one.startswith("/proc/")]


def ask_program(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """The result of a command of the cluster; its first word is a name or a path. Raises OSError or TimeoutExpired.

    It gets the user's whole environment, in which SLURM's commands find their configuration and credentials.
    """
    observed.not_final(f"{command[0]} was asked")
    path = command[0] if os.path.isabs(command[0]) else found_program(command[0])
    if path is None:
        raise FileNotFoundError(command[0])
    return _run([path, *command[1:]], seconds, os.environ)
