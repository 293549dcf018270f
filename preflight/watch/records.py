"""Reads the records of a run's processes. A line that is not whole is left out: the process was killed as it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from preflight.vocabulary.watched import WatchedError, WatchedMachine, WatchedRank, WatchedSave, WatchedTrial

SAMPLES = ("sample_bytes", "validation_sample_bytes")
MOST_FILES = 4096
MOST_TRIALS = 1000
MOST_BYTES = 16 * 2**20
"""Of one file: a recorder writes some kilobytes, and anything may write into the folder."""


def ranks_of(folder: Path) -> tuple[WatchedRank, ...]:
    """The processes that trained or evaluated, in the order of their ranks."""
    found = [rank for path in _files(folder) if (rank := _rank(path)) is not None]
    return tuple(sorted(found, key=lambda one: (one.rank, one.pid or 0)))


def pids_of(folder: Path) -> set[int]:
    """The processes that have records."""
    names = (path.stem.rpartition("-")[2] for path in _files(folder))
    return {int(name) for name in names if name.isdigit()}


def batches_of(folder: Path) -> int:
    """Batches that loaders handed out, of the process with the most."""
    marks = (_marked(WatchedRank(0), path.with_suffix(".phase")) for path in _files(folder))
    return max((one.batches for one in marks), default=0)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank*.jsonl"))[:MOST_FILES]


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = _start_of(path)
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("kind"), str):
            yield found


def _rank(path: Path) -> WatchedRank | None:
    found: WatchedRank | None = None
    for line in _lines(path):
        kind = line["kind"]
        try:
            if kind == "start":
                found = WatchedRank(int(line["rank"]), int(line["world"]), int(line["pid"]), _machine(line))
            elif found is not None:
                found = _with(found, kind, line)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue
    if found is None:
        return None
    return replace(_marked(found, path.with_suffix(".phase")), saves=tuple(_saves(path.with_suffix(".saves"))))


def _saves(path: Path) -> Iterator[WatchedSave]:
    try:
        for one in json.loads(_start_of(path)):
            yield WatchedSave(str(one["path"]), str(one["saver"]), float(one["at"]), one["ended"] is True)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return


def _start_of(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES)


def _marked(found: WatchedRank, path: Path) -> WatchedRank:
    """With the phase in which the process was last, which it wrote at every change."""
    try:
        with open(path, "rb") as file:
            phase, *numbers = file.read(96).decode("ascii", "replace").split()
        steps, batches, epoch = map(int, numbers)
        return replace(found, phase=phase, steps=max(found.steps, steps), batches=batches, epoch=epoch)
    except (OSError, ValueError):
        return found


def _machine(line: Mapping[str, Any]) -> WatchedMachine:
    memory = line.get("gpu_memory")
    words = {name: str(line.get(name) or "") for name in ("gpu", "torch", "cuda", "alloc_conf")}
    return WatchedMachine(gpu_memory=int(memory) if memory else None, **words)


def _peaks(of: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {str(phase): {str(tier): int(size) for tier, size in tiers.items()} for phase, tiers in of.items()}


def _error(line: Mapping[str, Any]) -> WatchedError:
    tried = line.get("tried")
    return WatchedError(
        str(line["error"]), str(line.get("memory") or ""), int(tried) if tried else None, str(line["phase"]),
        str(line.get("text", "")),
    )  # fmt: skip


def _with(found: WatchedRank, kind: str, line: Mapping[str, Any]) -> WatchedRank:
    if kind == "peaks":
        peaks = _peaks(line["peaks"])
        events, floor = line.get("events", {}), line.get("floor") or None
        return replace(
            found, peaks=peaks, phase=str(line["phase"]), steps=int(line["steps"]), host=int(line.get("process", 0)),
            retries=int(events.get("retries", 0)), ooms=int(events.get("ooms", 0)),
            floor=(int(floor[0]), int(floor[1]), int(floor[2])) if floor else None, gpus=int(line.get("gpus") or 1),
            share=int(line["share"]) if line.get("share") else None,
            transformers=str(line.get("transformers") or found.transformers),
        )  # fmt: skip
    if kind == "error":
        return replace(found, error=_error(line))
    if kind == "trial":
        if not isinstance(line["job"], dict) or len(found.trials) >= MOST_TRIALS:
            return found
        error = _error({"error": "OutOfMemoryError", **line}) if line.get("memory") else None
        return replace(found, trials=(*found.trials, WatchedTrial(line["job"], _peaks(line["peaks"]), error)))
    if kind == "samples":
        sizes = {name: int(line[name]) for name in SAMPLES if int(line.get(name) or 0) > 0}
        return replace(found, samples={**found.samples, **sizes})
    if kind == "guard":
        return replace(found, handled=found.handled + 1)
    if kind == "stopped":
        return replace(found, stopped=str(line["why"]))
    return replace(found, ended=True) if kind == "end" else found
