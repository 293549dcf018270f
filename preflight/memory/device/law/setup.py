"""The setup of a step: all that its tape depends on apart from dimensions, and how the tracer is told.

How a setup is written in the key of a law: `store.key_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device.families import Family
from preflight.memory.device.law import adapters, loss_and_kernels, quantization
from preflight.memory.device.law.adapters import Adapters
from preflight.memory.device.law.attention import attention, kernel, repeats_keys
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.vocabulary.job import Job, Peft
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.values import Unknown, missing

RANKED = ("lora", "rslora", "dora", "adalora", "loha", "lokr")
"""Methods of peft that adapt linear layers."""

Terms: TypeAlias = "tuple[tuple[int, Mapping[str, int]], ...]"
"""(coefficient, {dimension: power}) summed: elements in the dtype that the model computes in."""


class Likeness(Struct, frozen=True):
    """The architecture whose law is used for a model of remote code, and the differences of the two."""

    architecture: str
    """The `model_type` of transformers whose law is used."""
    config: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Its own config -> one of that type. Raises KeyError for a dimension that is not there."""
    note: str
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own names of adapted layers -> the names in the architecture whose law is used."""
    targets: tuple[str, ...] = ()
    """Default targets of adapters (its own names)."""
    wider: tuple[float, float] = (0.0, 0.0)
    """By how much this difference widens the interval, below and above, as fractions."""
    held: Terms = ()
    """Elements that live through the whole step in addition to the tape."""
    pulse: Terms = ()
    """Elements that live for a moment in forward."""
    attention: str | None = None
    """The attention that its own code computes whatever is asked for."""


class Setup(Struct, frozen=True):
    """Everything that the tape of forward and backward depends on, except dimensions."""

    weights: str = "fp32"
    """The dtype of weights that are not quantised: fp32, bf16 or fp16."""
    autocast: str | None = None
    """The dtype of autocast: bf16, fp16, or None where it is off."""
    attention: str = "sdpa"
    """"sdpa" (flash attention, where CUDA has it), "efficient", "math" or "eager"."""
    mask: bool = False
    """Whether attention is given a mask: of padding, or of a window."""
    checkpointing: bool = False
    peft: Adapters | None = None
    quantization: QuantizedWeights | None = None
    loss: str | None = None
    """How a language model's loss is computed (tracer/losses.py); None: as today's transformers does."""
    offload: bool = False
    """Whether the inputs that checkpointing keeps are in host memory."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained, as `tracer.building.freeze` takes them."""
    channels_last: bool | None = None
    """Of image models alone."""
    winograd: bool = False
    """Whether convolutions in fp32 run without tensor cores."""
    kernels: tuple[str, ...] = ()
    """Norms, rotary embeddings and gated products that run as fused kernels (tracer/fused_kernels.py)."""
    experts: str | None = None
    """"listed": as modules of their own (tracer/listed_experts.py)."""
    casts_outputs: bool = False
    """Whether what the model returns in 16 bits is copied to fp32 (law/cast_outputs.py). No trace depends on it."""
    compile: str | None = None
    """The compiled parts: "layers", "all" (the loss as well), or None."""

    def wire(self, point: Mapping[str, int] | None = None) -> dict[str, Any]:
        """The setup in the request to the tracer. `point`: the dimensions of a trace (with the rank, if any)."""
        found: dict[str, Any] = {
            "weights": self.weights,
            "autocast": self.autocast,
            "attention": self.attention,
            "mask": self.mask,
            "checkpointing": self.checkpointing,
            "peft": self.peft.wire((point or {}).get("r")) if self.peft else None,
        }
        more = {
            "quantization": self.quantization.wire() if self.quantization else None,
            "loss": self.loss,
            "offload": self.offload,
            "frozen": list(self.frozen),
            "winograd": self.winograd,
            "kernels": list(self.kernels),
            "experts": self.experts,
            "compile": self.compile,
        }
        found |= {name: value for name, value in more.items() if value}
        return found if self.channels_last is None else {**found, "channels_last": self.channels_last}


def setup_of(
    job: Job,
    family: Family | None = None,
    gpu: Gpu | None = None,
    like: Likeness | None = None,
    reach: int | None = None,
    model_type: str | None = None,
) -> Setup | Unknown:
    """A job's setup. `like`: for remote code, the model whose law is used. `reach`: the size of a sliding window.
    `model_type`: transformers' name of the model's code."""
    train = job.train
    if train.precision is None:
        return missing("train.precision")
    half = train.precision in ("bf16", "fp16")
    mixed = train.precision.endswith("-mixed")
    quantized = train.quantization.type not in (None, "none")
    # Quantised weights were loaded in 16 bits for any compute dtype (transformers, quantizers/quantizer_bnb_4bit.py).
    loaded = train.precision.removesuffix("-mixed").replace("fp32", "fp16") if quantized else "fp32"
    weights = train.weights_dtype or (train.precision if half else loaded)
    if train.gradient_checkpointing is None:
        return missing("train.gradient_checkpointing")
    in_turns = train.gradient_checkpointing and train.quantization.type == "int8"
    recomputed = quantization.reentrant(job) if in_turns else False
    if recomputed is None:
        return missing("train.reentrant")
    installed = job.software.get("transformers") if like is None else None
    asked, mask = attention(job, family, release(installed), like.attention if like is not None else None, reach)
    in_half = mixed or (half and not (quantized and quantization.upcasts(train.quantization)))
    chosen = kernel(asked, mask, in_half, gpu)
    if chosen in ("sdpa", "flash") and repeats_keys(job):
        chosen = "efficient"  # which has a key and a value for each query head too
    # 16-bit formats have tapes of one shape, and bf16 means both, except for a softmax written out: CUDA widens fp16
    # within the kernel and bf16 before it.
    alike = chosen not in ("eager", "math")
    older = (release(job.software.get("bitsandbytes")) or NEWEST) < (0, 43, 2)
    # Remote code has a loss of its own: it shifts 16-bit logits, so it peaks as today's does, in backward.
    has_loss = family is not None and "causal-lm" in family.tasks
    kernels, loss = loss_and_kernels.applied(train.fused_kernels, train.loss, model_type if like is None else None)
    casts = mixed and casts_outputs(job) and loss not in WITHOUT_LOGITS
    return Setup(
        weights="bf16" if weights == "fp16" and alike else weights,
        autocast=("bf16" if alike else train.precision.removesuffix("-mixed")) if mixed else None,
        attention=chosen,
        mask=mask or (chosen == "eager" and (family is None or family.padded)),
        checkpointing=bool(train.gradient_checkpointing),
        peft=_adapters(train.peft, family, like, alike),
        quantization=quantization.weights_of(job, alike, older, recomputed) if quantized else None,
        loss=loss_and_kernels.loss_of(loss, installed, job.software, casts) if has_loss else None,
        offload=bool(train.activation_offload),
        frozen=tuple(train.frozen),
        kernels=kernels if like is None else (),
        casts_outputs=casts,
    )


WITHOUT_LOGITS = ("fused", "chunked")
"""Losses whose model returns no logits (transformers, loss of Liger; trl, the chunked loss of SFT)."""


def casts_outputs(job: Job) -> bool:
    """Whether accelerate wraps the forward of the model, which it does where autocast is its own: not under DeepSpeed
    (accelerator.py of 1.15, `native_amp`), and not under FSDP2, which has another way through `prepare`."""
    parallel = job.parallel
    wrapped = not (parallel.strategy or "").startswith("zero") and parallel.options.get("fsdp_version") != 2
    return bool(job.train.outputs_cast) and wrapped


LISTS_UNTIL = (5, 0)
"""The release of transformers whose experts are parameters of three dimensions, which bitsandbytes leaves alone."""


def with_own_loss(setup: Setup, job: Job, model_type: str, listed: bool) -> Setup:
    """The setup of a causal language model that is traced as it is. `listed`: see `lists_experts`."""
    kernels, asked = loss_and_kernels.applied(job.train.fused_kernels, job.train.loss, model_type)
    software = job.software
    loss = loss_and_kernels.loss_of(asked, software.get("transformers"), software, setup.casts_outputs)
    return replace(setup, loss=loss, kernels=kernels, experts="listed" if listed else None)


def lists_experts(job: Job, family: Family | None) -> bool:
    """Whether each expert is a module of its own."""
    installed = release(job.software.get("transformers"))
    return family is not None and "X" in family.named and installed is not None and installed < LISTS_UNTIL


def with_kernel(
    setup: Setup, job: Job, gpu: Gpu | None, mask: bool = False, alike: tuple[str, ...] = ("flash",)
) -> Setup:
    """The setup of a model without a family, with the attention kernel that it runs. `alike`: kernels whose law
    is that of "sdpa"."""
    chosen = kernel(job.train.attention or "sdpa", mask, job.train.precision != "fp32", gpu)
    return replace(setup, attention="sdpa" if chosen in alike else chosen, mask=mask)


def _adapters(peft: Peft, family: Family | None, like: Likeness | None, alike: bool) -> Adapters | None:
    """A job's adapters. `alike`: 16-bit formats have one tape."""
    if peft.method in (None, "none"):
        return None
    targets = _targets(peft, family, like)
    return Adapters(
        method="lora" if peft.method == "rslora" else peft.method,
        targets=tuple(targets) if isinstance(targets, list) else targets,
        dropout=bool(peft.dropout),
        half=("bf16" if alike else peft.dtype) if peft.dtype in ("bf16", "fp16") else None,
        rank=adapters.rank(peft) if family is None else None,
        options=dict(peft.options) if family is None else None,
    )


def _targets(peft: Peft, family: Family | None, like: Likeness | None) -> list[str] | str | None:
    """The adapted layers by their names in the law; None: peft's default for the model type."""
    targets = peft.targets
    if targets is None and peft.method in RANKED:
        targets = list(like.targets) if like is not None and like.targets else None
        if targets is None:
            return list(family.lora_targets) if family is not None else None
    if like is None or not isinstance(targets, list):
        return targets
    named = (other for name in targets for other in like.modules.get(name, (name,)))
    return list(dict.fromkeys(named))
