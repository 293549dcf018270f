"""Runs the public scripts of `scripts.toml` dry, from bare mirrors, and keeps the first result of each.

    python -m benchmarks.dryrun run [--python PATH] [NAME...]

A script is unpacked from its mirror (PREFLIGHT_MIRRORS/OWNER+NAME) into a folder for temporary files, and changed in
nothing. `results.jsonl` has one line for each run: how it ended, its steps, seconds and bytes.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SECONDS = 240


@dataclass(frozen=True)
class Script:
    name: str
    batch: int
    repository: str
    commit: str
    folder: str
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0


def scripts() -> tuple[Script, ...]:
    data = tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))
    return tuple(Script(**row) for row in data["scripts"])


def results(names: tuple[str, ...], python: str) -> Iterator[str]:
    """A line for each script, also added to the file."""
    for script in scripts():
        if names and script.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="dryrun-script-") as home:
            why = unpack(script, Path(home))
            row = {"name": script.name, "batch": script.batch, **({"error": why} if why else run(script, home, python))}
        line = json.dumps(row)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        yield line


def unpack(script: Script, home: Path) -> str:
    """The files of the commit; why there are none, or "". A partial mirror may lack the blobs of other folders."""
    mirrors = Path(os.environ.get("PREFLIGHT_MIRRORS", "mirrors")) / script.repository.replace("/", "+")
    found = next((path.parent for path in sorted(mirrors.glob("**/HEAD"))), None)
    if found is None:
        return f"no mirror in {mirrors}"
    top = [] if script.folder == "." else [script.folder.split("/")[0]]
    for paths in ([], top):
        archive = subprocess.run(
            ["git", f"--git-dir={found}", "archive", script.commit, *paths], capture_output=True, check=False
        )
        if archive.returncode == 0:
            subprocess.run(["tar", "x", "-C", str(home)], input=archive.stdout, check=True)
            return ""
    return archive.stderr.decode(errors="replace").strip()


def run(script: Script, home: str, python: str) -> dict[str, object]:
    """The outcome of one dry run."""
    words = [python if one == "python" else one for one in shlex.split(script.command)]
    more = ["--gpus", str(script.gpus)] if script.gpus else []
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "dry-run", "--output-format", "json", "--time-limit", str(SECONDS), *more,
         "--", *words],
        cwd=Path(home) / script.folder, env={**os.environ, **script.environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1].replace(home, "")}
    data = json.loads(done.stdout)
    found = data["dry_run"]
    return {
        "end": found["end"], "reason": found["reason"], "steps": found["steps"], "validated": found["validated"],
        "seconds": round(found["seconds"]), "requested": data["device"]["requested"]["expected"],
        "process": data["device"]["process"]["expected"], "phase": data["device"]["phase"],
    }  # fmt: skip
