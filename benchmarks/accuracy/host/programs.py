"""Small programs as people write them (`programs.txt`, `later.txt`, `varied.txt`, `domains.txt`, `again.txt`):
measured, and predicted from their text and files alone.

    python benchmarks/accuracy/host/programs.py measure [--python COMMAND] [--only WORD]... [--new]
    python benchmarks/accuracy/host/programs.py predict [--part worked|kept|later|varied|domains|again] [--only WORD]...

A program runs whole, by itself, in a folder with the files that its `files:` lines name; its loaders' queues are given
time to fill, as in slow training steps (`patience/sitecustomize.py`). Half of the programs of the first file were drawn
to work on, before any was predicted; the other half (`kept`) was only reported. Those of the second file (`later`) were
written and measured when the law had been finished on the first, those of the third (`varied`) after both, and those of
the fourth (`domains`) after all of these, and those of the fifth (`again`) last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from benchmarks.accuracy.host import meter, run  # noqa: E402

TEXT, LATER, VARIED, DOMAINS, AGAIN = (
    HERE / f"{name}.txt" for name in ("programs", "later", "varied", "domains", "again")
)
MEASURED = PREDICTED = HERE / "programs.jsonl"
PARTS = {"worked": "worked on", "kept": "kept aside", "later": "written later", "varied": "written after these",
         "domains": "written after the third", "again": "written last"}  # fmt: skip
CEILING, LIMIT = 6 * 2**30, 400.0


@dataclass(frozen=True)
class Program:
    """A program, the lines of the files beside it, and the command of its job script where it has one."""

    name: str
    text: str
    files: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return next((line.split()[2:] for line in self.files if line.startswith("job ")), ["python", "train.py"])


def programs() -> list[Program]:
    """Every program of all files."""
    return [program for path in (TEXT, LATER, VARIED, DOMAINS, AGAIN) for program in _programs(path)]


def _programs(path: Path) -> list[Program]:
    found = []
    for part in path.read_text(encoding="utf-8").split("==== ")[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.splitlines(keepends=True)
        files = [line[7:].strip() for line in lines if line.startswith("files: ")]
        found.append(Program(name, "".join(line for line in lines if not line.startswith("files: ")), tuple(files)))
    return found


def kept() -> set[str]:
    """Names of the half of the first file that nothing was learnt from."""
    names = sorted(program.name for program in _programs(TEXT))
    return set(random.Random("preflight host programs").sample(names, len(names) // 2))


def part_of() -> dict[str, str]:
    """The part of each program, by its name."""
    aside = kept()
    found = {program.name: "kept" if program.name in aside else "worked" for program in _programs(TEXT)}
    written = {"later": LATER, "varied": VARIED, "domains": DOMAINS, "again": AGAIN}
    return found | {p.name: part for part, path in written.items() for p in _programs(path)}


def lay_out(program: Program, folder: Path, python: list[str]) -> None:
    """Writes the program and its files; a process of its own makes them, which is charged for their pages."""
    (folder / "train.py").write_text(program.text, encoding="utf-8")
    if program.files:
        command = [*python, str(HERE / "program_files.py"), str(folder), *program.files]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(program: Program, python: list[str]) -> dict[str, Any]:
    """A program with what it took."""
    with tempfile.TemporaryDirectory(prefix="preflight-host-") as name:
        folder = Path(name)
        lay_out(program, folder, python)
        environment = {
            **os.environ, "PYTHONPATH": str(HERE / "patience"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore", "NO_ALBUMENTATIONS_UPDATE": "1", "HF_HOME": str(folder / "home"),
            "TOKENIZERS_PARALLELISM": "true",
        }  # fmt: skip
        words = program.command
        start = [*python, "-m", "torch.distributed.run"] if words[0] == "torchrun" else python
        found = meter.measure([["env", "-C", name, *start, *words[1:]]], environment, CEILING, LIMIT)
    print(
        f"{found.bytes / 2**20:9.1f} MiB  {found.seconds:5.1f} s  {program.name}{' ENDED' * found.killed}", flush=True
    )
    told = {key: value for key, value in vars(found).items() if key not in ("told", "seconds", "phases")}
    return {"id": program.name, "measured": told, "machine": run.machine(shlex.join(python))}


def rows() -> dict[str, dict[str, Any]]:
    """What was measured, by name."""
    if not MEASURED.exists():
        return {}
    return {row["id"]: row for row in map(json.loads, MEASURED.read_text(encoding="utf-8").splitlines())}


def measure_all(chosen: list[Program], python: list[str], new: bool) -> None:
    os.nice(10)
    found = rows()
    for program in chosen:
        if new and program.name in found:
            continue
        try:
            found[program.name] = measure(program, python)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out, {error}: {program.name}", flush=True)
            continue
        order = [found[p.name] for p in programs() if p.name in found]
        MEASURED.write_text("".join(json.dumps(row) + "\n" for row in order), encoding="utf-8")


@dataclass(frozen=True)
class Answer:
    """What preflight says of a program: bytes (None: not known, and `why`), and whether it is `inside` the interval."""

    name: str
    measured: int
    low: int | None
    expected: int | None
    high: int | None
    why: str = ""

    @property
    def error(self) -> float:
        return (self.expected or 0) / self.measured - 1

    @property
    def inside(self) -> bool:
        return (self.low or 0) <= self.measured <= (self.high or 0)


def predict(program: Program, python: list[str], measured: int) -> Answer:
    """What `preflight check` says of the program's node, told nothing."""
    with tempfile.TemporaryDirectory(prefix="preflight-host-") as name:
        lay_out(program, Path(name), python)
        target = "job.sh" if program.command[0] != "python" else "train.py"
        command = [sys.executable, "-m", "preflight", "check", "--no-cache", "--output-format", "json", target]
        found = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False, timeout=LIMIT)
    studies = json.loads(found.stdout)["studies"]
    if not studies:
        return Answer(program.name, measured, None, None, None, "nothing recognised")
    host = studies[0]["host"]
    if host is None:
        why = next((c["words"] for c in studies[0].get("unknown_causes", []) if c.get("side") == "host"), "")
        return Answer(program.name, measured, None, None, None, why or ", ".join(studies[0]["unknown"]))
    node = host["per_node"]
    return Answer(program.name, measured, node["low"], node["expected"], node["high"])


def summary(found: list[Answer]) -> str:
    """A row of the table: answered, median error, inside; `refused`: the low end is above what was measured."""
    said = [one for one in found if one.expected is not None]
    errors = [abs(one.error) for one in said]
    median = f"{statistics.median(errors):.1%} | {max(errors):.1%}" if errors else " | "
    refused = sum((one.low or 0) > one.measured for one in said)
    return (
        f"{len(found)} | {len(said)} ({len(said) / max(1, len(found)):.0%}) | {median} "
        f"| {sum(one.inside for one in said)} ({sum(one.inside for one in said) / max(1, len(said)):.0%}) | {refused} |"
    )


def predict_all(chosen: list[Program], python: list[str]) -> list[Answer]:
    known = rows()
    found = []
    for program in chosen:
        if program.name not in known or known[program.name]["measured"]["killed"]:
            continue
        one = predict(program, python, known[program.name]["measured"]["bytes"])
        found.append(one)
        said = f"{(one.expected or 0) / 2**20:9.1f} {one.error:+7.1%} {'' if one.inside else 'outside'}"
        print(f"{one.measured / 2**20:9.1f} {said if one.expected else one.why[:90]}  {program.name}", flush=True)
    print(f"| {summary(found)}")
    said = {one.name: one for one in found}
    for name, row in known.items():
        if (one := said.get(name)) is not None:
            told = None if one.expected is None else [one.low, one.expected, one.high]
            if "predicted" not in row:
                row["first"] = told
            row["predicted"] = told
    order = [known[program.name] for program in programs() if program.name in known]
    PREDICTED.write_text("".join(json.dumps(row) + "\n" for row in order), encoding="utf-8")
    return found


def page() -> list[str]:
    """Every part, as the page of results shows them: by the predictions that are kept with the measurements."""
    text = ["| programs | number | answered | median error | worst | inside | low end above what was measured |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, shown in PARTS.items():
        for key, when in (("first", ", as first predicted"), ("predicted", "")):
            some = [row for row in rows().values() if key in row and part_of()[row["id"]] == name]
            text += [f"| {shown}{when} | {summary(_answers(some, key))}"] if some else []
    return [*text, f"| all | {summary(_answers([row for row in rows().values() if 'predicted' in row], 'predicted'))}"]


def _answers(some: list[dict[str, Any]], key: str) -> list[Answer]:
    return [Answer(row["id"], row["measured"]["bytes"], *(row[key] or (None, None, None))) for row in some]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "predict"))
    parser.add_argument("--python", default=sys.executable, help="the command that runs measured programs")
    parser.add_argument("--only", action="append", default=[], help="programs whose name contains this")
    parser.add_argument("--new", action="store_true", help="only programs that were not measured")
    parser.add_argument("--part", choices=tuple(PARTS), help="those worked on, kept aside, or written later")
    args = parser.parse_args()
    chosen = [p for p in programs() if not args.only or any(word in p.name for word in args.only)]
    if args.part:
        chosen = [program for program in chosen if part_of()[program.name] == args.part]
    if args.what == "measure":
        measure_all(chosen, shlex.split(args.python), args.new)
    else:
        predict_all(chosen, shlex.split(args.python))


if __name__ == "__main__":
    main()
