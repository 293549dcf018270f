"""From a Job to what its law is looked up by: the family, its dimensions, and the setup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from preflight.memory.device import adapters, quantization
from preflight.memory.device.attention import attention, kernel, window
from preflight.memory.device.families import Family, family_of, unlike
from preflight.memory.device.families.activations import unusual
from preflight.memory.device.fit.one_model import depth_key
from preflight.memory.device.law import catalogue
from preflight.memory.device.law.catalogue import read_config
from preflight.memory.device.workloads import litgpt
from preflight.memory.device.workloads.image_models import VALUES_ONLY, target_of, usual_size
from preflight.memory.device.workloads.remote import Likeness, likeness
from preflight.vocabulary.job import Job, Peft
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.values import Cause, Unknown, missing

# Other names that configs and hand-written programs give to a family's keys.
_SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in (
        "hidden_size n_embd d_model dim",
        "num_hidden_layers n_layer n_layers num_layers encoder_layers",
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads",
        "num_key_value_heads n_kv_head n_kv_heads",
        "intermediate_size n_inner d_ff hidden_dim ffn_dim encoder_ffn_dim",
        "max_position_embeddings n_positions n_ctx block_size max_target_positions",
    )
)
SAME_CODE = {"xlm-roberta": "roberta", "mistral": "llama", "camembert": "roberta", "deberta_v2": "deberta-v2"}
"""Architectures whose tape is another's, event by event (mistral: within its sliding window)."""
_TASKS = {
    "ForCausalLM": "causal-lm", "LMHeadModel": "causal-lm", "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification", "ForTokenClassification": "token-classification",
    "ForImageClassification": "image-classification", "T5ForConditionalGeneration": "seq2seq-lm",
    "WhisperForConditionalGeneration": "speech-seq2seq", "CLIPModel": "contrastive",
}  # fmt: skip


NEWEST = (99, 0)
RANKED = ("lora", "rslora", "dora", "adalora", "loha", "lokr")
"""Methods of peft whose adapters stand beside linear layers."""


@dataclass(frozen=True)
class Resolved:
    """What a law is looked up by. `dims` holds every dimension but lengths; `lengths` those that the Job states."""

    family: Family | None
    task: str
    dims: Mapping[str, int]
    lengths: Mapping[str, int]
    structure: Mapping[str, object]
    setup: Mapping[str, Any]
    model: Mapping[str, Any]
    """The tracer's description, for models and setups that no shipped law knows."""
    name: str
    law: str | None = None
    """A file of the user's that holds the law."""
    like: Likeness | None = None
    """How a model of remote code is reckoned."""

    @property
    def all_dims(self) -> dict[str, int]:
        return {**self.dims, **self.lengths}


def resolve(job: Job, gpu: Gpu | None = None) -> Resolved | Unknown:
    """The law's key for a job, or why there is none (the reason names the Job field that is missing).

    `gpu` decides which attention kernels there are; None: one of compute capability 8.0 or later.
    """
    job = quantization.stated(job)
    unfit = quantization.unfit(job)
    found = _resolve(job, gpu) if unfit is None else unfit
    return found if isinstance(found, Unknown) or job.model.law is None else replace(found, law=job.model.law)


def _resolve(job: Job, gpu: Gpu | None) -> Resolved | Unknown:
    found = _model(job)
    if isinstance(found, Unknown):
        return found
    name, architecture, task, config, target = found
    how = catalogue.quantised_by(config)
    if how is not None and how.lower() != job.train.quantization.type:
        return quantization.refused(name, how)
    task = job.task or task
    from preflight.memory.device.workloads import registry as others  # which need Resolved

    other = others.resolver(target or architecture, task)
    if other is not None:
        known = job if job.task or not task else job.model_copy(update={"task": task})
        return other(known, name, target or architecture, config, gpu)
    if target is not None:
        return _of_target(job, name, target, config)
    like = likeness(architecture, config)
    if like is not None:
        try:
            architecture, config = like.architecture, like.config(config)
        except (KeyError, TypeError) as error:
            return _undescribed(architecture, error)
    reach = window(architecture, config)
    architecture = SAME_CODE.get(architecture, architecture)
    foreign = litgpt.litgpt(job, architecture, config)
    if foreign is not None:
        if _can_trace():
            return _of_litgpt(job, name, foreign, gpu)
        like = litgpt.stand_in(job, architecture)
    family = family_of(architecture, config)
    changed = unlike(architecture, config)
    if changed is not None:
        name = f"{name} with {changed}={config[changed]!r}"
    if job.train.peft.method not in (None, "none") and not adapters.is_lora_alone(job.train.peft):
        family = None  # other adapters have dimensions of their own: such a model is traced as it is
    if job.train.vocab_size is not None:
        config = {**config, "vocab_size": job.train.vocab_size}
        if architecture == "clip":
            config["text_config"] = {**config.get("text_config", {}), "vocab_size": job.train.vocab_size}
    if family is not None:
        config = normalise(family, config)
        if task not in family.tasks:
            task = family.tasks[0] if not task or task == "other" else task
    model: dict[str, Any] = {"architecture": architecture, "task": task, "config": {**config}}
    if family is None:
        lengths = _lengths(job, None, {}, task)
        if isinstance(lengths, Unknown):
            return lengths
        setup = setup_of(job, None, config, gpu)
        if adapters.names_layers(job.train.peft):
            model["whole"] = True
        depth = depth_key(model)
        dims = {"L": config[depth]} if depth is not None else {}
        return setup if isinstance(setup, Unknown) else Resolved(None, task, dims, lengths, {}, setup, model, name)
    try:
        dims = family.dims(config)
    except (KeyError, TypeError) as error:
        return _undescribed(architecture, error)
    for dimension, value in dims.items():
        if not isinstance(value, int) or value < 1:
            return Unknown(f"model.config of the {architecture} model has {value!r} for {dimension}", Cause.invalid)
    setup = setup_of(job, family, config, gpu, like, reach)
    if isinstance(setup, Unknown):
        return setup
    lengths = _lengths(job, family, dims, task)
    if isinstance(lengths, Unknown):
        return lengths
    if setup.get("peft"):
        dims = {**dims, "r": job.train.peft.r or 8}
    structure = {key: config.get(key, default) for key, default in family.structure.items()}
    structure |= {**family.coinciding(dims), **unusual(family, config)}
    fixed = {key: value for key, value in dims.items() if key not in lengths}
    return Resolved(family, task, fixed, lengths, structure, setup, model, name, like=like)


def normalise(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the family's own spelling for every key that another spelling of was given."""
    own = set(family.config(dict.fromkeys((*family.named, *family.depths.values(), "i", "r", "L", "Ld", "Lt"), 8)))
    found = dict(config)
    for group in _SYNONYMS:
        mine = own & group
        others = [key for key in config if key in group and key not in own]
        if len(mine) == 1 and others and not mine & set(config):
            found[next(iter(mine))] = config[others[0]]
    return found


def _undescribed(architecture: str, error: KeyError | TypeError) -> Unknown:
    """What the description of a model lacks, or has of another type."""
    key = str(error).strip("'")
    fields = (f"model.config.{key}",) if isinstance(error, KeyError) else ()
    return Unknown(f"model.config.{key} of the {architecture} model is not known", Cause.not_set, fields)


def _model(job: Job) -> tuple[str, str, str, dict[str, Any], str | None] | Unknown:
    """(name, architecture, task, config, target)."""
    model = job.model
    known = catalogue.find(model.name) if model.name else None
    if model.architecture and model.config is not None:
        architecture = model.architecture.replace("_", "-")
        return model.name or model.architecture, architecture, job.task or "", dict(model.config), None
    if model.target:
        known = catalogue.find(model.target)
        if known is not None and known.target is None:
            return known.name, known.architecture, known.task, {**known.config, **(model.config or {})}, None
        target = target_of(model.target) or model.target
        return target, "", "image-classification", dict(model.kwargs or {}), target
    image = target_of(model.name) if model.name else None
    if image is not None and (known is None or ":" in str(model.name)):
        return image, "", "image-classification", dict(model.kwargs or {}), image
    if known is not None and known.unknown is not None:
        return Unknown(f"no law holds for {known.name}: {known.unknown}", Cause.no_law)
    if known is not None and known.quantised and known.quantised.lower() != job.train.quantization.type:
        return quantization.refused(str(model.name), known.quantised)
    if known is not None:
        return known.name, known.architecture, known.task, {**known.config, **(model.config or {})}, known.target
    for path in (model.path, model.name):
        config = read_config(path) if path else None
        if config is not None:
            kinds = config.get("architectures") or [""]
            task = next((t for ending, t in _TASKS.items() if str(kinds[0]).endswith(ending)), "")
            architecture = str(config.get("model_type") or config.get("_class_name", ""))  # diffusers has the latter
            return str(path), architecture, task, {**config, **(model.config or {})}, None
    if model.name:
        near = catalogue.nearest(model.name)
        return Unknown(
            f"model {model.name} is not in the catalogue" + (f" (near: {', '.join(near)})" if near else ""),
            Cause.model_unknown,
        )
    return Unknown(
        "the model is not known: no model.name, model.architecture with model.config, or model.path",
        Cause.model_unknown,
    )


def setup_of(job: Job, family: Family | None, config: Mapping[str, Any], gpu: Gpu | None = None,
             like: Likeness | None = None, reach: int | None = None) -> dict[str, Any] | Unknown:  # fmt: skip
    """The tracer's setup of a job: what a forward and backward tape depends on beside dimensions. `like`: the model's
    own code stands where transformers' does. `reach`: positions that each one attends to, where not all before it."""
    train = job.train
    if train.precision is None:
        return missing("train.precision")
    half = train.precision in ("bf16", "fp16")
    mixed = train.precision.endswith("-mixed")
    quantized = train.quantization.type not in (None, "none")
    # What is quantised was loaded in 16 bits, whatever computes (transformers, quantizers/quantizer_bnb_4bit.py).
    loaded = train.precision.removesuffix("-mixed").replace("fp32", "fp16") if quantized else "fp32"
    weights = train.weights_dtype or (train.precision if half else loaded)
    if train.gradient_checkpointing is None:
        return missing("train.gradient_checkpointing")
    installed = job.software.get("transformers") if like is None else None
    asked, mask = attention(job, family, release(installed), like.attention if like is not None else None, reach)
    in_half = mixed or (half and not (quantized and quantization.upcasts(train.quantization)))
    chosen = kernel(asked, mask, in_half, gpu)
    if chosen in ("sdpa", "flash") and litgpt.repeats_keys(job):
        chosen = "efficient"  # which has a key and a value for each query head too
    # 16-bit formats have tapes of one shape, and bf16 stands for both, but for a softmax written out: CUDA widens fp16
    # within the kernel and bf16 before it.
    alike = chosen not in ("eager", "math")
    setup: dict[str, Any] = {
        "weights": "bf16" if weights == "fp16" and alike else weights,
        "autocast": ("bf16" if alike else train.precision.removesuffix("-mixed")) if mixed else None,
        "attention": chosen,
        "mask": mask or (chosen == "eager" and (family is None or family.padded)),
        "checkpointing": bool(train.gradient_checkpointing),
        "peft": None,
    }
    if quantized:
        older = (release(job.software.get("bitsandbytes")) or NEWEST) < (0, 43, 2)
        setup["quantization"] = quantization.options(job, alike, older)
    if family is not None and "causal-lm" in family.tasks:
        # Remote code has a loss of its own: it shifts 16-bit logits, so it peaks as today's does, in backward.
        loss = loss_of(train.loss, installed)
        if loss is not None:
            setup["loss"] = loss
    if train.activation_offload:
        setup["offload"] = True
    if train.frozen:
        setup["frozen"] = list(train.frozen)
    if train.peft.method not in (None, "none"):
        targets = _targets(train.peft, family, like)
        method = "lora" if train.peft.method == "rslora" else train.peft.method
        setup["peft"] = {"method": method, "targets": targets, "dropout": bool(train.peft.dropout)}
        if train.peft.dtype in ("bf16", "fp16"):
            setup["peft"]["half"] = "bf16" if alike else train.peft.dtype
        if family is None:
            setup["peft"] |= adapters.traced(train.peft)
    return setup


def _targets(peft: Peft, family: Family | None, like: Likeness | None) -> list[str] | str | None:
    """Layers that adapters stand beside, in the names of the law; None: peft's own default for the model's type."""
    targets = peft.targets
    if targets is None and peft.method in RANKED:
        targets = list(like.targets) if like is not None and like.targets else None
        if targets is None:
            return list(family.lora_targets) if family is not None else None
    if like is None or not isinstance(targets, list):
        return targets
    named = (other for name in targets for other in like.modules.get(name, (name,)))
    return list(dict.fromkeys(named))


def loss_of(asked: str | None, transformers: str | None) -> str | None:
    """How a causal language model's loss is computed (tracer/losses.py); None: as today's transformers does.

    Releases before 4.49 copied the shifted logits, those before 4.46 handed out fp32 ones (loss/loss_utils.py and
    modeling_llama.py of 4.31 to 5.0).
    """
    if asked in ("chunked", "fused"):
        return asked
    version = release(transformers) or NEWEST
    if version >= (4, 49):
        return None
    return "shifted" if version >= (4, 46) else "shifted-out"


def release(version: str | None) -> tuple[int, ...] | None:
    """The numbers of a version; None where there is none."""
    numbers = re.findall(r"\d+", (version or "").partition("+")[0])[:3]
    return tuple(int(n) for n in numbers) or None


def _lengths(job: Job, family: Family | None, dims: Mapping[str, int], task: str) -> dict[str, int] | Unknown:
    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    lengths = {"b": train.batch_size}
    needed = set(family.named) if family is not None else ({"n"} if task == "image-classification" else {"s"})
    if "n" in needed:
        image = train.image_size or dims.get("i", 224)
        side = image // dims.get("p", 16)
        lengths |= {"n": side * side, "m": side * side + (family.tokens if family is not None else 1), "i": image}
    if "s" in needed and task != "speech-seq2seq":
        if train.seq_len is None:
            return missing("train.seq_len")
        lengths["s"] = train.seq_len
    if "t" in needed:
        target = train.text_len if task == "contrastive" else train.target_len
        if target is None and task == "contrastive":
            target = dims.get("P", 77)  # CLIP's tokenizer pads to its context of positions
        if target is None:
            return missing("train.target_len")
        lengths["t"] = target
    longest = dims.get("P")
    for name in ("s", "t"):
        if longest is not None and lengths.get(name, 0) > longest and task not in ("speech-seq2seq",):
            return Unknown(f"length {lengths[name]} is more than the model's {longest} positions", Cause.not_possible)
    return lengths


def _of_target(job: Job, name: str, target: str, config: Mapping[str, Any]) -> Resolved | Unknown:
    """An image model by import target: its law is a function of the batch at one image size."""
    setup = setup_of(job, None, {})
    if isinstance(setup, Unknown):
        return setup
    if job.train.batch_size is None:
        return missing("train.batch_size")
    image = job.train.image_size or int(config.get("image_size", usual_size(target)))
    kwargs = {k: v for k, v in (job.model.kwargs or {}).items() if k not in VALUES_ONLY}
    model = {"target": target, "kwargs": kwargs, "task": "image-classification", "image_size": image}
    # What the user says is believed where it can be traced; shipped laws are of scaled_dot_product_attention.
    written_out = job.train.attention in ("eager", "math") and _can_trace()
    setup = {**setup, "attention": "math" if written_out else "sdpa", "mask": False,
             "channels_last": bool(job.train.channels_last)}  # fmt: skip
    return Resolved(None, "image-classification", {}, {"b": job.train.batch_size, "i": image}, {}, setup, model, name)


def _can_trace() -> bool:
    from preflight.memory.device.fit.subprocess import (
        TRACING,  # which needs Resolved
        has_torch,
    )

    return TRACING.allowed and has_torch(TRACING.interpreter)


def _of_litgpt(job: Job, name: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """A checkpoint that litgpt runs with its own code, which passes no mask and takes its head in pieces of the length:
    a law of one length."""
    setup = setup_of(job, None, config, gpu)
    lengths = _lengths(job, None, {}, "causal-lm")
    if isinstance(setup, Unknown):
        return setup
    if isinstance(lengths, Unknown):
        return lengths
    if setup["peft"]:
        setup["peft"] = {**setup["peft"], "targets": litgpt.switches(job.train.peft.targets)}
    # The loss takes 128 positions at a time beside adapters, and else 128 rows of the batch (tracer/litgpt.py).
    steps_with = ["s"] if setup["peft"] else ["b", "s"]
    model = {"kind": "litgpt", "task": "causal-lm", "config": dict(config), "steps_with": steps_with}
    dims = {"L": config["n_layer"]}
    return Resolved(None, "causal-lm", dims, lengths, {}, {**setup, "mask": False}, model, name)
