"""Measure the grid on the CUDA device at hand: `python -m benchmarks.accuracy.gpu.measure --output FILE`.

Needs torch, transformers, peft and timm, and nothing of preflight. Each case runs in a process of its own with a time
limit; running out of memory is an outcome. Records are JSON lines, appended as they come: what is in the file already
is not run again, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy.gpu.cases import GRID, Case, matching

TIME_LIMIT_S = 600.0
CONTEXT = "context"
"""The record of what the context, cuBLAS and cuDNN take."""
ROOT = Path(__file__).resolve().parents[3]
Runner = Callable[[str, float], "dict[str, Any]"]


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Records by case id; a last line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and "id" in record:
            found[record["id"]] = record
    return found


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line and see it on the disk; a line that was cut off before is ended first."""
    cut = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut else "") + json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def in_process(name: str, limit_s: float) -> dict[str, Any]:
    """One case in a fresh process: its record, or what became of it ("timeout", "error")."""
    from benchmarks.accuracy.gpu.device import used_before

    before = used_before()
    command = [sys.executable, "-m", "benchmarks.accuracy.gpu.measure", "--case", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"id": name, "outcome": "timeout", "limit_s": limit_s}
    lines = done.stdout.strip().splitlines()
    try:
        record: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"id": name, "outcome": "error", "message": last[0]}
    return {**record, "used_before": before}


def one(name: str) -> dict[str, Any]:
    """The record of a case, measured in this process."""
    import torch

    from benchmarks.accuracy.gpu import step
    from benchmarks.accuracy.gpu.device import Cuda, versions

    if not torch.cuda.is_available():
        return {"id": name, "outcome": "error", "message": "there is no CUDA device"}
    device = Cuda()
    record = {"context": step.context(device), "outcome": "ok"} if name == CONTEXT else step.run(GRID[name], device)
    job = {} if name == CONTEXT else GRID[name].job()
    return {"id": name, "job": job, **record, "facts": device.facts(), "versions": versions()}


def measure(cases: Sequence[Case], output: Path, run: Runner = in_process, limit_s: float = TIME_LIMIT_S,
            say: Callable[[str], None] = print) -> int:  # fmt: skip
    """Run what is not in the file yet; the number of cases that were run."""
    known = read(output)
    wanted = [CONTEXT, *(case.id for case in cases)]
    left = [name for name in wanted if name not in known]
    for number, name in enumerate(left, 1):
        record = run(name, limit_s)
        append(output, record)
        peak = max((row.get("allocated_peak", 0) for row in record.get("phases", ())), default=0)
        say(f"{number} of {len(left)} {name}: {record['outcome']} {peak / 2**20:,.0f} MiB allocated")
    return len(left)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="file of JSON lines to append to")
    parser.add_argument("--only", metavar="PATTERN", help="cases whose id holds it, or matches it as a glob")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT_S, help="seconds that a case may take")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        print(json.dumps(one(given.case)))
        return 0
    cases = matching(given.only)
    if given.list:
        print("\n".join(case.id for case in cases))
        return 0
    if given.output is None:
        parser.error("--output FILE is needed to measure (or --list)")
    if not cases:
        parser.error(f"no case matches {given.only}")
    measure(cases, given.output, limit_s=given.limit)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
