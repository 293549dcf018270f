"""How long laws and estimates of device memory take: `python benchmarks/speed/laws.py`. Needs the extra `trace`.

Seconds of the processor and of the clock: on a machine that has other work only the former say something. What the
project promises stands beside them. `--runs`: of what takes seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FAMILY = """
from preflight.memory.device.fit.batch_one import make_law
from preflight.memory.device.families import FAMILIES
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.fit.subprocess import request_traces
family = FAMILIES["llama"]
setup = Setup("fp32", "bf16", mask=True)
for kind in {kinds!r}:
    make_law(family, "causal-lm", kind, setup, family.usual, lambda traces: request_traces(traces)[0])
"""
"""A process that makes laws of a family from nothing: Python, torch and transformers are imported in it."""
OWN = {
    "task": "causal-lm",
    "model.architecture": "granite",
    "train.precision": "bf16",
    "train.gradient_checkpointing": False,
    "train.optimizer": "adamw",
    "train.peft.method": "none",
    "train.sequences": "exact",
}
"""A type of which no law ships, as large as Llama 3's models of 1 and 8 billion parameters."""
SIZES = {
    "1 B": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072},
    "8 B": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072},
    "8 B, 80 layers": {"hidden_size": 4096, "num_hidden_layers": 80, "num_attention_heads": 32,
                       "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
                       "max_position_embeddings": 131072},
}  # fmt: skip
KNOWN = {"model.name": "meta-llama/Llama-3.1-8B", "train.precision": "bf16", "train.gradient_checkpointing": True,
         "train.optimizer": "adamw", "train.seq_len": 4096}  # fmt: skip
JOBS = 100_000


@dataclass(frozen=True)
class Row:
    """What was timed: seconds of the clock and of the processor, each the median of some runs, and what is promised."""

    name: str
    wall: float
    cpu: float
    promised: float

    def text(self) -> str:
        kept = "yes" if self.cpu <= self.promised else "no"
        wall, cpu, promised = (f"{x:.3g}" for x in (self.wall, self.cpu, self.promised))
        return f"| {self.name} | {wall} | {cpu} | {promised} | {kept} |"


def process_seconds() -> float:
    """Seconds of the processor of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(name: str, promised: float, run: Callable[[], object], runs: int, per: int = 1,
          cpu: Callable[[], float] = process_seconds) -> Row:  # fmt: skip
    """The medians of some runs, divided by `per`."""
    walls, cpus = [], []
    for _ in range(runs):
        start, spent = time.perf_counter(), cpu()
        run()
        walls.append((time.perf_counter() - start) / per)
        cpus.append((cpu() - spent) / per)
    return Row(name, statistics.median(walls), statistics.median(cpus), promised)


def from_nothing(kinds: tuple[str, ...]) -> Callable[[], object]:
    """Makes laws in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", FAMILY.format(kinds=kinds)]
    return lambda: subprocess.run(command, check=True, capture_output=True)


def families(runs: int) -> list[Row]:
    return [
        timed("a family's training law, from nothing, s", 10, from_nothing(("train",)), runs),
        timed("its laws of all phases, from nothing, s", 15, from_nothing(("train", "eval", "generate")), runs),
    ]


def own_models() -> list[Row]:
    """Models that no law ships for, once the tracer has imported its libraries."""
    from preflight.memory.device import laws_of_job, traced_laws
    from preflight.memory.device.fit import subprocess as tracing
    from preflight.memory.device.law.law import Laws
    from preflight.memory.device.law.workload import Resolved
    from preflight.memory.device.resolve import resolve
    from preflight.vocabulary.job import build

    os.environ["PREFLIGHT_NO_CACHE"] = "1"
    found = []
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "intermediate_size": 96, "vocab_size": 100}  # fmt: skip
    cases = [("", small, 1, 64), *((f"{name}, batch {batch}, length {length}", config, batch, length)
             for name, config in SIZES.items() for batch, length in ((1, 512), (64, 32768)))]  # fmt: skip
    for name, config, batch, length in cases:
        traced_laws.TRACED.clear()
        job = build({**OWN, "model.config": config, "train.batch_size": batch, "train.seq_len": length})
        asked = resolve(job)
        assert isinstance(asked, Resolved), asked
        tracers = [each.process.pid for each in tracing._PROCESSES.values()]

        def trace(asked: Resolved = asked) -> None:
            law = laws_of_job.laws_for(asked, "train")
            assert isinstance(law, Laws), law

        def spent(tracers: Sequence[int] = tracers) -> float:
            return process_seconds() + sum(map(_spent, tracers))

        row = timed(f"a model of one's own, {name}, s", 4, trace, 1, cpu=spent)
        found += [row] if name else []
    return found


def _spent(pid: int) -> float:
    """Seconds of the processor of a process that is running (Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def estimates(runs: int) -> list[Row]:
    """The requested tier of many jobs, and a replay."""
    from preflight.machines.gpus import find_gpu
    from preflight.memory.device.estimate import estimate
    from preflight.memory.device.law.bulk_peaks import peaks
    from preflight.memory.device.prepare import prepare
    from preflight.memory.device.step.prepared import PreparedJob
    from preflight.memory.device.step.run import replayed
    from preflight.vocabulary.job import build

    gpu = find_gpu("H100-80GB") or find_gpu("A100-80GB")
    job = build({**KNOWN, "train.batch_size": 4})
    ready = prepare(job, gpu)
    assert isinstance(ready, PreparedJob), ready
    columns: dict[str, Sequence[int] | int] = {
        **ready.dims,
        "b": [1 + n % 64 for n in range(JOBS)],
        "s": [128 + n // 64 for n in range(JOBS)],
    }
    law = ready.laws.reading(False, False)
    peaks(law, columns)
    estimate(job, gpu)
    return [
        timed(f"requested tier of {JOBS:,} jobs, us a job", 10, lambda: peaks(law, columns), runs, JOBS),
        timed("replay of a step, ms", 50, lambda: replayed(ready, (), None), 5 * runs),
        timed("estimate of a named job, ms", 50, lambda: estimate(job, gpu), 5 * runs),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print("| what | of the clock | of the processor | promised | kept |")
    print("|---|---|---|---|---|")
    scale = {"us": 1e6, "ms": 1e3}
    measured: tuple[Callable[[], list[Row]], ...] = (
        lambda: estimates(options.runs), own_models, lambda: families(options.runs))  # fmt: skip
    for rows in measured:
        for row in rows():
            times = scale.get(row.name.rpartition(", ")[2].split()[0], 1)
            print(Row(row.name, row.wall * times, row.cpu * times, row.promised).text(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
