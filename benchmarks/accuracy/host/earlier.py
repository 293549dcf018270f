"""Loaders that were measured earlier by another harness (`earlier.jsonl`), as rows that `jobs.py` reads.

Their epochs were broken off: the million samples that a row has are what was shuffled, not what was loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
KINDS = {"fly": "generated", "npu8": "decoded", "numpy": "array", "list": "dicts", "strlist": "strings"}
HIDDEN = ("name", "kind", "pin_memory")


def rows(path: Path) -> list[Row]:
    """Every loader that was measured: what it was, as a point of the harness has it, and its peak in bytes."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [_row(row) for row in found if "cfg" in row]


def bases(path: Path) -> list[Row]:
    """Processes that only import something: its name and bytes."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if row["name"] == "base"]


def _row(row: Row) -> Row:
    config, more = row["cfg"], {}
    if config.get("ctx"):
        more["start"] = config["ctx"]
    if "val_w" in config:
        more |= {"val_workers": config["val_w"], "val_batch": config.get("val_b", config["b"])}
        more["epoch_end"] = bool(config.get("epoch_val"))
    for name in ("ranks", "hold"):
        if name in config:
            more[name] = config[name]
    samples = config.get("n_items") or config.get("n") or 1_000_000
    if "n_items" in config:
        more |= {"items": samples, "whole": True}
    kind = KINDS[config["kind"]]
    return {
        "id": " ".join([config["name"], *(f"{key}={value}" for key, value in config.items() if key not in HIDDEN)]),
        "group": "earlier", "what": "loader", "kind": kind, "shape": config.get("shape", [4]),
        "batch": config["b"], "workers": config["w"], "prefetch": config["p"], "persistent": config["persistent"],
        "shuffle": config.get("shuffle", True), "samples": samples, **more,
        "measured": {"bytes": row["peak_hard"], "told": {"dataset_bytes": row["info"].get("ds_bytes", 0)}},
    }  # fmt: skip
