"""A saved dry run of a program, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from preflight.engine.dry_runs import name_of
from preflight.memory.device.recorded import Recording
from preflight.memory.device.recorded_law import OverLength, RecordedLaw
from preflight.memory.device.saved_run import SavedProgram, SavedRun, plain

MIB = 2**20
GIB = 2**30


def recording(batch: int, length: int) -> Recording:
    """Weights of 1 GiB, an activation of 1 MiB for each sample and 128 tokens, gradients."""
    events = (GIB, batch * length * MIB // 128, GIB, -2)
    return Recording(events, ("load", "forward", "backward", "backward"), {0: "weights", 2: "gradients"})


def law(batch: int = 8, length: int = 128) -> RecordedLaw:
    def sizes(at_batch: int, at_length: int) -> tuple[int, ...]:
        return tuple(max(0, one) for one in recording(at_batch, at_length).events)

    lengths = OverLength(length, length // 2, sizes(batch, length // 2), sizes(2 * batch, length // 2))
    runs = ((batch, length), (2 * batch, length), (3 * batch, length), (3 * batch, 3 * length // 4))
    return RecordedLaw(recording(batch, length), batch, 2 * batch, sizes(2 * batch, length), lengths, runs)


def run_in(
    folder: Path, *arguments: str, sources: tuple[str, ...] | dict[str, str] = ("train.py",), **more: Any
) -> SavedRun:
    """A run of train.py in a folder."""
    values = {"train.batch_size": 8, "train.seq_len": 128, "validation.batch_size": 8, "train.optimizer": "adamw",
              "model.parameters": 250_000_000, "data.workers": 0}  # fmt: skip
    found = law()
    hashes = sources
    if not isinstance(hashes, dict):
        hashes = {name: sha256((folder / name).read_bytes()).hexdigest() for name in sources}
    settings: dict[str, Any] = {
        "command": ("python", "train.py", *arguments),
        "directory": str(folder.resolve()),
        "program": SavedProgram("train.py", False, arguments),
        "sources": hashes,
        "versions": {"torch": "2.13.0+cpu"},
        "values": values,
        "tape": found.tape,
        "law": found,
        "capability": (8, 9),
    }
    return SavedRun(**{**settings, **more})


def written(run: SavedRun, **more: object) -> bytes:
    """The content of its file."""
    return json.dumps({**plain(run), **more}).encode()


def keep(folder: Path, run: SavedRun, **more: object) -> Path:
    """Write it into a directory as `--save` does."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / f"{name_of(str(Path(run.directory, run.program.target)))}-0.json"
    path.write_bytes(written(run, **more))
    path.chmod(0o600)
    return path


def changed(data: bytes, path: str, value: object) -> bytes:
    """The content with another value at a dotted path."""
    whole: dict[str, Any] = json.loads(data)
    at: Any = whole
    *outer, last = path.split(".")
    for name in outer:
        at = at[int(name)] if isinstance(at, list) else at[name]
    if isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    assert isinstance(whole, Mapping)
    return json.dumps(whole).encode()
