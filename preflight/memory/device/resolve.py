"""Resolving a Job: from the model that it names to the key of its law."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.law import catalogue, quantization
from preflight.memory.device.law.workload import Config, Resolved, WorkloadRequest
from preflight.memory.device.workloads import image_models, registry
from preflight.vocabulary.batch_statistics import type_of
from preflight.vocabulary.budgets import MODEL_LAYERS
from preflight.vocabulary.caches import regex
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown

_TASKS = {
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForImageClassification": "image-classification",
    "T5ForConditionalGeneration": "seq2seq-lm",
    "WhisperForConditionalGeneration": "speech-seq2seq",
    "CLIPModel": "contrastive",
}
"""Tasks by how the names of transformers' classes end."""


def resolve(job: Job, gpu: Gpu | None = None, tracing: Tracing = TRACE) -> Resolved | Unknown:
    """The key of a job's law, or why there is none. The reason names the Job field that is missing.

    `gpu` decides which attention kernels there are; None: one of compute capability 8.0 or later. `tracing`: what no
    shipped law covers is resolved as it can be traced.
    """
    job = quantization.stated(job)
    unfit = quantization.unfit(job)
    found = _resolve(job, gpu, tracing) if unfit is None else unfit
    return found if isinstance(found, Unknown) or job.model.law is None else replace(found, law=job.model.law)


def _resolve(job: Job, gpu: Gpu | None, tracing: Tracing) -> Resolved | Unknown:
    model = _named(job)
    if isinstance(model, Unknown):
        return model
    how = catalogue.quantised_by(model.config)
    if how is not None and how.lower() != job.train.quantization.type:
        return quantization.refused(model.name, how)
    if not job.task and model.task:
        job = job.model_copy(update={"task": model.task})
    asked = WorkloadRequest(job, model.name, model.architecture, model.config, model.target, gpu, tracing)
    try:
        found = registry.kind_of(asked).resolve(asked)
    except ZeroDivisionError:  # a family divides its dimensions by each other
        return Unknown(f"a dimension in model.config of {model.name} is 0", Cause.invalid, ("model.config",))
    if not isinstance(found, Unknown) and any(_is_layers(name, size) for name, size in found.dims.items()):
        return Unknown(f"{model.name} is {MODEL_LAYERS.over}", Cause.budget, ("model.config",))
    return found


def _is_layers(name: str, size: object) -> bool:
    """Whether a dimension counts too many layers; the names of all that do begin so (L, Le, Ld, Lt, Lv)."""
    return name.startswith("L") and isinstance(size, int) and size > MODEL_LAYERS


def is_known(name: str) -> bool:
    """Whether preflight itself knows a model by its name, without a look at this machine's files."""
    return catalogue.find(name) is not None or target_of(name) is not None


def target_of(name: str) -> str | None:
    """The import target that a name means; None for any other name."""
    plain = name.strip().rstrip("/")
    return image_models.spelled(plain) or registry.target_of(plain) or image_models.shipped(plain)


def model_of_folder(path: str) -> str | None:
    """The hub id of the model that a folder is named after; None for no folder, for one that is there, and where no
    model has its name."""
    plain = path.strip().rstrip("/")
    folder, _, last = plain.rpartition("/")
    if not (plain.startswith(("/", ".", "~")) or "/" in folder) or not last or catalogue.find(plain) is not None:
        return None
    found = catalogue.find(last)
    if found is None or found.target is not None or catalogue.read_config(path) is not None:
        return None
    owner = found.name.rpartition("/")[0]
    return f"{owner}/{last}" if owner and catalogue.find(f"{owner}/{last}") is not None else found.name


_SIZE = regex(r"(?:^|[-_/])(\d+(?:\.\d+)?)([bm])(?=$|[-_/.])", re.IGNORECASE)
"""`7B` of `Taiwan-LLM-7B-v2.0-chat`, a word of its own: not `8x7B`, `A3B` or `Qwen2.5B`."""
_FEWER_BITS = regex(r"awq|gptq|gguf|exl2|mlx|bnb|nf4|int[48]|fp[48]|\d[-_]?bit", re.IGNORECASE)
_SIZES = (Decimal("0.1"), Decimal(1000))
"""Billions of parameters that a name may speak of."""
_ROUNDED = Decimal("0.9")
"""Names round: Llama 2 70B has 69.0 billion, and `8B` is also written of 7.6."""


def least_by_name(name: str) -> int | None:
    """At least how many parameters a model has whose name says its size (`org/Some-8B-Instruct`) and that nothing else
    tells; None where the name says none or several, and of weights that may be kept in fewer bits."""
    if is_known(name) or model_of_folder(name) is not None or catalogue.read_config(name) is not None:
        return None
    last = name.strip().rstrip("/").rpartition("/")[2]
    found = {(match[1], match[2].lower()) for match in _SIZE.finditer(last)}
    if len(found) != 1 or _FEWER_BITS.search(last):
        return None
    digits, unit = found.pop()
    size = Decimal(digits)
    if unit != "b" or not _SIZES[0] <= size <= _SIZES[1]:
        return None  # millions are also written of tokens and of molecules
    half = Decimal(5).scaleb(-1 - len(digits.partition(".")[2]))
    return int(min(size - half, size * _ROUNDED) * 10**9)


class _Named(Struct, frozen=True):
    """A model as its job, the catalogue or a config.json describes it."""

    name: str
    architecture: str
    task: str
    config: Config
    target: str | None = None


def _named(job: Job) -> _Named | Unknown:
    model = job.model
    known = catalogue.find(model.name) if model.name else None
    if model.architecture and model.config is not None:
        task = job.task or _task_of(model.architecture)
        architecture = type_of(model.architecture) or model.architecture
        return _Named(model.name or model.architecture, architecture, task, model.config)
    if model.target:
        known = catalogue.find(model.target)
        if known is not None and known.target is None:
            return _Named(known.name, known.architecture, known.task, {**known.config, **(model.config or {})})
        target = target_of(model.target) or model.target
        return _Named(target, "", "image-classification", model.kwargs or {}, target)
    image = target_of(model.name) if model.name else None
    if image is not None and (known is None or ":" in str(model.name)):
        return _Named(image, "", "image-classification", model.kwargs or {}, image)
    if known is not None and known.unknown is not None:
        return Unknown(f"no law holds for {known.name}: {known.unknown}", Cause.no_law)
    if known is not None and known.quantised and known.quantised.lower() != job.train.quantization.type:
        return quantization.refused(str(model.name), known.quantised)
    if known is not None:
        config = {**known.config, **(model.config or {})}
        return _Named(known.name, known.architecture, known.task, config, known.target)
    for path in (model.path, model.name):
        read = catalogue.read_config(path) if path else None
        if read is not None:
            kinds = read.get("architectures") or [""]
            task = _task_of(str(kinds[0]))
            architecture = str(read.get("model_type") or read.get("_class_name", ""))  # diffusers has the latter
            return _Named(str(path), architecture, task, {**read, **(model.config or {})})
    if model.name:
        return Unknown(catalogue.unknown_words(model.name), Cause.model_unknown)
    if model.path:
        return Unknown(f"{model.path} is no folder of a model: it has no config.json", Cause.model_unknown)
    if model.parameters or model.least_parameters:
        words = "the parameters of the model are known, and not what it keeps for the backward pass"
        return Unknown(words, Cause.model_unknown)
    return Unknown(
        "the model is not known: no file that was read names one that preflight knows, or gives its dimensions",
        Cause.model_unknown,
    )


def _task_of(name: str) -> str:
    """The task of a class of transformers; "" of any other name."""
    return next((task for ending, task in _TASKS.items() if name.endswith(ending)), "")


_ENOUGH = {"train.batch_size": 1, "train.seq_len": 8192, "train.text_len": 8}
"""Lengths with which a model can be looked up. They change nothing about what is taken for the other fields."""

_SIDE = "train.image_size"


def taken_by_law(job: Job, tracing: Tracing) -> Mapping[str, str]:
    """Fields that a job does not state and that a law takes a value for, though neither a library nor the model has
    one, each with the reason in words; none where no kind of model is known.

    `tracing` is that of the estimate: kinds of models that are only traced are asked about where traces are allowed.
    """
    one = unchecked(job, {name: value for name, value in _ENOUGH.items() if job.get(name) is None})
    found = resolve(one, None, tracing)
    if isinstance(found, Unknown) and _SIDE in found.fields:
        found = resolve(unchecked(one, {_SIDE: 224}), None, tracing)
    return {} if isinstance(found, Unknown) else found.workload.assumes(job, found)
