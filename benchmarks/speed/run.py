"""How long `preflight check` takes and how much memory: whole processes, beside other tools in the same run.

    python benchmarks/speed/run.py              measures and writes docs/results/speed.md
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

import families
import projects
import trees

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/results/speed.md"
FILES = 1000
TREES = (
    ("monorepo", 20_000, "20,000 files with 100 launches", 15),
    ("hydra", 5_000, "5,000 Hydra files with 20 primary configs", 15),
    ("scripts", 500, "500 job scripts with arrays", 15),
)
"""Kind, number of files, name of the row, and the seconds that are promised."""
BASE = "bare import"
CLEAN, FINDINGS, WARM, HYDRA = 2.5, 3.0, 1.5, 4.0
"""What is promised for one file, in times the bare import: all fits; findings with fixes that are proved; a result that
is kept; a Hydra application."""
SCHEMA = '{"type": "object", "required": ["program", "method", "parameters"]}\n'


@dataclass
class Timed:
    """A command and what its runs took: seconds of the clock and of the processor, and peak resident bytes, of the
    process and its children.

    `at_most`: times the processor's time of the bare import, or seconds of the clock where `seconds` is set; what the
    project promises."""

    name: str
    command: list[str]
    project: str
    at_most: float | None = None
    seconds: bool = False
    module: str = "preflight"
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
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

    def of_family(family: families.Family, path: str) -> Timed:
        name = f"{family.name}, {path}: {'findings' if family.large else 'clean'}"
        return check(name, f"families/{family.name}", path, at_most=FINDINGS if family.large else CLEAN)

    python = [sys.executable, "-m"]
    types = [*python, "mypy", "--no-incremental", "--cache-dir", os.devnull, "--follow-imports", "skip", "train.py"]
    ruff = [*python, "ruff", "check", "--isolated", "--no-cache", "train.py"]
    lint = [*python, "yamllint", "-d", "relaxed"]
    schema = [*python, "check_jsonschema", "--schemafile", "../schema.json", "sweep.yaml"]
    return [
        Timed(BASE, [sys.executable, "-c", "import yaml; from pydantic import BaseModel"], "sweep"),
        check("one W&B sweep and its program: all fits", "fits", "sweep.yaml", at_most=CLEAN),
        check("one W&B sweep and its program: cut down, a fix proved", "sweep", "sweep.yaml", at_most=FINDINGS),
        check("one job script and its program", "slurm", "train.slurm", at_most=CLEAN),
        check("one Hydra application", "hydra", "train.py", at_most=HYDRA),
        *(of_family(family, path) for family in families.FAMILIES for path in ("sweep.yaml", "train.slurm")),
        check("10^6 combinations", "million", "sweep.yaml"),
        check("10^9 combinations", "billion", "sweep.yaml", at_most=1, seconds=True),
        check(f"{FILES:,} mixed files", "mixed", "."),
        *(check(name, f"{kind}{count}", ".", at_most=at_most, seconds=True) for kind, count, name, at_most in TREES),
        kept("the sweep again, its result kept", "sweep", "sweep.yaml", at_most=WARM),
        kept(f"{FILES:,} mixed files again, their result kept", "mixed", ".", at_most=WARM),
        Timed("yamllint: the sweep", [*lint, "sweep.yaml"], "sweep", module="yamllint"),
        Timed("yamllint: the YAML of the mixed files", [*lint, "."], "mixed", module="yamllint"),
        Timed("check-jsonschema: the sweep, a schema of a line", schema, "sweep", module="check_jsonschema"),
        Timed("ruff: the program of the sweep", ruff, "sweep", module="ruff"),
        Timed("mypy: the program of the sweep", types, "sweep", module="mypy"),
    ]


def once(timed: Timed, root: Path, env: dict[str, str]) -> tuple[float, float, int]:
    """Seconds of the clock and of the processor, and peak resident bytes, of one run; a crash ends the benchmark."""
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
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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
        families.write(root / "families")
        (root / "schema.json").write_text(SCHEMA)
        for turn in range(runs + 1):
            for timed in found:
                if timed.missing:
                    continue
                wall, cpu, peak = once(timed, root, env)
                if turn:
                    timed.walls.append(wall)
                    timed.cpus.append(cpu)
                    timed.peaks.append(peak)
    return found


def table(found: list[Timed]) -> str:
    """One row per command."""
    base = min(found[0].cpus)
    lines = [
        "| process | processor, s | of the clock, s (median) | peak, MiB | times the bare import | promised | kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for timed in found:
        if timed.missing:
            lines.append(f"| {timed.name} | not installed | | | | | |")
            continue
        wall, cpu, peak = statistics.median(timed.walls), min(timed.cpus), statistics.median(timed.peaks)
        promised = kept = ""
        if timed.at_most is not None:
            promised = f"{timed.at_most:g} s" if timed.seconds else f"{timed.at_most:g} times"
            kept = "yes" if (wall if timed.seconds else cpu / base) <= timed.at_most else "no"
        lines.append(
            f"| {timed.name} | {cpu:.3f} | {wall:.3f} | {peak / 2**20:.0f} | {cpu / base:.2f} | {promised} | {kept} |"
        )
    return "\n".join(lines)


def page(found: list[Timed], runs: int) -> str:
    """docs/results/speed.md."""
    system = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    )
    return f"""# Speed

Whole processes, Python's start included: runs of each: {runs}, in turns, after one to warm up, on a machine that may
have had other work ({system}). What counts is the time of the processor, the least of the runs. Written by
`python benchmarks/speed/run.py`; the peers come with the extra `bench`.

{table(found)}

The bare import is `python -c "import yaml; from pydantic import BaseModel"`: what any checker of YAML with schemas pays
before it does anything. yamllint, check-jsonschema, ruff and mypy do other work than preflight, and read fewer files:
they are a measure of how long a hook may take, not competitors.

- A sweep or a job script is read together with the program it runs; a Hydra application is composed with hydra-core.
- Ten families, each with a program of its own, a sweep and a job script. In half of them a batch does not fit.
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
