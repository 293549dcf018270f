"""preflight beside the records of measure.py: `python -m benchmarks.accuracy.gpu.compare FILE`.

A line per record and tier, the phases below it, and for records that deviate by more than 2 % the allocations that
differ: what the history had alive at its peak and the replay had not, and the other way round, by size.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.gpu.measure import CONTEXT, read
from benchmarks.accuracy.gpu.replayed import Alive, alive
from preflight.machines.gpus import find_gpu
from preflight.memory import device
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.values import Unknown

MIB = 2**20
EXPLAINED = 0.02
"""Deviations above this are explained."""
SHOWN = 12
"""Sizes that an explanation shows."""
TIERS = ("requested", "allocated", "reserved", "process")
ITERATION = " 2"
"""Phases of the second iteration are the ones that estimates are of."""


@dataclass(frozen=True)
class Line:
    """One figure beside its measurement, in bytes."""

    id: str
    what: str
    measured: int
    expected: int
    inside: bool | None = None

    @property
    def error(self) -> float:
        return self.expected / self.measured - 1 if self.measured else 0.0

    def text(self) -> str:
        within = "" if self.inside is None else "  inside" if self.inside else "  OUTSIDE"
        sizes = f"{self.measured / MIB:12,.1f} {self.expected / MIB:12,.1f}"
        return f"  {self.what:22}{sizes} {self.error:+8.1%}{within}"


def measured(record: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each tier's peak; the process where the device said what it had in use."""
    rows = record["phases"]
    found = {tier: max(row[f"{tier}_peak"] for row in rows) for tier in TIERS[:3]}
    before = record.get("used_before")
    if before is not None and all(row["used"] is not None for row in rows):
        found["process"] = max(row["used"] - before - row["reserved"] + row["reserved_peak"] for row in rows)
    return {tier: size for tier, size in found.items() if size}


def tiers(record: Mapping[str, Any], found: DeviceEstimate) -> list[Line]:
    """One line per tier that was measured."""
    lines = []
    for tier, size in measured(record).items():
        interval = getattr(found, tier)
        lines.append(Line(record["id"], tier, size, interval.expected, interval.low <= size <= interval.high))
    return lines


def phases(record: Mapping[str, Any], found: DeviceEstimate) -> list[Line]:
    """Allocated peaks of the second iteration's phases, of loading and of validation."""
    above = found.process.expected - found.allocated.expected  # what `phases` holds beside allocated bytes
    lines = []
    for row in record["phases"]:
        name = row["phase"].removesuffix(ITERATION)
        if name in found.phases:
            lines.append(Line(record["id"], f"allocated, {name}", row["allocated_peak"], found.phases[name] - above))
    return lines


def differences(record: Mapping[str, Any], mine: Alive) -> list[str]:
    """The sizes of which more are alive on one side, with where they were made."""
    theirs: Counter[int] = Counter()
    places: dict[int, Counter[str]] = {}
    for size, count, label, place in record["peak"]["blocks"]:
        theirs[size] += count
        places.setdefault(size, Counter())[f"{label} {place}".strip()] += count
    ours: Counter[int] = Counter()
    for (size, where), count in mine.blocks.items():
        ours[size] += count
        places.setdefault(size, Counter())[f"replay: {where}"] += count
    off = {size: theirs[size] - ours[size] for size in {*theirs, *ours} if theirs[size] != ours[size]}
    text = [f"    peak: measured in {record['peak']['label'] or '?'}, replayed in {mine.phase}"]
    ordered = sorted(off.items(), key=lambda item: -abs(item[0] * item[1]))
    for size, more in ordered[:SHOWN]:
        side = "only measured" if more > 0 else "only replayed"
        where = "; ".join(f"{name} x{count}" for name, count in places[size].most_common(3))
        text.append(f"    {side:14}{abs(more):5} x {size:13,} B = {abs(more) * size / MIB:9,.1f} MiB  {where}")
    rest = sum(size * more for size, more in ordered[SHOWN:])
    if ordered[SHOWN:]:
        text.append(f"    and {len(ordered) - SHOWN} more sizes, {rest / MIB:+,.1f} MiB together")
    return text


def one(record: Mapping[str, Any]) -> Iterator[str]:
    """All that is to say about a record."""
    gpu = find_gpu(str(record.get("facts", {}).get("gpu", "")))
    job = build(dict(record["job"])) if record.get("job") else None
    if job is None or record["outcome"] in ("error", "timeout"):
        yield f"{record['id']}: {record['outcome']} {record.get('message', '')}".rstrip()
        return
    found = device.estimate(job, gpu)
    if isinstance(found, Unknown):
        yield f"{record['id']}: {record['outcome']}; preflight: {found.reason}"
        return
    if record["outcome"] == "oom":
        capacity = int(record.get("facts", {}).get("total") or 0)
        verdict = found.process.verdict(capacity or None)
        yield f"{record['id']}: out of memory in {record['died_in']}; preflight: {verdict}"
        return
    lines = tiers(record, found)
    yield f"{record['id']}  (measured MiB, estimate MiB, error)"
    yield from (line.text() for line in [*lines, *phases(record, found)])
    if any(abs(line.error) > EXPLAINED for line in lines) and record.get("peak"):
        yield from explained(record, job, gpu)


def explained(record: Mapping[str, Any], job: Job, gpu: Gpu | None) -> list[str]:
    """Which allocations make the difference."""
    ready = prepare(job, gpu)
    return [] if isinstance(ready, Unknown) else differences(record, alive(ready, _workspaces(ready, gpu)))


def _workspaces(ready: PreparedJob, gpu: Gpu | None) -> tuple[int, ...]:
    from preflight.memory.device.step.effects import workspaces

    del ready
    return workspaces(gpu)


def summary(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Median and largest error of each tier, and how many lie inside their interval."""
    by_tier: dict[str, list[Line]] = {}
    for record in records:
        if record["outcome"] != "ok" or not record.get("job"):
            continue
        found = device.estimate(build(dict(record["job"])), find_gpu(str(record.get("facts", {}).get("gpu", ""))))
        if isinstance(found, DeviceEstimate):
            for line in tiers(record, found):
                by_tier.setdefault(line.what, []).append(line)
    text = []
    for tier, lines in by_tier.items():
        sizes = sorted(abs(line.error) for line in lines)
        inside = sum(bool(line.inside) for line in lines)
        middle, most = sizes[len(sizes) // 2], sizes[-1]
        text.append(f"{tier:12}{len(lines):4} records  median {middle:.1%}  worst {most:.1%}  inside {inside}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSON lines that measure.py wrote")
    parser.add_argument("--only", metavar="TEXT", default="", help="records whose id holds it")
    given = parser.parse_args(arguments)
    if not given.file.exists():
        parser.error(f"there is no file {given.file}")
    records = [record for name, record in read(given.file).items() if given.only in name]
    for record in records:
        if record["id"] == CONTEXT:
            print("context:", record.get("context"))
            continue
        print("\n".join(one(record)))
    print("\n".join(summary(records)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
