"""Which setups that jobs name have a shipped law: `python scripts/law_coverage.py [FAMILY ...]`. Needs no torch.

A row is a family, a column a precision and how it is trained; a cell counts the laws that are there, of those for
checkpointing or not, attention written out, fused or flash, and batches padded or not that differ. Accumulation and
outputs that are kept are readings of one law, and generation and validation stand at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product

from preflight.memory.device.families import FAMILIES, GROUPED, Family
from preflight.memory.device.law.store import key_of, keys
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads.remote_code import SAME_CODE
from preflight.vocabulary.job import build

PRECISIONS = ("fp32", "bf16-mixed", "fp16-mixed", "bf16", "fp16")
QUANTISED = {"train.quantization.type": "nf4", "train.quantization.compute_dtype": "bf16"}
LORA = {"train.peft.method": "lora", "train.peft.r": 8, "train.peft.dropout": 0.0}
TRAINED: Mapping[str, Mapping[str, object]] = {
    "full": {"train.peft.method": "none"},
    "lora": LORA,
    "lora dropout": {**LORA, "train.peft.dropout": 0.05},
    "qlora": {**LORA, **QUANTISED},
    "qlora dropout": {**LORA, **QUANTISED, "train.peft.dropout": 0.05},
}
OTHERWISE = tuple(product((False, True), ("eager", "sdpa", "flash"), ("dynamic", "packed")))
"""Checkpointing, attention, whether batches are padded."""


HEADS = {"true": 2, "false": 8, "one": 1}
"""Of eight, those that hold keys and values, by what a law's key says."""
LENGTHS = {"train.batch_size": 2, "train.seq_len": 64, "train.target_len": 16, "train.text_len": 16}


def dimensions(family: Family) -> dict[str, int]:
    """A small model of a family, with as many key-value heads as most of its laws have."""
    held = " ".join(keys(family.name))
    grouped = max((held.count(f"{GROUPED}={value}"), heads) for value, heads in HEADS.items())[1]
    given = {
        "b": 2,
        "s": 64,
        "t": 16,
        "V": 500,
        "P": 512,
        "a": 8,
        "k": grouped,
        "d": 64,
        "h": 512,
        "R": 32,
        "X": 8,
        "K": 2,
    }
    names = {*family.named, *family.depths.values(), "i", "r"}
    return {name: given.get(name, 8 if name in family.depths.values() else 32) for name in names}


def keys_of(family: Family, stated: Mapping[str, object], kind: str) -> str | None:
    """The key of a job's law; None where a job of this kind makes no sense."""
    config = {**family.config(dimensions(family)), **family.switches(family.usual)}
    job: dict[str, object] = {"model.architecture": family.model_type, "model.config": config, **LENGTHS, **stated}
    job["task"] = family.tasks[0]
    asked = resolve(build(job))
    return key_of(asked, kind).text if isinstance(asked, Resolved) else None


def cell(family: Family, stated: Mapping[str, object], kind: str = "train") -> str:
    """Laws that are there, of those that differ."""
    wanted = set()
    for checkpointing, attention, sequences in OTHERWISE:
        more = {"train.gradient_checkpointing": checkpointing, "train.attention": attention,
                "train.sequences": sequences}  # fmt: skip
        found = keys_of(family, {**stated, **more}, kind)
        wanted |= {found} if found else set()
    there = set(keys(family.name))
    return f"{len(wanted & there)}/{len(wanted)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    for name in parser.parse_args().families or [f for f in FAMILIES if f not in SAME_CODE]:
        family = FAMILIES[name]
        print(name)
        for how, stated in TRAINED.items():
            cells = (f"{p} {cell(family, {**stated, 'train.precision': p})}" for p in PRECISIONS)
            print(f"  {how:14}", "  ".join(cells))
        for kind in ("eval", "generate"):
            cells = (f"{p} {cell(family, {'train.precision': p}, kind)}" for p in PRECISIONS)
            print(f"  {kind:14}", "  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
