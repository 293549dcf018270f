"""`python -m benchmarks.accuracy.orders`: one job, its lengths in many orders: what the allocator ends with.

Runs whose batches have lengths of their own differ by the order in which the lengths come. This replays jobs of
ms-swift's benchmark, each with several draws of a hundred lengths, log-normal with the mean, the deviation and the
bounds that its documentation states of cls-fudan-news-zh; samples beyond the job's limit are left out.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from benchmarks.accuracy.report import percent, table
from benchmarks.accuracy.score import quantile
from benchmarks.accuracy.tool import job_of
from benchmarks.accuracy.truth import GIB, Inexpressible, Run
from preflight.machines.gpus import find_gpu
from preflight.memory.device.estimate import reserved_after
from preflight.memory.device.prepare import prepare
from preflight.vocabulary.values import Unknown

MEAN, SHORTEST, LONGEST = 3234.4, 91, 19548
DEVIATION = 2547.5
"""Tokens (docs/source_en/LLM/Supported-models-datasets.md at 4692215)."""
DRAWN = 100
NEAREST = """Nine in ten of these replays are within {} of the middle one of their job. An estimate that is not told
the lengths in their order cannot be nearer to them.
"""
HEADS = ("run", "reserved, GiB", "replayed with the lengths in eight orders, GiB")
RUNS = ("swift-yi-6b-chat-lora-s8192", "swift-openbuddy-zephyr-7b-chat-lora-s8192", "swift-qwen-7b-chat-lora-s8192",
        "swift-yi-6b-chat-lora-s2048", "swift-qwen-7b-chat-lora-s2048")  # fmt: skip


def lengths(limit: int, seed: int) -> list[int]:
    """A run's lengths in their order, in tokens."""
    chance, width = random.Random(seed), math.sqrt(math.log(1 + (DEVIATION / MEAN) ** 2))
    found: list[int] = []
    while len(found) < DRAWN:
        length = int(chance.lognormvariate(math.log(MEAN) - width**2 / 2, width))
        if SHORTEST <= length <= min(limit, LONGEST):
            found.append(length)
    return found


def reserved(run: Run, draws: int) -> list[int]:
    """Bytes reserved after each of several draws, the least first; empty where the job is not known."""
    if isinstance(run.fields, Inexpressible):
        return []
    job = job_of(run.fields)
    gpu = find_gpu(job.machine.gpu or "")
    ready = prepare(job, gpu)
    if isinstance(ready, Unknown):
        return []
    found = []
    for seed in range(draws):
        drawn = lengths(ready.dims["s"], seed)
        longest = replace(ready, dims={**ready.dims, "s": max(drawn)})
        found.append(reserved_after(longest, [{"s": length} for length in drawn]))
    return sorted(found)


def rows(runs: Sequence[Run], draws: int = 8) -> list[tuple[str, str, str]]:
    """(run, GiB measured, GiB replayed), for those of RUNS that are there."""
    known = {run.id: run for run in runs}
    return [
        (
            name,
            f"{known[name].measured['reserved'] / GIB:.1f}",
            ", ".join(f"{size / GIB:.0f}" for size in reserved(known[name], draws)),
        )
        for name in RUNS
        if name in known
    ]


def nearest(found: Sequence[tuple[str, str, str]]) -> float:
    """How far nine in ten replays are at most from the middle one of their job: no estimate that is not told the
    lengths in their order can be nearer to them."""
    replays = [[int(size) for size in replayed.split(", ")] for _, _, replayed in found if replayed]
    return quantile([abs(size / median(sizes) - 1) for sizes in replays for size in sizes], 0.9)


def shown(found: Sequence[tuple[str, str, str]]) -> list[str]:
    """The table, and what follows from it."""
    return [*table(HEADS, found), NEAREST.format(percent(nearest(found)))]


def main(argv: Sequence[str] | None = None) -> int:
    from benchmarks.accuracy.__main__ import arguments, load

    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.orders", description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="folder of the measured runs")
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args(argv)
    where = ["--data", options.data] if options.data else []
    print("\n".join(shown(rows(load(arguments(["--only", "ms-swift", *where])), options.draws))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
