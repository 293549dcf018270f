"""The same function under other engines: `python benchmarks/batch/engines.py ray|spark [--rows N]`.

Ray Data needs `pip install "ray[data]"`; Spark needs pyspark and Java. Two workers. The rows are Jobs that the bound
decides, taken again and again under new ids, and they are read from Parquet as they are needed. It says rows a second,
the memory of each worker at its first and at its last batch, and how many laws each worker read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from run import decided

from preflight.api import score
from preflight.engine.score.columns import COLUMNS

WORKERS = 2
PER_FILE = 100_000
DISTINCT = 200_000


def resident() -> int:
    """MiB of this process alone: an engine's workers have a store of objects in shared memory."""
    with open("/proc/self/statm") as file:
        _, whole, shared, *_ = map(int, file.read().split())
    return (whole - shared) * os.sysconf("SC_PAGE_SIZE") >> 20


def laws() -> int:
    """Laws that this process read."""
    from preflight.memory.device.law.store import load

    return load.cache_info().misses


def noted(folder: str, rows: int, begun: float) -> None:
    """A line for a batch: what this worker has."""
    line = {"rows": rows, "mib": resident(), "laws": laws(), "cpu": time.process_time() - begun}
    with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def written(folder: Path, rows: int) -> None:
    """Parquet files of Jobs."""
    import pyarrow
    import pyarrow.parquet as parquet

    some = [json.loads(body) for body in decided(min(rows, DISTINCT))]
    flat = {  # Spark has no dots in names of columns
        "model__name": [one["model"]["name"] for one in some],
        "task": [one["task"] for one in some],
        "train__target_len": [one["train"].get("target_len") for one in some],
        **{f"train__{name}": [one["train"][name] for one in some] for name in ("batch_size", "seq_len", "precision")},
        "machine__gpu": [one["machine"]["gpu"] for one in some],
    }
    whole = pyarrow.table(flat)
    for number, start in enumerate(range(0, rows, PER_FILE)):
        count = min(PER_FILE, rows - start)
        at = [(start + row) % len(some) for row in range(count)]
        table = whole.take(at).append_column("id", pyarrow.array(range(start, start + count)))
        parquet.write_table(table, folder / f"jobs-{number:05d}.parquet")


def of_ray(source: Path, notes: str) -> Counter[str]:
    import ray

    def judged(table: Any) -> Any:
        begun = time.process_time()
        found = score(table)
        noted(notes, found.num_rows, begun)
        return found.select(["verdict", "by"])

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, object_store_memory=2 << 30)
    files = len(list(source.iterdir()))
    read = ray.data.read_parquet(str(source), override_num_blocks=files, num_cpus=0.1)
    data = read.map_batches(judged, batch_format="pyarrow", batch_size=20_000, num_cpus=0.9)
    counts: Counter[str] = Counter()
    for batch in data.iter_batches(batch_format="pyarrow", batch_size=None):
        counts.update(batch["verdict"].to_pylist())
    return counts


def of_spark(source: Path, notes: str) -> Counter[str]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    def judged(frames: Any) -> Any:
        for frame in frames:
            begun = time.process_time()
            found = score(frame)
            noted(notes, len(found), begun)
            yield found

    session = SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000").getOrCreate()
    types = {str: "string", int: "bigint"}
    schema = ", ".join(f"`{name}` {types[kind]}" for name, (kind, _) in COLUMNS.items())
    found = session.read.parquet(str(source)).mapInPandas(judged, schema=schema).groupBy("verdict").count().collect()
    session.stop()
    return Counter({row["verdict"]: row["count"] for row in found})


ENGINES = {"ray": of_ray, "spark": of_spark}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, notes = Path(folder, "jobs"), Path(folder, "notes")
        source.mkdir()
        notes.mkdir()
        written(source, options.rows)
        start = time.perf_counter()
        counts = ENGINES[options.engine](source, str(notes))
        seconds = time.perf_counter() - start
        print(f"{sum(counts.values()):,} rows in {seconds:,.0f} s of the clock: {dict(counts)}")
        for path in sorted(notes.iterdir()):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            rows, busy = sum(one["rows"] for one in lines), sum(one["cpu"] for one in lines)
            sizes = [one["mib"] for one in lines]
            print(
                f"worker {path.stem}: {rows:,} rows in {len(lines)} batches, {rows / busy:,.0f} rows per second of the "
                f"processor; {sizes[0]} MiB after the first, {sizes[len(sizes) // 2]} half-way, {sizes[-1]} "
                f"after the last; "
                f"{lines[-1]['laws']} laws read"
            )


if __name__ == "__main__":
    main()
