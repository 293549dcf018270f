"""Runs `preflight check .` on each repository, in a process of its own with limits, and keeps what it said."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import launches, record, supervisor
from benchmarks.corpus.record import Ended, Record
from benchmarks.corpus.repositories import Repository, checkout, result

ROOT = Path(__file__).parents[2]
NO_CLIENT = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}


@dataclass(frozen=True)
class Limits:
    """Of one repository: seconds (of the clock, and of the processor for each process), bytes of address space."""

    seconds: int
    memory: int


def run(repositories: Sequence[Repository], jobs: int, limits: Limits, again: bool, gpu: str = "") -> None:
    """Those whose files are there and that have no result yet, or all of them; those with few files first."""
    wanted = [each for each in repositories if checkout(each).is_dir() and (again or kept(each, gpu) is None)]
    wanted.sort(key=lambda each: sum(1 for _ in checkout(each).rglob("*")))
    software = described()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for found in pool.map(lambda each: _one(each, limits, software, gpu), wanted):
            ended = "time limit" if found["timed_out"] else f"status {found['status']}"
            print(
                f"{found['name']}: {ended}, {found['cpu_seconds']:.0f} s CPU, {found['peak_bytes'] >> 20} MiB, "
                f"{len(found['studies'])} studies, {len(found['findings'])} findings",
                flush=True,
            )


def kept(repository: Repository, gpu: str = "") -> Record | None:
    """The result of an earlier run."""
    path = result(repository, gpu)
    return record.loaded(path.read_text(encoding="utf-8")) if path.is_file() else None


def _one(repository: Repository, limits: Limits, software: str, gpu: str) -> Record:
    root = checkout(repository)
    with tempfile.TemporaryDirectory() as folder:
        report, document = Path(folder, "report.json"), Path(folder, "document.json")
        check = ["check", ".", "--no-cache", "--exit-zero", "-f", "concise", "--output", f"json={document}"]
        check += ["--gpu", gpu] if gpu else []
        # -I: nothing of the checked tree is ever imported. An empty cache: a stranger's first run.
        command = [sys.executable, "-I", "-m", "preflight", *check]
        limit = [str(limits.seconds), str(limits.memory), str(report)]
        with Path(folder, "errors").open("wb") as errors:
            subprocess.run(
                [sys.executable, "-I", str(supervisor.__file__), *limit, *command],
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **NO_CLIENT, "XDG_CACHE_HOME": str(Path(folder, "cache"))},
                check=True,
            )
        said = Path(folder, "errors").read_text(encoding="utf-8", errors="replace").splitlines()
        data = json.loads(document.read_text(encoding="utf-8")) if document.is_file() else None
        ended: Ended = json.loads(report.read_text(encoding="utf-8"))
    found: Record = {
        "version": record.VERSION,
        "name": repository.name,
        "commit": repository.commit,
        "software": software,
        "status": ended["status"],
        "timed_out": ended["timed_out"],
        "wall_seconds": ended["wall_seconds"],
        "cpu_seconds": ended["cpu_seconds"],
        "peak_bytes": ended["peak_bytes"],
        "errors": [line for line in said if "error" in line.lower()][-5:],
        "files": data["summary"]["files"] if data else None,
        "launch_files": list(launches.scripts(root)),
        "findings": record.findings(data) if data else [],
        "studies": record.studies(data) if data else [],
    }
    path = result(repository, gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(path)
    return found


def described() -> str:
    """What was run: the last commit that changed preflight, Python, and whether models can be traced."""
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", "preflight", "rules"]
    answer = subprocess.run(asked, capture_output=True, text=True)
    traced = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    return (
        f"preflight at {answer.stdout.strip() or 'an unknown commit'}, Python {platform.python_version()}, "
        f"{'with' if traced else 'without'} torch and transformers"
    )
