"""How many Jobs a second `preflight batch` judges: `python benchmarks/batch/run.py [--rows N]`. Needs numpy.

Seconds of the processor, on one core: on a machine that has other work those of the clock say nothing. Distinct Jobs of
twenty families with laws that ship: the share that the bound leaves, replays, those that the bound decides in a process
that has read no law yet, and a file of them from end to end with the peak of memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from preflight.engine.score.scorer import Scorer

CAUSAL = (
    "gpt2", "EleutherAI/pythia-160m", "facebook/opt-125m", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B", "google/gemma-2-2b", "mistralai/Mistral-7B-v0.1", "microsoft/phi-2",
    "bigcode/starcoder2-3b", "allenai/OLMo-2-0425-1B",
)  # fmt: skip
CLASSIFIED = (
    "bert-base-uncased", "roberta-base", "microsoft/deberta-v3-base", "distilbert-base-uncased",
    "google/electra-base-discriminator", "FacebookAI/xlm-roberta-base",
)  # fmt: skip
TRANSLATED = ("t5-small", "facebook/bart-base", "google/mt5-small")
TASKS = {"causal-lm": CAUSAL, "sequence-classification": CLASSIFIED, "seq2seq-lm": TRANSLATED}
PART = 20_000
CARDS = ("t4", "RTX 4090", "a100-40gb", "h100")


def jobs(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Distinct Jobs."""
    pick, seen = random.Random(seed), set()
    models = [(name, task) for task, names in TASKS.items() for name in names]
    while len(seen) < count:
        (name, task), card = pick.choice(models), pick.choice(CARDS)
        sizes = pick.randint(1, 256), pick.randint(8, 512)
        if (name, card, sizes) in seen:
            continue
        seen.add((name, card, sizes))
        train = {"batch_size": sizes[0], "seq_len": sizes[1], "precision": "bf16-mixed"}
        train |= {"target_len": 64} if task == "seq2seq-lm" else {}
        yield {"id": len(seen), "model": {"name": name}, "task": task, "train": train, "machine": {"gpu": card}}


class Bound(Scorer):
    """Replays nothing."""

    def _judged(self, given: object) -> Any:
        return {"by": None}


def sorted_out(stream: Iterator[dict[str, Any]], count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Jobs that the bound decides, `count` of them, and those between them that it leaves."""
    judge, decided, left = Bound(), list[dict[str, Any]](), list[dict[str, Any]]()
    while len(decided) < count:
        some = list(islice(stream, 20_000))
        for row, one in zip(some, judge.score(some), strict=True):
            (decided if one["by"] == "bound" else left).append(row)
    return decided[:count], left


def decided(count: int, seed: int = 7) -> list[bytes]:
    """Distinct Jobs that the bound decides, as JSON."""
    return [json.dumps(row).encode() for row in sorted_out(jobs(10**9, seed), count)[0]]


def cold(path: Path) -> None:
    """In a process of its own: the rows of a file in parts of 20,000, with the processor's seconds of each."""
    with path.open("rb") as file:
        rows = [json.loads(line) for line in file]
    gc.freeze()  # a file is read in parts: rows that are not judged yet are not there
    judge, seconds = Scorer(), []
    for start in range(0, len(rows), PART):
        begun = time.process_time()
        judge.score(rows[start : start + PART])
        seconds.append(time.process_time() - begun)
    first, rest = seconds[0], seconds[1:]
    print(f"decided by the bound, the first {PART:,} of a process: {PART / first:,.0f} Jobs/s, laws being read")
    if rest:
        print(f"the next {len(rows) - PART:,}: {(len(rows) - PART) / sum(rest):,.0f} Jobs/s")


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""


def started(*command: str) -> tuple[float, int]:
    """The processor's seconds of a command, and its peak of memory in MiB. A small process starts it: the peak of one
    that this process starts would be this one's own, which holds all rows."""
    run = [sys.executable, "-c", MEASURED, sys.executable, *command]
    seconds, mib = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-2:]
    return float(seconds), int(mib)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="distinct Jobs that the bound decides")
    parser.add_argument("--replays", type=int, default=300)
    parser.add_argument("--cold", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cold is not None:
        cold(options.cold)
        return
    some, left = sorted_out(jobs(10**9), options.rows)
    begun = time.process_time()
    sum(number * number % 7 for number in range(10_000_000))
    print(f"this machine now: ten million steps of a loop take {time.process_time() - begun:.1f} s")
    print(
        f"{len(some) + len(left):,} distinct Jobs: the bound leaves {len(left) / (len(some) + len(left)):.1%} of them"
    )
    begun = time.process_time()
    Scorer().score(left[: options.replays])
    print(f"replayed: {len(left[: options.replays]) / (time.process_time() - begun):,.0f} Jobs/s")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "jobs.jsonl")
        with source.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in some)
        count = len(some)
        del some, left
        seconds, mib = started("-m", "preflight", "batch", str(source), "-o", str(Path(folder, "out.jsonl")), "--quiet")
        rate = f"{count:,} in {seconds:,.1f} s, {count / seconds:,.0f} Jobs/s; {mib:,} MiB"
        print(f"preflight batch, JSONL to JSONL: {rate}")
        subprocess.run([sys.executable, __file__, "--cold", str(source)], check=True)


if __name__ == "__main__":
    main()
