"""Dry runs against preflight's own laws, where both can answer: requested bytes of the same job.

    python -m benchmarks.dryrun agreement [--python PATH] [NAME...]

A dry run runs the program, and a law is a formula of a trace on the meta device: where they differ, one of them is
wrong or they do not mean the same job. Each difference above 0.5 % needs its explanation in `EXPLAINED`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.dryrun.answer import dry_run
from preflight.memory.device import estimate
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build

PROGRAMS = Path(__file__).with_name("programs")
TOLERANCE = 0.005


@dataclass(frozen=True)
class Pair:
    """One job: its Job fields, and the program that trains the same."""

    name: str
    program: str
    asked: Mapping[str, Any]
    job: Mapping[str, object] = field(default_factory=dict)
    ranks: int = 1


def _language(name: str, model_type: str, task: str, batch: int, length: int, precision: str = "bf16-mixed",
              impl: str = "foreach", cache: bool = False, checkpointing: bool = False,
              **config: Any) -> Pair:  # fmt: skip
    asked = {"model_type": model_type, "task": task, "config": config, "batch": batch, "length": length,
             "precision": precision, "optimizer_impl": impl, "checkpointing": checkpointing,
             "cache": cache}  # fmt: skip
    job = {
        "model.architecture": model_type, "model.config": config, "task": task, "train.batch_size": batch,
        "train.seq_len": length, "train.precision": precision, "train.optimizer_impl": impl,
        "train.gradient_checkpointing": checkpointing, "software": {"transformers": "5.23.0", "torch": "2.13.0"},
    }  # fmt: skip
    return Pair(name, "language_model.py", asked, job)


def _image(name: str, batch: int, size: int = 224, ranks: int = 1) -> Pair:
    job: dict[str, object] = {
        "model.target": f"torchvision:{name}", "task": "image-classification", "train.batch_size": batch,
        "train.image_size": size, "train.optimizer": "sgd-momentum", "software": {"torch": "2.13.0"},
    }  # fmt: skip
    asked = {"name": name, "batch": batch, "size": size}
    if ranks == 1:
        return Pair(f"{name} {batch}", "image_model.py", asked, job)
    job = {**job, "parallel.strategy": "ddp", "parallel.gpus_per_node": ranks, "parallel.ranks_per_node": ranks}
    return Pair(f"{name} {batch} x {ranks}", "image_model.py", asked, job, ranks)


LLAMA = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048}  # fmt: skip
BERT = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}  # fmt: skip
PAIRS = (
    _language("bert 32 x 128", "bert", "masked-lm", 32, 128, **BERT),
    _language("bert 8 x 512 fp32", "bert", "masked-lm", 8, 512, "fp32", **BERT),
    _language("gpt2 8 x 512 fused", "gpt2", "causal-lm", 8, 512, impl="fused"),
    _language("gpt2 4 x 256 fp32", "gpt2", "causal-lm", 4, 256, "fp32"),
    _language("gpt2 4 x 256 with its cache", "gpt2", "causal-lm", 4, 256, "fp32", cache=True),
    _language("llama 4 x 512", "llama", "causal-lm", 4, 512, **LLAMA),
    _language("llama 2 x 1024 checkpointing", "llama", "causal-lm", 2, 1024, checkpointing=True, **LLAMA),
    _image("resnet50", 64),
    _image("resnet50", 64, ranks=4),
    _image("resnet18", 32),
)
EXPLAINED: Mapping[str, str] = {
    "gpt2 4 x 256 with its cache": "a plain loop that does not say use_cache=False fills the cache of keys and values "
    "(transformers 5: a copy of each, 2 x 12 x 4 x 256 x 768 x 4 bytes); the law is that of Trainer, which says it",
}
"""Why the two differ by more than the tolerance, by the name of the pair."""


@dataclass(frozen=True)
class Compared:
    """Requested bytes of both sides."""

    name: str
    dry: int | None
    law: int | None
    why: str = ""

    @property
    def difference(self) -> float | None:
        return None if self.dry is None or self.law is None else (self.dry - self.law) / self.law

    @property
    def agrees(self) -> bool:
        return self.difference is not None and (abs(self.difference) <= TOLERANCE or self.name in EXPLAINED)


def compared(names: tuple[str, ...], python: str) -> Iterator[Compared]:
    """Every pair, or those of these names."""
    for pair in PAIRS:
        if names and not any(name in pair.name for name in names):
            continue
        law = estimate(build(dict(pair.job)), None)
        bytes_of_law = law.requested.expected if isinstance(law, DeviceEstimate) else None
        why = "" if isinstance(law, DeviceEstimate) else law.words
        launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={pair.ranks}"] if pair.ranks > 1 else []
        words = [python, *launcher, str(PROGRAMS / pair.program), json.dumps(pair.asked)]
        device = dry_run(words, None, None).found.estimates.device
        yield Compared(pair.name, device.requested.expected if device is not None else None, bytes_of_law, why)


def shown(found: Compared) -> str:
    """One line for a pair."""
    if found.difference is None:
        return f"{found.name:32} no comparison: {found.why}"
    words = EXPLAINED.get(found.name, "")
    return f"{found.name:32} {found.dry:>14,} {found.law:>14,} {found.difference:+9.4%}  {words}"
