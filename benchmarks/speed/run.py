"""How long `preflight check` takes and how much memory: whole processes, beside other tools in the same run.

    python benchmarks/speed/run.py              measures and writes docs/speed.md
    python benchmarks/speed/run.py --runs 3     fewer runs of each
    python benchmarks/speed/run.py --print      writes nothing

Runs in any interpreter that has preflight; the peers come with the extra `bench`, one that is missing is said to be.
Commands are taken in turns, so that a busy moment of the machine hits all of them. Bytecode is cached, as on a machine
of anybody's: PYTHONDONTWRITEBYTECODE is unset, and the first run of each counts for nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import projects
import trees

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/speed.md"
FILES = 1000
TREES = (
    ("monorepo", 20_000, "20,000 files with 100 launches", 15),
    ("hydra", 5_000, "5,000 Hydra files with 20 primary configs", 15),
    ("scripts", 500, "500 job scripts with arrays", 15),
)
"""Kind, number of files, name of the row, and the seconds that are promised."""
BASE = "bare import"
SCHEMA = '{"type": "object", "required": ["program", "method", "parameters"]}\n'


@dataclass
class Timed:
    """A command and what its runs took: wall seconds and peak resident bytes of the process and its children.

    `at_most`: times the bare import, or seconds where `seconds` is set; what the project promises."""

    name: str
    command: list[str]
    project: str
    at_most: float | None = None
    seconds: bool = False
    module: str = "preflight"
    walls: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    @property
    def missing(self) -> bool:
        return importlib.util.find_spec(self.module) is None


def commands() -> list[Timed]:
    """All that is timed. `-f concise` as a machine reads it; findings make exit status 1."""

    def kept(name: str, project: str, path: str, **promise: float) -> Timed:
        command = [sys.executable, "-m", "preflight", "check", path, "--output-format", "concise"]
        return Timed(f"`preflight check`: {name}", command, project, **promise)  # type: ignore[arg-type]

    def check(name: str, project: str, path: str, **promise: float) -> Timed:
        timed = kept(name, project, path, **promise)
        timed.command.append("--no-cache")
        return timed

    python = [sys.executable, "-m"]
    lint = [*python, "yamllint", "-d", "relaxed"]
    schema = [*python, "check_jsonschema", "--schemafile", "../schema.json", "sweep.yaml"]
    return [
        Timed(BASE, [sys.executable, "-c", "import yaml; from pydantic import BaseModel"], "sweep"),
        check("one W&B sweep and its program: all fits", "fits", "sweep.yaml", at_most=2.5),
        check("one W&B sweep and its program: cut down, a fix proved", "sweep", "sweep.yaml", at_most=2.5),
        check("one job script and its program", "slurm", "train.slurm", at_most=2.5),
        check("one Hydra application", "hydra", "train.py", at_most=5),
        check("10^6 combinations", "million", "sweep.yaml"),
        check("10^9 combinations", "billion", "sweep.yaml", at_most=1, seconds=True),
        check(f"{FILES:,} mixed files", "mixed", "."),
        *(check(name, f"{kind}{count}", ".", at_most=at_most, seconds=True) for kind, count, name, at_most in TREES),
        kept("the sweep again, its result kept", "sweep", "sweep.yaml", at_most=1.5),
        kept(f"{FILES:,} mixed files again, their result kept", "mixed", ".", at_most=1.5),
        Timed("yamllint: the sweep", [*lint, "sweep.yaml"], "sweep", module="yamllint"),
        Timed("yamllint: the YAML of the mixed files", [*lint, "."], "mixed", module="yamllint"),
        Timed("check-jsonschema: the sweep, a schema of a line", schema, "sweep", module="check_jsonschema"),
    ]


def once(timed: Timed, root: Path, env: dict[str, str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one run; a crash ends the benchmark."""
    with open(root / "output", "wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            timed.command, cwd=root / timed.project, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        said = (root / "output").read_text(errors="replace")
        raise SystemExit(f"{' '.join(timed.command)}: exit status {process.returncode}\n{said[-2000:]}")
    return wall, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(runs: int) -> list[Timed]:
    """Every command, `runs` times in turns after one to warm up."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"NO_COLOR": "1", "PYTHONUTF8": "1"}
    env.pop("PREFLIGHT_NO_CACHE", None)
    found = commands()
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as cache:
        root = Path(made)
        env["PREFLIGHT_CACHE_DIR"] = cache
        projects.write(root, FILES)
        for kind, count, _, _ in TREES:
            trees.write(kind, count, root / f"{kind}{count}")
        (root / "schema.json").write_text(SCHEMA)
        for turn in range(runs + 1):
            for timed in found:
                if timed.missing:
                    continue
                wall, peak = once(timed, root, env)
                if turn:
                    timed.walls.append(wall)
                    timed.peaks.append(peak)
    return found


def table(found: list[Timed]) -> str:
    """One row per command."""
    base = statistics.median(found[0].walls)
    lines = [
        "| process | median, s | min to max, s | peak memory, MiB | times the bare import | promised | kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for timed in found:
        if timed.missing:
            lines.append(f"| {timed.name} | not installed | | | | | |")
            continue
        wall, peak = statistics.median(timed.walls), statistics.median(timed.peaks)
        promised = kept = ""
        if timed.at_most is not None:
            promised = f"{timed.at_most:g} s" if timed.seconds else f"{timed.at_most:g} times"
            kept = "yes" if (wall if timed.seconds else wall / base) <= timed.at_most else "no"
        spread = f"{min(timed.walls):.3f} to {max(timed.walls):.3f}"
        lines.append(
            f"| {timed.name} | {wall:.3f} | {spread} | {peak / 2**20:.0f} | {wall / base:.2f} | {promised} | {kept} |"
        )
    return "\n".join(lines)


def page(found: list[Timed], runs: int) -> str:
    """docs/speed.md."""
    system = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )
    return f"""# Speed

Whole processes, Python's start included: {runs} runs of each, in turns, after one to warm up, on a machine that may
have had other work ({system}). Written by `python benchmarks/speed/run.py`; the peers come with the extra `bench`.

{table(found)}

The bare import is `python -c "import yaml; from pydantic import BaseModel"`: what any checker of YAML with schemas pays
before it does anything. yamllint and check-jsonschema do other work than preflight, and read fewer files: they are a
measure of how long a hook may take, not competitors.

- A sweep or a job script is read together with the program it runs; a Hydra application is composed with hydra-core.
- The spaces are batch x length x accumulation. Corners of a monotone bound decide, nothing is enumerated.
- The mixed files: of ten, two sweeps, a job script, a program, two YAML files, a shell script, two Python modules and a
  text that have nothing to do with training.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--print", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.runs)
    if arguments.print:
        print(table(found))
    else:
        (ROOT / PAGE).write_text(page(found, arguments.runs), encoding="utf-8")


if __name__ == "__main__":
    main()
