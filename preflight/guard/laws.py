"""What a Job needs, asked of a preflight that is installed beside the program, in a process of its own.

The program's environment may have no preflight with its dependencies, or other versions of them: PREFLIGHT_COMMAND
names the command then. A question that is not answered is no error: the job is not judged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMMAND = "PREFLIGHT_COMMAND"
SECONDS = 120


@dataclass(frozen=True)
class Need:
    """Process bytes on one GPU, and what the GPU gives; None: not known which. `context`: those of them that no
    allocator reserves."""

    low: int
    expected: int
    high: int
    capacity: int | None
    verdict: str
    context: int = 0


_answers: dict[tuple[str, ...], dict[str, Any] | None] = {}
_told: set[str] = set()


def need_of(job: Mapping[str, Any], gpu: str | None) -> Need | None:
    """The need of a job; None if it is not known. Equal jobs are asked about once."""
    text = json.dumps(job, sort_keys=True, default=str)
    options = ("--gpu", gpu) if gpu else ()
    key = (text, *options)
    if key not in _answers:
        handle, path = tempfile.mkstemp(suffix=".json", prefix="preflight-job-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            _answers[key] = _asked(path, options)
        finally:
            os.unlink(path)
    return _need_in(_answers[key])


class Search:
    """A search that preflight reads from a file, as `preflight estimate FILE` does."""

    def __init__(self, path: str, gpu: str | None) -> None:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"guard: job={path!r}: there is no such file")
        self._path = path
        self._options = ("--gpu", gpu) if gpu else ()
        self._branches: list[dict[str, Any]] | None = None

    def at(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Need | None] | None:
        """The job of these parameters and its need; None while they do not decide it, or if it is not known."""
        if self._branches is None:
            self._branches = (self._ask() or {}).get("search") or [{"fixed": {}, "parameters": []}]
        for branch in self._branches:
            fixed, names = branch["fixed"], [*branch["fixed"], *branch["parameters"]]
            if all(name in values for name in names) and all(values[name] == fixed[name] for name in fixed):
                given = [f"--at={name}={json.dumps(values[name], default=str)}" for name in names]
                found = self._ask(*given)
                return (found["job"], _need_in(found)) if found is not None else None
        return None

    def _ask(self, *more: str) -> dict[str, Any] | None:
        key = (self._path, *self._options, *more)
        if key not in _answers:
            _answers[key] = _asked(self._path, (*self._options, *more))
        return _answers[key]


def command() -> list[str] | None:
    """The command that estimates."""
    stated = os.environ.get(COMMAND)
    if stated:
        return stated.split()
    beside = os.path.join(os.path.dirname(sys.executable), "preflight")
    found = beside if os.access(beside, os.X_OK) else shutil.which("preflight")
    return [found] if found else None


def _asked(target: str, options: Sequence[str]) -> dict[str, Any] | None:
    """What `preflight estimate` answers as JSON."""
    words = command()
    if words is None:
        _say(f"there is no preflight beside {sys.executable}, and {COMMAND} names none")
        return None
    hidden = {name: value for name, value in os.environ.items() if name != "PREFLIGHT_SMALL_CARD"}
    try:
        done = subprocess.run(
            [*words, "estimate", target, "--output-format", "json", *options],
            capture_output=True, text=True, timeout=SECONDS, check=False, env={**hidden, "PREFLIGHT_GUARD": "off"},
        )  # fmt: skip
        if done.returncode:
            _say(done.stderr.strip()[:300])
            return None
        found = json.loads(done.stdout)
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _say(f"{type(error).__name__}: {error}")
        return None


def _need_in(found: Mapping[str, Any] | None) -> Need | None:
    device = found.get("device") if found is not None else None
    if not device:
        if found is not None:
            names = [name for name in found.get("unknown", ()) if not name.startswith("data.")]  # those are of the host
            _say(f"its need is not known without {' and '.join(names) or 'its model'}")
        return None
    process = device["process"]
    context = process["expected"] - device["reserved"]["expected"]
    return Need(process["low"], process["expected"], process["high"], device["capacity"], device["verdict"], context)


def _say(why: str) -> None:
    """Each reason once."""
    if why not in _told:
        _told.add(why)
        sys.stderr.write(f"preflight guard: the job is not judged: {why}\n")
