"""What the golden dumps are of: the projects that tests write, the examples, public files, and models under setups."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = ROOT / "examples"

Row = dict[str, Any]


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("preflight-golden")) / "corpus"


CORPUS = Path(os.environ["PREFLIGHT_CORPUS"]) if os.environ.get("PREFLIGHT_CORPUS") else _cache()
"""Where scripts/golden_corpus.py puts the public repositories."""


def projects() -> Iterator[Row]:
    """The projects that tests wrote (harvest.py): {case, files, named, settings, set}."""
    with gzip.open(HERE / "projects.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def examples() -> Iterator[tuple[str, Path]]:
    """Folders of examples that are projects of their own; the plugin is a package and no job."""
    for group in sorted(path for path in EXAMPLES.iterdir() if path.name != "plugin"):
        inner = sorted(path for path in group.glob("*") if path.is_dir())
        for folder in inner if group.name == "incidents" else [group]:
            yield f"examples/{folder.relative_to(EXAMPLES).as_posix()}", folder


def corpus() -> Iterator[Row]:
    """Public files: {id, repo, commit, paths}."""
    with (HERE / "corpus.jsonl").open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def checkout(repo: str, commit: str) -> Path:
    """Where a repository's files at a commit lie."""
    return CORPUS / f"{repo.replace('/', '+')}@{commit[:12]}"


LENGTHS = {"train.batch_size": 4, "train.seq_len": 128, "train.text_len": 64, "train.target_len": 64}
MIXED = {"train.precision": "bf16-mixed"}
EIGHT = {"parallel.gpus_per_node": 8, "parallel.ranks_per_node": 8}
LORA = {"train.peft.method": "lora", "train.peft.r": 16}
SETUPS: Mapping[str, Mapping[str, object]] = {
    "fp32": {"train.precision": "fp32"},
    "bf16-mixed": MIXED,
    "bf16": {"train.precision": "bf16", "train.gradient_checkpointing": True},
    "lora": {**MIXED, **LORA},
    "qlora": {
        "train.precision": "bf16", **LORA, "train.quantization.type": "nf4", "train.quantization.double_quant": True,
        "train.quantization.compute_dtype": "bf16", "train.gradient_checkpointing": True,
        "train.optimizer": "paged-adamw-8bit", "train.peft.targets": "all-linear",
    },
    "checkpointing": {**MIXED, "train.gradient_checkpointing": True},
    "eager": {**MIXED, "train.attention": "eager"},
    "flash": {"train.precision": "bf16", "train.attention": "flash"},
    "accumulation": {**MIXED, "train.grad_accum": 4, "train.optimizer": "sgd-momentum"},
    "fsdp": {**MIXED, **EIGHT, "parallel.strategy": "fsdp"},
    "zero2": {**MIXED, **EIGHT, "parallel.strategy": "zero2"},
    "zero3": {**MIXED, **EIGHT, "parallel.strategy": "zero3", "parallel.offload": "optimizer"},
    "validation": {**MIXED, "validation.batch_size": 32, "validation.samples": 1000,
                   "validation.accumulates_logits": True},
}  # fmt: skip
WHOLE_FAMILIES = 40
"""So many architectures have the interval of their first model under every setup, all other models under one."""


def job(model: str, task: str, setup: str) -> dict[str, object]:
    """The dotted fields of a model's job under a setup."""
    named = {"model.name": model, "task": task}
    return {**named, **LENGTHS, **SETUPS[setup]}


def has_corpus() -> bool:
    """Whether all public repositories are on this machine."""
    return all(checkout(row["repo"], row["commit"]).is_dir() for row in corpus())
