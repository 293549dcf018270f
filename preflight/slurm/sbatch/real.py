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
"""What a script says that starts preflight: `exec preflight sbatch "$@"`, the console script, our own wrapper."""

_LOOKED_AT = 2**16
"""Bytes of a candidate that are searched: wrappers are short."""

_MARK = "preflight-sbatch"


def find_real(named: str | None, environment: Mapping[str, str]) -> str:
    """The path of the real sbatch. Raises UsageError where there is none."""
    stated, before = named or environment.get(VARIABLE), tried()
    if stated and stated not in before:
        if not _runs(stated):
            raise UsageError(f"{stated} is to be the real sbatch, and cannot be run")
        return stated
    for path in _in_path(environment):
        if path not in before and not _is_ours(path):
            return path
    raise UsageError(f"no sbatch in PATH; {VARIABLE} names it where it is elsewhere")


def mark(path: str) -> None:
    """Leaves a sign for a preflight that this process becomes or starts: what it took for the real sbatch, in a file in
    memory that stays open. Unlike a variable, it does not reach the job's environment."""
    try:
        handle = os.memfd_create(_MARK, 0)
        os.write(handle, os.fsencode("".join(f"{one}\n" for one in (*tried(), path))))
        fcntl.fcntl(handle, fcntl.F_DUPFD, 100)  # out of the way of those that scripts number by hand
        os.close(handle)
    except (OSError, AttributeError):
        return  # not Linux: then only the search in PATH keeps from going round


def tried() -> list[str]:
    """What was taken for the real sbatch and has started us again; then the job was checked, too."""
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
        return b""  # a program that may be run and not read is none of our scripts


# --- what a site installs ---------------------------------------------------------------------------------------------

FILES = {"wrapper": "wrapper.sh", "cli-filter": "cli_filter.lua"}


def printed(what: str, sbatch: str | None) -> str:
    """The text of one of FILES. Raises UsageError for a path that neither language takes as it is."""
    from importlib.resources import files

    text = files("preflight.slurm.sbatch").joinpath(FILES[what]).read_text(encoding="utf-8")
    text = _with(text, "python", sys.executable)
    if what == "wrapper":
        try:
            text = _with(text, "sbatch", os.path.abspath(find_real(sbatch, os.environ)))
        except UsageError:
            complain("preflight: no sbatch here: write its path into the line that starts with sbatch=")
    return text


def _with(text: str, name: str, path: str) -> str:
    """The text with a path in the line that sets `name`."""
    if re.fullmatch(r"[\w@%+=:,./-]+", path) is None:
        raise UsageError(f"{path}: a path with other characters than letters, digits and @%+=:,./- has to be quoted")
    return re.sub(rf"^((?:local )?{name} ?= ?\"?)[^\"\n]*", lambda match: match[1] + path, text, count=1, flags=re.M)
