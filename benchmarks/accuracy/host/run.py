"""Measures what real data loaders and checkpoints take on the host; `table.py` sets the estimates beside it.

    python benchmarks/accuracy/host/run.py [--quick] [--only WORD]... [--draw NAME] [--python COMMAND] [--output FILE]

Points that name a glibc are measured where it is the running one: `--python` is the command that starts measured
processes, for instance `ld-linux-x86-64.so.2 --library-path FOLDER python` with the libc6 of another Debian.

Needs torch and, for their points, transformers, datasets, pillow and lightning (`pip install '.[measure]'`); a point
whose packages are missing is named and left out. Points that are in the output already are measured again and replaced.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from benchmarks.accuracy.host import draw, meter, plan  # noqa: E402

CEILING = 6 * 2**30
"""Bytes at which a run is ended: the machine is not ours alone."""
LIMIT = 600.0
"""Seconds after which a run is ended."""
PACKAGES = ("torch", "numpy", "transformers", "tokenizers", "safetensors", "datasets", "pyarrow", "pillow", "lightning")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few points, about a minute")
    parser.add_argument("--only", action="append", default=[], help="points whose group or id contains this")
    parser.add_argument("--draw", choices=list(draw.DRAWS), help="points drawn at random, into drawn.jsonl")
    parser.add_argument("--output", type=Path, default=HERE / "points.jsonl")
    parser.add_argument("--python", default=sys.executable, help="the command that runs Python in measured processes")
    parser.add_argument("--new", action="store_true", help="only points that the output lacks")
    parser.add_argument("--ceiling-gib", type=float, default=CEILING / 2**30)
    args = parser.parse_args()
    if args.quick and args.output == HERE / "points.jsonl":
        args.output = Path(tempfile.gettempdir()) / "preflight-host-quick.jsonl"
    if args.draw and args.output == HERE / "points.jsonl":
        args.output = HERE / "drawn.jsonl"
    os.nice(10)
    rows = _rows(args.output)
    planned = draw.points(args.draw) if args.draw else plan.points(args.quick)
    every = [point for name in draw.DRAWS for point in draw.points(name)] if args.draw else plan.points()
    order = {point["id"]: number for number, point in enumerate(every)}
    python, libc = shlex.split(args.python), machine(args.python)["libc"]
    for point in planned:
        if args.only and not any(word in point["group"] or word in point["id"] for word in args.only):
            continue
        if args.new and point["id"] in rows:
            continue
        if "glibc" in point and libc != f"glibc {point['glibc']}":
            print(f"left out, it is for glibc {point['glibc']}: {point['id']}")
            continue
        missing = _missing(point)
        if missing:
            print(f"left out, {', '.join(missing)} not installed: {point['id']}")
            continue
        rows[point["id"]] = one(point, int(args.ceiling_gib * 2**30), python)
        _write(args.output, rows, order)
    print(f"{len(rows)} points in {args.output}")
    return 0


def one(point: plan.Point, ceiling: int, python: Sequence[str] = (sys.executable,)) -> dict[str, Any]:
    """A point with what it took; `python` is the command that runs the measured processes."""
    settings = {key: value for key, value in point.items() if key != "quick"}
    with tempfile.TemporaryDirectory(prefix="preflight-host-") as folder:
        environment = {**os.environ, "HOST_POINT": json.dumps(settings), "HOST_FOLDER": folder, "HF_HUB_OFFLINE": "1",
                       "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore",
                       "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}  # fmt: skip
        prepare = f"import sys; sys.path.insert(0, {str(HERE)!r}); import run; run.make_files()"
        if point["what"] == "load" or point.get("kind") in ("jpeg", "arrow", "arrow-in-memory", "tokenised"):
            subprocess.run([sys.executable, "-c", prepare], env=environment, check=True, stdout=subprocess.DEVNULL)
        command = [*python, str(HERE / "child.py")]
        found = meter.measure([command] * point.get("ranks", 1), environment, ceiling, LIMIT)
    mib = found.bytes / 2**20
    print(f"{mib:9.1f} MiB  {found.seconds:5.1f} s  {point['id']}{'  ENDED' if found.killed else ''}", flush=True)
    measured = {key: value for key, value in vars(found).items() if key not in ("told", "seconds")}
    return {**settings, "measured": {**measured, "told": found.told}, "machine": machine(shlex.join(python))}


def make_files() -> None:
    """The files that the point reads; called in a process of its own, which is charged for their pages."""
    point, folder = json.loads(os.environ["HOST_POINT"]), Path(os.environ["HOST_FOLDER"])
    if point["what"] == "load":
        import weights

        weights.make_files(folder, point)
    else:
        import kinds

        kinds.make_files(folder, point)


@cache
def machine(python: str = sys.executable) -> dict[str, object]:
    """What figures may depend on, where `python` is the command of measured processes."""
    ask = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
    libc = subprocess.run([*shlex.split(python), "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    huge = pages.read_text().partition("[")[2].partition("]")[0] if pages.exists() else None
    return {"python": platform.python_version(), "kernel": platform.release().split("-")[0],
            "libc": libc, "huge_pages": huge, "cpus": os.cpu_count(), **versions}  # fmt: skip


def _missing(point: plan.Point) -> list[str]:
    needed = {name.partition(":")[0].partition(".")[0] for name in point.get("imports", ["torch"])}
    needed |= {"jpeg": {"PIL"}, "arrow": {"datasets"}, "tokenised": {"tokenizers"}}.get(point.get("kind", ""), set())
    return sorted(name for name in needed if importlib.util.find_spec(name) is None)


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def _write(path: Path, rows: dict[str, dict[str, Any]], order: dict[str, int]) -> None:
    kept = sorted((row for row in rows.values() if row["id"] in order), key=lambda row: order[row["id"]])
    text = "".join(json.dumps(row) + "\n" for row in kept)
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
