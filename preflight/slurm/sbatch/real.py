"""The real sbatch, and the files that a site installs so that preflight is called in its place.

The real sbatch is named by an option or the environment; else it is the next one in PATH that is not preflight again.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator, Mapping

from preflight.reports.streams import complain
from preflight.system.processes import folders
from preflight.vocabulary.errors import UsageError

VARIABLE = "PREFLIGHT_REAL_SBATCH"

_OURS = re.compile(rb"preflight[\"']?\s+sbatch\b|\bpreflight\.(submission|cli|__main__)\b|preflight:sbatch")
"""Text of a script that starts preflight: `exec preflight sbatch "$@"`, the console script, our own wrapper."""

_LOOKED_AT = 2**16
"""Bytes of a candidate that are searched: wrappers are short."""

_MARK = "preflight-sbatch"


def find_real(named: str | None, environment: Mapping[str, str]) -> str:
    """The path of the real sbatch. Raises UsageError if it is not found."""
    stated, before = named or environment.get(VARIABLE), tried()
    if stated and stated not in before:
        if not _runs(stated):
            raise UsageError(f"{stated} is named as the real sbatch, but it cannot be run")
        return stated
    for path in _in_path(environment):
        if path not in before and not _is_ours(path):
            return path
    raise UsageError(f"no sbatch in PATH: give its path with --preflight-sbatch or {VARIABLE}")


def mark(path: str) -> None:
    """Marks `path` as taken for the real sbatch, in case that is preflight again: writes it to an open file in memory.

    Unlike a variable, this does not reach the job's environment.
    """
    try:
        handle = os.memfd_create(_MARK, 0)
        os.write(handle, os.fsencode("".join(f"{one}\n" for one in (*tried(), path))))
        fcntl.fcntl(handle, fcntl.F_DUPFD, 100)  # out of the way of those that scripts number by hand
        os.close(handle)
    except (OSError, AttributeError):
        return  # not Linux: only the search in PATH prevents a loop


def tried() -> list[str]:
    """Paths that were taken for the real sbatch but started preflight again. The job was checked before that."""
    try:
        handles = os.listdir("/proc/self/fd")
    except OSError:
        return []
    found: dict[str, None] = {}
    for handle in handles:
        path = f"/proc/self/fd/{handle}"
        if _link(path).startswith(f"/memfd:{_MARK}"):
            found.update(dict.fromkeys(os.fsdecode(_start_of(path)).splitlines()))
    return list(found)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _in_path(environment: Mapping[str, str]) -> Iterator[str]:
    for folder in folders(environment):
        path = os.path.join(folder, "sbatch")
        if _runs(path):
            yield path


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_ours(path: str) -> bool:
    start = _start_of(path)
    return start.startswith(b"#!") and _OURS.search(start) is not None


def _start_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LOOKED_AT)
    except OSError:
        return b""  # a file that can be run but not read is not one of our scripts


# --- what a site installs ---------------------------------------------------------------------------------------------

FILES = {"wrapper": "wrapper.sh", "cli-filter": "cli_filter.lua"}


def printed(what: str, sbatch: str | None) -> str:
    """The text of one of FILES. Raises UsageError for a path that would need quotes."""
    from importlib.resources import files

    text = files("preflight.slurm.sbatch").joinpath(FILES[what]).read_text(encoding="utf-8")
    text = _with(text, "python", sys.executable)
    if what == "wrapper":
        try:
            text = _with(text, "sbatch", os.path.abspath(find_real(sbatch, os.environ)))
        except UsageError:
            complain("preflight: no sbatch found: write its path in the line that starts with sbatch=")
    return text


def _with(text: str, name: str, path: str) -> str:
    """The text with a path in the line that sets `name`."""
    if re.fullmatch(r"[\w@%+=:,./-]+", path) is None:
        raise UsageError(f"{path}: this path cannot be written into the file: use letters, digits and @%+=:,./- only")
    return re.sub(rf"^((?:local )?{name} ?= ?\"?)[^\"\n]*", lambda match: match[1] + path, text, count=1, flags=re.M)
