"""Runs the public scripts of `scripts.toml` dry, from bare mirrors, and keeps the first result of each.

    python -m benchmarks.dryrun run [--python PATH] [--into FILE] [--environment WORDS] [NAME...]

A script is unpacked from its mirror (PREFLIGHT_MIRRORS/OWNER+NAME) into a folder for temporary files, and changed in
nothing. `results.jsonl` has one line for each run: how it ended, its steps, seconds and bytes, the CPU seconds of all
its processes and the memory of the largest (MiB).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SECONDS = 600
"""Seconds by the clock: on a computer that others use, a run takes several times its CPU time, which is what counts."""


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
    arrays: Sequence[str] = ()
    """Shapes of arrays that the program reads and that are not there, of a later run (`--array`)."""
    fails: str = ""
    """Why it would fail on a GPU as well, or does not install with current versions: such a script is not counted."""


def scripts() -> tuple[Script, ...]:
    data = tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))
    return tuple(Script(**row) for row in data["scripts"])


def results(names: tuple[str, ...], python: str, into: Path = RESULTS, environment: str = "") -> Iterator[str]:
    """A line for each script, also added to the file."""
    for script in scripts():
        if script.name not in names if names else script.fails:
            continue
        with tempfile.TemporaryDirectory(prefix="dryrun-script-") as home:
            why = unpack(script, Path(home))
            row = {"name": script.name, "batch": script.batch, **({"error": why} if why else run(script, home, python))}
            row.update({"environment": environment} if environment else {})
        line = json.dumps(row)
        with into.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        yield line


def unpack(script: Script, home: Path) -> str:
    """The files of the commit that the mirror has; why there are none, or "". A partial mirror lacks large ones."""
    mirrors = Path(os.environ.get("PREFLIGHT_MIRRORS", "mirrors")) / script.repository.replace("/", "+")
    found = next((path.parent for path in sorted(mirrors.glob("**/HEAD"))), None)
    if found is None:
        return f"no mirror in {mirrors}"
    git = ["git", f"--git-dir={found}"]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", script.commit], capture_output=True, check=False)
    if listed.returncode:
        return listed.stderr.decode(errors="replace").strip()
    files = [line.split(b"\t", 1) for line in listed.stdout.split(b"\0") if line.startswith(b"100")]
    wanted = b"".join(what.split()[2] + b"\n" for what, _ in files)
    batch = [*git, "cat-file", "--batch", "--buffer"]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    data = subprocess.run(batch, input=wanted, capture_output=True, env=environment, check=False).stdout
    at = 0
    for _, name in files:
        head, _, _ = data[at : at + 200].partition(b"\n")
        at += len(head) + 1
        if head.endswith(b" missing"):
            continue
        size = int(head.split()[2])
        path = home / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[at : at + size])
        at += size + 1
    return ""


def run(script: Script, home: str, python: str) -> dict[str, object]:
    """The outcome of one dry run."""
    words = [python if one == "python" else one for one in shlex.split(script.command)]
    more = ["--gpus", str(script.gpus)] if script.gpus else []
    more += [word for one in script.arrays for word in ("--array", one)]
    command = [sys.executable, "-m", "preflight", "dry-run", "--output-format", "json", "--time-limit", str(SECONDS)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*command, *more, "--", *words], cwd=Path(home) / script.folder, env={**os.environ, **script.environment},
            stdout=out, stderr=err,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said, complained = (_read(one) for one in (out, err))
    cost: dict[str, object] = {"cpu": round(used.ru_utime + used.ru_stime), "mib": used.ru_maxrss // 1024}
    if process.returncode:
        return {"error": complained.strip().splitlines()[-1].replace(home, ""), **cost}
    data = json.loads(said)
    found = data["dry_run"]
    return {
        **cost,
        "end": found["end"], "reason": found["reason"], "steps": found["steps"], "validated": found["validated"],
        "seconds": round(found["seconds"]), "requested": data["device"]["requested"]["expected"],
        "process": data["device"]["process"]["expected"], "phase": data["device"]["phase"],
    }  # fmt: skip


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
