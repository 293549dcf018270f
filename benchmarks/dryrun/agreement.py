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


def _trainer(name: str, model_type: str, task: str, batch: int, length: int, target: int | None = None,
             precision: str = "bf16-mixed", accumulation: int = 1, checkpointing: bool = False,
             **config: Any) -> Pair:  # fmt: skip
    """transformers' Trainer, whose outputs accelerate casts."""
    asked = {"model_type": model_type, "task": task, "config": config, "batch": batch, "length": length,
             "target": target, "precision": precision, "accumulation": accumulation,
             "checkpointing": checkpointing}  # fmt: skip
    job = {
        "model.architecture": model_type, "model.config": config, "task": task, "train.batch_size": batch,
        "train.seq_len": length, "train.target_len": target, "train.precision": precision,
        "train.grad_accum": accumulation, "train.gradient_checkpointing": checkpointing, "train.outputs_cast": True,
        "software": {"transformers": "5.23.0", "torch": "2.13.0"},
    }  # fmt: skip
    return Pair(f"Trainer {name}", "trainer.py", asked, job)


TINY = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
TINY_QWEN = {**TINY, "num_key_value_heads": 2, "vocab_size": 32000}
TINY_BART = {"d_model": 128, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}  # fmt: skip
TINY_T5 = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4,
           "vocab_size": 32128, "decoder_start_token_id": 0}  # fmt: skip
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
    _trainer("bert", "bert", "masked-lm", 8, 96, **TINY, vocab_size=30522),
    _trainer("bert accumulated", "bert", "masked-lm", 8, 96, accumulation=2, **TINY, vocab_size=30522),
    _trainer("bert fp32", "bert", "masked-lm", 8, 96, precision="fp32", **TINY, vocab_size=30522),
    _trainer("roberta fp16", "roberta", "masked-lm", 8, 96, precision="fp16-mixed", **TINY, vocab_size=50265),
    _trainer("distilbert", "distilbert", "masked-lm", 8, 96, dim=128, hidden_dim=512, n_layers=3, n_heads=4),
    _trainer("electra", "electra", "masked-lm", 8, 96, **TINY, embedding_size=128, vocab_size=30522),
    _trainer("t5", "t5", "seq2seq-lm", 8, 96, 64, **TINY_T5),
    _trainer("t5 checkpointing", "t5", "seq2seq-lm", 8, 96, 64, checkpointing=True, **TINY_T5),
    _trainer("mt5", "mt5", "seq2seq-lm", 8, 96, 64, **{**TINY_T5, "vocab_size": 64000}),
    _trainer("bart", "bart", "seq2seq-lm", 8, 96, 64, **TINY_BART, vocab_size=50265),
    _trainer("whisper", "whisper", "speech-seq2seq", 8, 400, 96, **TINY_BART, max_source_positions=200),
    _trainer("gpt2", "gpt2", "causal-lm", 8, 96, n_embd=128, n_layer=3, n_head=4),
    _trainer("llama", "llama", "causal-lm", 8, 96, **TINY, vocab_size=32000),
    _trainer("qwen2 checkpointing", "qwen2", "causal-lm", 8, 96, checkpointing=True, **TINY_QWEN),
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
