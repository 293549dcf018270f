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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMMAND = "PREFLIGHT_COMMAND"
SECONDS = 120


@dataclass(frozen=True)
class Need:
    """Process bytes on one GPU, and what the GPU gives; None: not known which."""

    low: int
    expected: int
    high: int
    capacity: int | None
    verdict: str


_answers: dict[str, Need | None] = {}


def need_of(job: Mapping[str, Any], gpu: str | None) -> Need | None:
    """The need of a job; None if it is not known. Equal jobs are asked about once."""
    text = json.dumps(job, sort_keys=True, default=str)
    key = f"{gpu} {text}"
    if key not in _answers:
        _answers[key] = _asked(text, gpu)
    return _answers[key]


def command() -> list[str] | None:
    """The command that estimates."""
    stated = os.environ.get(COMMAND)
    if stated:
        return stated.split()
    beside = os.path.join(os.path.dirname(sys.executable), "preflight")
    found = beside if os.access(beside, os.X_OK) else shutil.which("preflight")
    return [found] if found else None


def _asked(text: str, gpu: str | None) -> Need | None:
    words = command()
    if words is None:
        return None
    handle, path = tempfile.mkstemp(suffix=".json", prefix="preflight-job-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        hidden = {name: value for name, value in os.environ.items() if name != "PREFLIGHT_SMALL_CARD"}
        done = subprocess.run(
            [*words, "estimate", path, "--output-format", "json", *(["--gpu", gpu] if gpu else [])],
            capture_output=True, text=True, timeout=SECONDS, check=False, env={**hidden, "PREFLIGHT_GUARD": "off"},
        )  # fmt: skip
        if done.returncode:
            sys.stderr.write(f"preflight guard: the job is not judged: {done.stderr.strip()[:300]}\n")
            return None
        device = json.loads(done.stdout).get("device")
        if not device:
            return None
        process = device["process"]
        return Need(process["low"], process["expected"], process["high"], device["capacity"], device["verdict"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"preflight guard: the job is not judged: {type(error).__name__}: {error}\n")
        return None
    finally:
        os.unlink(path)
