"""The grid: one training step each, and the preflight Job that it is."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.accuracy.gpu.models import MODELS, Model


@dataclass(frozen=True)
class Case:
    """One training step. `precision`, `optimizer`, `implementation` and `attention` as in preflight's Job."""

    model: str
    batch: int = 8
    length: int = 128
    target: int = 0
    precision: str = "bf16-mixed"
    optimizer: str = "adamw"
    implementation: str = "foreach"
    checkpointing: bool = False
    attention: str = "sdpa"
    lora: int = 0
    accumulation: int = 1
    outputs: str = "no"
    padded: bool = True
    validation: int = 0

    @property
    def of(self) -> Model:
        return MODELS[self.model]

    @property
    def text(self) -> bool:
        """Whether batches have a length and may be padded."""
        return self.of.task not in ("image-classification", "speech-seq2seq")

    @property
    def id(self) -> str:
        """A name that says all that differs from the usual case."""
        usual = asdict(Case(self.model))
        shown = {key: value for key, value in asdict(self).items() if value != usual[key] and key != "model"}
        if self.of.task == "image-classification":
            shown.pop("length", None)
        return "-".join([self.model, *(f"{key}={value}" for key, value in shown.items())])

    def job(self) -> dict[str, Any]:
        """The Job's fields (preflight.vocabulary.job.build)."""
        model = self.of
        fields: dict[str, Any] = {
            "task": model.task, "train.batch_size": self.batch, "train.precision": self.precision,
            "train.optimizer": self.optimizer, "train.optimizer_impl": self.implementation,
            "train.gradient_checkpointing": self.checkpointing, "train.attention": self.attention,
            "train.grad_accum": self.accumulation, "train.outputs_kept": self.outputs,
            "train.sequences": "bound" if self.padded and self.text else "exact",
        }  # fmt: skip
        fields |= (
            {"model.target": model.target}
            if model.target
            else {"model.architecture": model.architecture, "model.config": model.config}
        )
        if model.task == "contrastive":
            fields["train.text_len"] = self.length
        elif self.text:
            fields["train.seq_len"] = self.length
        if self.target:
            fields["train.target_len"] = self.target
        if self.lora:
            fields |= {"train.peft.method": "lora", "train.peft.r": self.lora, "train.peft.targets": list(model.lora)}
        if self.validation:
            fields["validation.batch_size"] = self.validation
        return fields


ENCODERS = ("bert-base", "roberta-base", "distilbert", "deberta-v3-small")
DECODERS = ("gpt2", "gpt2-medium", "qwen2.5-0.5b", "smollm2-135m", "llama-3.2-1b")
IMAGES = ("vit-base", "resnet50", "convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "vit_small_patch16_224")
CONVOLUTIONAL = IMAGES[1:5]


def usual(model: str) -> Case:
    """A model's case that others vary one thing of."""
    if model in ENCODERS:
        return Case(model, batch=16, length=256)
    if model in DECODERS:
        return Case(model, batch=4, length=512)
    if model in IMAGES:
        return Case(model, batch=32, optimizer="sgd-momentum" if model in CONVOLUTIONAL else "adamw", padded=False)
    if model == "clip-vit-b32":
        return Case(model, batch=64, length=77)
    if model == "whisper-small":
        return Case(model, batch=4, length=128, target=128, padded=False)
    return Case(model, batch=8, length=256, target=64)


def _grid() -> Iterator[Case]:
    yield from (usual(model) for model in MODELS)
    ladder = ("bert-base", "gpt2", "qwen2.5-0.5b", "t5-small", "vit-base", "resnet50")
    for model in ladder:
        for precision in ("fp32", "fp16-mixed", "bf16"):
            yield replace(usual(model), precision=precision)
    for model in ("bert-base", "gpt2", "smollm2-135m"):
        for optimizer, how in (("adamw", "fused"), ("adamw", "for-loop"), ("adam", "foreach"), ("sgd", "foreach"),
                               ("sgd-momentum", "foreach"), ("adafactor", "for-loop")):  # fmt: skip
            yield replace(usual(model), optimizer=optimizer, implementation=how)
    for model in ("bert-base", "gpt2", "qwen2.5-0.5b", "t5-base", "vit-base", "llama-3.2-1b"):
        yield replace(usual(model), checkpointing=True)
    for model in ("bert-base", "gpt2", "qwen2.5-0.5b", "t5-small", "vit-base"):
        yield replace(usual(model), attention="eager")
    for model in ("qwen2.5-0.5b", "smollm2-135m", "llama-3.2-1b", "bert-base"):
        for precision, checkpointing in (("bf16", False), ("bf16", True), ("bf16-mixed", False)):
            yield replace(usual(model), lora=16, precision=precision, checkpointing=checkpointing)
    yield from _ladders()


def _ladders() -> Iterator[Case]:
    """Batches, lengths, and what a loop does besides."""
    for batch in (1, 2, 8, 16):
        yield replace(usual("gpt2"), batch=batch)
    for model, batches in (("resnet50", (8, 64, 128)), ("vit-base", (8, 64)), ("convnext_tiny", (64,))):
        for batch in batches:
            yield replace(usual(model), batch=batch)
    for length in (100, 256, 1024, 2048, 4096):
        yield replace(usual("smollm2-135m"), batch=2, length=length)
    for model in ("bert-base", "gpt2", "qwen2.5-0.5b", "resnet50"):
        yield replace(usual(model), accumulation=4)
    for model in ("gpt2", "smollm2-135m"):
        yield replace(usual(model), padded=False)
        yield replace(usual(model), outputs="step")
    for model in ("bert-base", "gpt2", "vit-base", "resnet50"):
        yield replace(usual(model), validation=4 * usual(model).batch)


GRID: dict[str, Case] = {case.id: case for case in _grid()}


def matching(pattern: str | None) -> list[Case]:
    """Cases whose id holds the pattern, or matches it as a glob."""
    if not pattern:
        return list(GRID.values())
    return [case for name, case in GRID.items() if pattern in name or fnmatch.fnmatch(name, pattern)]
