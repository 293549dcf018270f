"""Models on the meta device, from descriptions: an architecture with its config, or an import target."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from . import adapters, building, compiled, fused_kernels, listed_experts, losses, quantized
from .building import CannotBuild
from .reimplementations import resnet

AUTO_CLASSES = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "contrastive": "AutoModel",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
}
OTHERS = {
    "denoisers": ".denoisers",
    "dense": ".dense",
    "detectors": ".reimplementations.detectors",
    "embeddings": ".embeddings",
    "litgpt": ".reimplementations.litgpt",
    "own": ".own",
    "perception": ".perception",
    "pictures": ".pictures",
    "speech": ".speech",
    "yolo": ".reimplementations.yolo",
}
"""`model["kind"]` -> the module that builds such a model and makes its batches, for all that is no transformer of
transformers with a task of AUTO_CLASSES."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def build(model: dict[str, Any], setup: dict[str, Any]) -> torch.nn.Module:
    """A model in training mode on the meta device, cast, frozen and adapted as the setup says.

    `model`: {"architecture", "config", "task"} or {"target", "kwargs"}. `setup`: weights ("fp32", "bf16", "fp16"),
    attention, checkpointing, peft ({method, r, targets, ...} or None), frozen (module name prefixes), loss, kernels
    (`fused_kernels`), experts ("listed": `listed_experts`), compile ("layers", "all": with the loss, or None).
    """
    if model.get("kind") in OTHERS:
        other: torch.nn.Module = _other(model).build(model, setup, DTYPES)
        return other
    with torch.device("meta"):
        built = build_target(model) if model.get("target") else _from_config(model, setup)
    built = built.train().to(DTYPES[setup.get("weights", "fp32")])
    if setup.get("experts") == "listed":
        listed_experts.install(built, model["architecture"])
    if setup.get("quantization"):
        quantized.quantise(built, setup["quantization"], DTYPES)
    building.freeze(built, setup.get("frozen", ()))
    if setup.get("peft"):
        options = {**setup["peft"], "half": DTYPES.get(setup["peft"].get("half") or "")}
        if setup.get("quantization") and options.get("method") == "dora":
            quantized.dequantise_for_dora()
        built = adapters.adapt(built, options, model.get("task", ""))
        quantized.adapt_forwards(built, bool(setup.get("autocast")))
    fused_kernels.install(built, setup.get("kernels") or [])
    compiles_loss = setup.get("compile") == "all"
    if setup.get("loss") or compiles_loss:
        inner = built.get_base_model() if setup.get("peft") else built
        losses.install(
            inner,
            setup.get("loss"),
            compiled.function if compiles_loss else None,
            DTYPES.get(setup.get("autocast") or ""),
        )
    return built


def _other(model: dict[str, Any]) -> Any:
    return importlib.import_module(OTHERS[model["kind"]], __package__)


def _from_config(model: dict[str, Any], setup: dict[str, Any]) -> torch.nn.Module:
    import transformers

    if model["architecture"] not in transformers.CONFIG_MAPPING:
        raise CannotBuild(f"transformers {transformers.__version__} has no model type {model['architecture']}")
    config = transformers.AutoConfig.for_model(model["architecture"], **model.get("config", {}))
    for part in (config, *(getattr(config, n, None) for n in ("text_config", "vision_config"))):
        if part is not None and hasattr(part, "use_cache"):
            part.use_cache = False
    if model["task"] == "sequence-classification" and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0  # decoders refuse batches without one (GPT2ForSequenceClassification.forward)
    try:
        made: torch.nn.Module = building.from_config(getattr(transformers, AUTO_CLASSES[model["task"]]), config, setup)
    except ValueError as error:
        raise CannotBuild(str(error)) from error
    return made


def build_target(model: dict[str, Any]) -> torch.nn.Module:
    """A model by its import target."""
    home, _, name = model["target"].partition(":")
    kwargs = model.get("kwargs") or {}
    if home == "timm":
        return building.make_timm(name, model.get("image_size"), kwargs)
    if home == "torchvision":
        try:
            make = getattr(importlib.import_module("torchvision.models"), name)
            return building.on_meta(lambda: make(**kwargs))
        except ImportError:
            made = resnet.make(name, **kwargs)
            if made is None:
                raise CannotBuild("torchvision is not installed in this interpreter") from None
            return made
    module, _, attribute = model["target"].rpartition(".")
    return getattr(importlib.import_module(module), attribute)(**kwargs)


def enable_checkpointing(model: torch.nn.Module, context_fn: Any) -> None:
    """Non-reentrant checkpointing of every layer; `context_fn` brings the CUDA emulation into the recomputation."""
    if hasattr(model, "set_grad_checkpointing"):
        building.checkpoint_timm(model, context_fn)
        return
    base = getattr(model, "base_model", model)
    base = getattr(base, "model", base) if hasattr(base, "peft_config") else base
    for adapter in getattr(model, "peft_config", {}).values():
        if adapter.peft_type.value == "PREFIX_TUNING":  # peft_model.py, PeftModel.__init__
            raise CannotBuild("peft refuses prefix tuning under gradient checkpointing")
    if not hasattr(base, "gradient_checkpointing_enable"):
        raise CannotBuild(
            f"{type(base).__name__} has no built-in gradient checkpointing: what a program checkpoints "
            "of it is not known"
        )
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": context_fn})
    if hasattr(model, "peft_config") and hasattr(base, "enable_input_require_grads"):
        base.enable_input_require_grads()


def inputs(model: dict[str, Any], point: dict[str, int], mask: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A batch of the task, on meta. Point: b (batch), s (length), t (target or text length), i (image size)."""
    if model.get("kind") in OTHERS:
        others: dict[str, torch.Tensor] = _other(model).inputs(model, point, dtype)
        return others
    b, s, t, image = (point.get(key, 1) for key in ("b", "s", "t", "i"))

    def ids(length: int) -> torch.Tensor:
        return torch.zeros(b, length, dtype=torch.int64, device="meta")

    task = model["task"]
    if task in ("causal-lm", "masked-lm", "token-classification"):
        batch = {"input_ids": ids(s), "labels": ids(s)}
    elif task == "sequence-classification":
        batch = {"input_ids": ids(s), "labels": torch.zeros(b, dtype=torch.int64, device="meta")}
    elif task == "seq2seq-lm":
        batch = {"input_ids": ids(s), "labels": ids(t)}
    elif task == "speech-seq2seq":
        mel = model.get("config", {}).get("num_mel_bins", 80)
        return {"input_features": torch.zeros(b, mel, 2 * s, device="meta", dtype=dtype), "labels": ids(t)}
    else:
        channels = (model.get("kwargs") or {}).get("in_chans", point.get("c", 3))  # timm's word
        pixels = torch.zeros(b, channels, image, image, device="meta", dtype=dtype)
        if task == "contrastive":
            batch = {"input_ids": ids(t), "pixel_values": pixels}
            return {**batch, "attention_mask": ids(t)} if mask else batch
        return {"pixel_values": pixels, "labels": torch.zeros(b, dtype=torch.int64, device="meta")}
    return {**batch, "attention_mask": ids(s)} if mask else batch
