"""Measured runs: what each one was (a Job), and its bytes by tier.

A tier is compared only with itself. What a row's `metric` does not say is "not stated" and is not scored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

Tier = Literal["requested", "allocated", "reserved", "process"]
TIERS: tuple[Tier, ...] = ("requested", "allocated", "reserved", "process")
MIB = 2**20
GIB = 2**30


class PeftRow(TypedDict, total=False):
    method: str
    r: int
    targets: str
    dropout: float


class Row(TypedDict, total=False):
    """A line of the file of measured runs, as it is."""

    id: str
    model: str
    params: float | None
    task: str
    batch_size: int
    seq_len: int | str | None
    image_size: int | str | None
    precision: str
    optimizer: str
    gradient_checkpointing: bool | None
    peft: PeftRow | None
    parallelism: str
    gpu: str
    measured_peak: float
    metric: str
    unit: str
    censored: str | None
    framework: str
    source: str
    notes: str
    quality: str
    attn_impl: str
    reserved_mib: float
    process_mib: float


@dataclass(frozen=True)
class Inexpressible:
    """A run that no Job can describe: what a faithful one would have to say."""

    reason: str


Fields = Mapping[str, object]
"""Dotted Job fields."""


@dataclass(frozen=True)
class Run:
    """One measured run. `fields` is the Job; `measured` has the tiers that the source states; both may be empty."""

    id: str
    source: str
    """Who measured: rows of one source share a script, a machine and its mistakes."""
    kind: str
    """What kind of training: the families of the tables."""
    fields: Fields | Inexpressible
    measured: Mapping[Tier, int] = field(default_factory=dict)
    quality: str = ""
    stated: str = ""
    """What the source says the figure is."""


def tier_of(metric: str) -> Tier | None:
    """The tier that a metric's words name; None: not stated.

    "active" counts the blocks in use, as "allocated" does (torch.cuda.memory_stats: active_bytes, allocated_bytes).
    """
    words = metric.lower()
    if words.startswith(("allocated", "active", "peak memory (torchtune reports active/alloc)")):
        return "allocated"
    if words.startswith("reserved"):
        return "reserved"
    return "process" if words.startswith("nvidia-smi") else None


def tiers(row: Row, gigabyte: int = GIB) -> dict[Tier, int]:
    """A row's bytes by tier. A figure cut off by the GPU's size ("OOM-capped") measures nothing and is left out.

    `gigabyte`: what "GB" is where the source does not say, from the code that printed it.
    """
    units = {"MiB": MIB, "GiB": GIB, "GB(1e9)": 10**9}
    found: dict[Tier, int] = {}
    tier = tier_of(row["metric"])
    if tier is not None and not row.get("censored"):
        found[tier] = round(row["measured_peak"] * units.get(row["unit"], gigabyte))
    if "reserved_mib" in row:
        found["reserved"] = round(row["reserved_mib"] * MIB)
    if "process_mib" in row:
        found["process"] = round(row["process_mib"] * MIB)
    return found


def rows(path: Path) -> Iterator[Row]:
    """The rows of a file of measured runs."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


class TimmRow(TypedDict):
    """A line of the table of timm runs."""

    model: str
    batch_size: int
    process_mib: float
    fake_mib: float
    """What the source's own FakeTensor pass counted at the end of the step: live tensors alone; 0 where it has none."""


def timm_rows(path: Path) -> Iterator[TimmRow]:
    """The timm runs (itu-rad/GPUMemNet, fake_tensor.xlsx): nvidia-smi's largest figure of training each model."""
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            measured = line["measured_nvidia_smi_max_MiB"]
            if measured:
                fake = float(line["ft_last"] or 0)
                yield {"model": line["model"], "batch_size": int(line["bs"]), "process_mib": float(measured),
                       "fake_mib": fake}  # fmt: skip
