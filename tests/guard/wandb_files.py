"""The files of W&B's offline runs."""

from __future__ import annotations

import time
from pathlib import Path

from processes import HANGS

from preflight.store import wandb_runs


def offline_runs(folder: Path, count: int = 1) -> dict[Path, int]:
    """The files of offline runs, each with the exit status that it ends with. W&B's service writes them after the
    program has gone on."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[Path, int] = {}
    until = time.monotonic() + HANGS
    while len(found) < count and time.monotonic() < until:
        for path in folder.glob("wandb/offline-run-*/*.wandb"):
            for payload in wandb_runs._payloads(path.read_bytes()):
                record = Record.FromString(payload)
                if record.HasField("exit"):
                    found[path] = record.exit.exit_code
        time.sleep(0.1)
    return found
