"""`python -m benchmarks.accuracy`: every tool on every measured run, and docs/results/accuracy.md."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy import document, heldout, orders
from benchmarks.accuracy.fits import judge
from benchmarks.accuracy.incidents import incident_of, reports
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.peers import PEERS
from benchmarks.accuracy.sources import MODULES, run_of
from benchmarks.accuracy.sources import timm as timm_source
from benchmarks.accuracy.tool import Preflight
from benchmarks.accuracy.truth import Run, rows, timm_rows

ROOT = Path(__file__).parents[2]
SEED = 20260918
"""Which rows of the table of timm runs a sample takes."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    default = os.environ.get("PREFLIGHT_TRUTH", str(ROOT.parent / "shared" / "data"))
    parser.add_argument(
        "--data", type=Path, default=Path(default), help="folder of the measured runs (PREFLIGHT_TRUTH)"
    )
    parser.add_argument(
        "--only", metavar="SOURCE", nargs="*", help=", ".join([m.NAME for m in MODULES] + [heldout.NAME, "incidents"])
    )
    parser.add_argument("--peers", metavar="NAME", nargs="*", help=f"{', '.join(PEERS)}; none given: no tool but ours")
    parser.add_argument("--timm-sample", type=int, default=40, metavar="N", help="rows of the table of timm runs")
    parser.add_argument("--all-timm", action="store_true", help="all 5,085 of them")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--shipped", action="store_true", help="shipped laws only: models without one are refused")
    parser.add_argument("--write", action="store_true", help="write docs/results/accuracy.md also after a partial run")
    return parser.parse_args(argv)


def load(options: argparse.Namespace) -> list[Run]:
    """The runs that were asked for."""
    found = [run_of(row) for row in rows(options.data / "gpu_truth_dev.jsonl")]
    table = options.data / "timm_train_memory_a100.csv"
    if table.is_file():
        known = {run.id.removeprefix("timm-gpumemnet-").removeprefix("timm-") for run in found}
        lines = list(timm_rows(table))
        found = timm_source.without_the_dead(found, lines)
        more = [run for run in map(timm_source.run_of, lines) if run.id.removeprefix("timm-") not in known]
        more = [run for run in timm_source.without_the_dead(more, lines) if run.measured]
        if not options.all_timm:
            more = random.Random(SEED).sample(more, min(options.timm_sample, len(more)))
        found += more
    if heldout.NAME in (options.only or ()):
        found += heldout.runs()
    if options.only:
        found = [run for run in found if run.source in options.only]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if not (options.data / "gpu_truth_dev.jsonl").is_file():
        print(f"error: {options.data} has no gpu_truth_dev.jsonl; name the folder with --data", file=sys.stderr)
        return 2
    start = time.perf_counter()
    runs = load(options)
    names = list(PEERS) if options.peers is None else options.peers
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        print(f"error: --peers {' '.join(unknown)}: there is no such tool", file=sys.stderr)
        return 2
    peers = [PEERS[name]() for name in names]
    ours = Preflight(tracing=not options.shipped)
    found = measure(runs, peers, ours, options.jobs)
    incidents = options.data / "oom_incidents_dev.jsonl"
    wanted = incidents.is_file() and (not options.only or "incidents" in options.only)
    judged = judge(map(incident_of, reports(incidents)), ours) if wanted else []
    text = document.text(runs, peers, found, judged, orders.rows(runs))
    partial = bool(options.only) or options.shipped or options.peers is not None
    if not partial or options.write:
        target = ROOT / "docs" / "results" / "accuracy.md"
        part = target.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    print(text)
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found.seconds.items())
    print(f"{time.perf_counter() - start:.0f} s ({took})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
