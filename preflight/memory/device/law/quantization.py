"""How a job's frozen weights are quantised, as stated by the job, else by its model's config or name.

bitsandbytes quantises while it loads, so the job states it. A checkpoint that was quantised before states it in its
config or its name, and the program need not repeat it. The memory of such weights: tracer/packed.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from preflight.memory.device.law import catalogue
from preflight.vocabulary.job import Job, Quantization
from preflight.vocabulary.notation import release
from preflight.vocabulary.values import Cause, Unknown

PACKED = ("gptq", "awq", "hqq", "torchao-int8", "fp8", "eetq")
"""Types of `train.quantization` whose layers are in tracer/packed.py."""
BITS = {"gptq": (2, 3, 4, 8), "awq": (4,), "hqq": (1, 2, 3, 4, 8), "torchao-int8": (8,), "fp8": (8,), "eetq": (8,)}
"""Bits that each can have (gptqmodel's SUPPORTS_BITS that auto_gptq has too; hqq's BitPack)."""
GROUPS = {"gptq": 128, "awq": 128, "hqq": 64}
"""Default group sizes (GPTQConfig, AwqConfig, HqqConfig of transformers)."""
ADAPTERS = dict.fromkeys(("gptq", "awq", "eetq", "hqq", "torchao-int8", "fp8"), ("lora", "rslora"))
"""Adapters with a special forward for these weights (peft, tuners/lora/*.py)."""
GPTQ_KERNELS = ("torch", "cuda", "cuda-old", "triton", "tritonv2")
_METHODS = {"gptq": "gptq", "awq": "awq", "hqq": "hqq", "fp8": "fp8", "eetq": "eetq"}
_UNTRAINED = ("marlin", "exllama", "exllamav1", "exllamav2", "machete", "bitblas", "ipex", "swordfish", "qqq")
"""Kernels without a backward (gptqmodel, SUPPORTS_TRAINING = False)."""


class QuantizedWeights(Struct, frozen=True):
    """Quantised weights as a tape depends on them."""

    type: str
    """"4bit" and "int8" of bitsandbytes, or one of PACKED."""
    compute: str | None
    """The dtype that 4-bit layers compute in."""
    upcast_rest: bool
    keeps_input: bool = False
    """bitsandbytes before 0.43.2 keeps the input of a 4-bit layer for backward."""
    recomputed: bool = False
    """int8 layers under reentrant checkpointing: its first forward runs without gradients, so they keep no input then.
    Under the other kind they do: bitsandbytes holds the input itself, and not as a saved tensor (MatMul8bitLt)."""
    head: bool = False
    """The head is quantised as well."""
    loaded: str | None = None
    """The dtype that weights have before they are quantised, where it is not that of the model."""
    bits: int | None = None
    """Of PACKED; `group` and `backend` too."""
    group: int | None = None
    backend: str | None = None

    def wire(self) -> dict[str, Any]:
        """The quantisation in the request to the tracer."""
        flags = {
            "keeps_input": self.keeps_input,
            "recomputed": self.recomputed,
            "head": self.head,
            "loaded": self.loaded,
        }
        packed = {"bits": self.bits, "group": self.group} if self.bits is not None else {}
        return {
            **{name: value for name, value in flags.items() if value},
            "type": self.type,
            "compute": self.compute,
            "upcast_rest": self.upcast_rest,
            **packed,
            **({"backend": self.backend} if self.backend is not None else {}),
        }


def stated(job: Job) -> Job:
    """The job with its weights' quantisation where only its model's config or name tells it."""
    said = job.train.quantization
    if said.type not in (None, "none"):
        return job
    given = _config(job).get("quantization_config")
    known = catalogue.find(job.model.name) if job.model.name else None
    if isinstance(given, Mapping):
        found = _of_config(given)
    else:
        found = _of_name(str(job.model.name), known.quantised) if known is not None else {}
    if not found:
        return job
    values = {**{key: value for key, value in found.items() if getattr(said, key) is None}, "type": found["type"]}
    train = job.train.model_copy(update={"quantization": said.model_copy(update=values)})
    return job.model_copy(update={"train": train})


def _config(job: Job) -> Mapping[str, Any]:
    """The model's config.json, if known: that of the job, else of a directory or of the hub's cache."""
    if job.model.config is not None:
        return job.model.config
    named = job.model.name if job.model.name and catalogue.find(job.model.name) is None else None
    found = (catalogue.read_config(path) for path in (job.model.path, named) if path)
    return next((config for config in found if config is not None), {})


def _of_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """transformers, utils/quantization_config.py: GPTQConfig, AwqConfig, HqqConfig, FineGrainedFP8Config, EetqConfig.
    A group in two dimensions (FP8's blocks) is the method's own."""
    kind = _METHODS.get(str(given.get("quant_method", "")).lower())
    if kind is None:
        return {}
    inner = given.get("quant_config")
    values = inner.get("weight_quant_params", given) if isinstance(inner, Mapping) else given  # HQQ's
    found: dict[str, Any] = {"type": kind}
    for field, keys in (("bits", ("bits", "w_bit", "nbits")), ("group_size", ("group_size", "q_group_size"))):
        value = next((values[key] for key in keys if isinstance(values.get(key), int)), None)
        if value is not None:
            found[field] = value
    return found


def _of_name(name: str, quantised: str | None) -> dict[str, Any]:
    """GPTQ and AWQ by the ending of a hub id; "-Int8" and "-8bit" are of 8 bits."""
    if quantised not in ("GPTQ", "AWQ"):
        return {}
    bits = 8 if re.search(r"int8|8bit", name.lower()) else 4
    return {"type": quantised.lower(), "bits": bits}


def refused(name: str, how: str | None) -> Unknown:
    """Why a model whose weights are quantised is not known, where the job does not say so."""
    if how in ("nf4", "fp4", "int8"):
        return Unknown(
            f"the weights of {name} are quantised: state train.quantization.type={how}",
            Cause.not_set,
            ("train.quantization.type",),
        )
    if how == "FP8":
        return Unknown(
            f"the weights of {name} are in FP8, in a format that the name does not tell: state "
            "train.quantization.type=fp8 for transformers' fine-grained one; compressed-tensors' kernels do not train",
            Cause.not_set,
            ("train.quantization.type",),
        )
    return Unknown(f"the weights of {name} are quantised by {how}, which no law covers", Cause.not_modelled)


def unfit(job: Job) -> Unknown | None:
    """Why a job cannot train over its quantised weights, or not as far as is known; None: it can."""
    said = job.train.quantization
    kind = said.type
    if kind not in PACKED:
        return None
    label = kind.upper() if kind != "torchao-int8" else "torchao"
    method = job.train.peft.method
    if method in (None, "none"):
        return Unknown(
            f"weights quantised by {label} can be trained only with adapters: train.peft.method is none",
            Cause.not_possible,
        )
    if method not in ADAPTERS[kind]:
        return Unknown(f"adapters of the method {method} over {label} weights are not known", Cause.not_modelled)
    if said.bits is not None and said.bits not in BITS[kind]:
        return Unknown(
            f"{label} weights of {said.bits} bits are not known (known: {', '.join(map(str, BITS[kind]))})",
            Cause.not_modelled,
        )
    backend = (said.backend or "").lower().removeprefix("gptq_")
    if backend in _UNTRAINED:
        return Unknown(
            f"{label}'s kernel {backend} has no backward: train.quantization.backend=torch trains", Cause.not_possible
        )
    if kind == "gptq" and backend not in ("", "auto", "auto_trainable", *GPTQ_KERNELS):
        return Unknown(
            f"train.quantization.backend {backend} of GPTQ is not known (known: {', '.join(GPTQ_KERNELS)})",
            Cause.not_modelled,
        )
    return None


def whole(given: QuantizedWeights) -> float | None:
    """Bytes of an element of the weights that arrive in 16 bits and are quantised on the GPU; None: the checkpoint has
    them quantised."""
    if given.bits is None:
        return 1 if given.type == "int8" else 0.5
    return None if given.type in ("gptq", "awq", "fp8") else 0.4 if given.bits == 3 else given.bits / 8


def least(said: Quantization, size: int) -> float:
    """Bytes of an element, scales left out; of weights that are not quantised, `size`."""
    if said.type in PACKED:
        return (said.bits or min(BITS[str(said.type)])) / 8
    return {"nf4": 0.5, "fp4": 0.5, "int8": 1.0}.get(said.type or "", float(size))


def upcasts(said: Quantization) -> bool:
    """Whether k-bit preparation casts the rest to fp32: peft leaves GPTQ, EETQ, HQQ and torchao as they are
    (utils/other.py, prepare_model_for_kbit_training)."""
    return bool(said.upcast_rest) and said.type not in ("gptq", "eetq", "hqq", "torchao-int8")


def reentrant(job: Job) -> bool | None:
    """Whether checkpointing is of the reentrant kind; None: not known.

    Unless told, transformers makes it so before 5.0 (modeling_utils.py, gradient_checkpointing_enable: True in 4.57.1,
    False in 5.0.0), and TRL not since 0.28 (sft_trainer.py), which needs transformers 4.56.2.
    """
    installed, trl = release(job.software.get("transformers")), release(job.software.get("trl"))
    if job.train.reentrant is not None or installed is None:
        return job.train.reentrant
    if installed >= (5,):
        return False
    if trl is None:
        return True if installed < (4, 56) else None
    return trl < (0, 28)


def weights_of(job: Job, alike: bool, older: bool, recomputed: bool) -> QuantizedWeights:
    """A job's quantised weights; nf4 and fp4 keep and make the same, and double quantisation changes
    what the scales cost (`loading.scales`) and nothing else. `older`: bitsandbytes before 0.43.2."""
    said = job.train.quantization
    if said.type in PACKED:
        return _packed(job)
    four = said.type in ("nf4", "fp4")
    compute = said.compute_dtype or "fp32"
    # lightning/fabric/plugins/precision/bitsandbytes.py: every linear layer, in fp16
    fabric = "litgpt" in job.software or "lightning-fabric" in job.software
    return QuantizedWeights(
        "4bit" if four else "int8",
        ("bf16" if alike and compute == "fp16" else compute) if four else None,
        bool(said.upcast_rest),
        keeps_input=four and older,
        recomputed=recomputed,
        head=fabric,
        loaded="fp16" if fabric else None,
    )


def _packed(job: Job) -> QuantizedWeights:
    said = job.train.quantization
    kind = str(said.type)
    group = said.group_size if said.group_size is not None else GROUPS.get(kind)
    backend = (said.backend or "").lower().removeprefix("gptq_")
    if backend not in GPTQ_KERNELS:
        # optimum's choice with auto_gptq and exllama off; gptqmodel trains by PyTorch's operations.
        backend = "cuda-old" if {"auto-gptq", "auto_gptq"} & set(job.software) else "torch"
    return QuantizedWeights(
        kind,
        None,
        upcasts(said),
        bits=said.bits or (8 if BITS[kind] == (8,) else 4),
        group=None if group == -1 else group,
        backend=backend if kind == "gptq" else None,
    )
