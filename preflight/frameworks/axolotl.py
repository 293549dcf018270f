"""What each kind of argument file says about a job. Defaults: reference versions named at each reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.diffusers import diffusers
from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.launch_files import accelerate, deepspeed, fsdp, lightning
from preflight.frameworks.litgpt import litgpt
from preflight.frameworks.llamafactory import llamafactory
from preflight.frameworks.shared import (
    Found,
    attention,
    checkpointing,
    deepspeed_link,
    lora,
    lora_kind,
    optimizer,
    quantized,
    shrinking,
)
from preflight.frameworks.swift import swift
from preflight.frameworks.torchtune import torchtune
from preflight.frameworks.transformers_trainer import Use, training_arguments
from preflight.frameworks.ultralytics import ultralytics
from preflight.program.bindings import bind, when
from preflight.program.models import table
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Const, Value

_LOADED = {"load_in_4bit": "nf4", "load_in_8bit": "int8"}


def arguments(args: Arguments) -> Found:
    """HfArgumentParser and `trl --config`: transformers' own names, beside the script's."""
    found = Found()
    flavour = _flavour(args)
    if "max_seq_length" in args and "packing" not in args:
        flavour = "transformers"
        found.add("train.seq_len", args.get("max_seq_length"))
    values = args.all()
    use = Use(peft=args.value("use_peft") is True)
    found.bindings += training_arguments(values, flavour, use)
    found.add("model.name", args.get("model_name_or_path"))
    if args.value("use_peft") is True:  # trl.ModelConfig: LoRA unless it says otherwise
        lora(args, found, "lora_r", 16, "lora_dropout", 0.05, "lora_target_modules")
        lora_kind(args, found)
    dtype = next((spelled(args.get(name), DTYPES) for name in ("torch_dtype", "dtype")
                  if name in args and args.value(name) != "auto"), None)  # fmt: skip
    if dtype is not None:
        found.add("train.weights_dtype", dtype)
    quantized(args, found, _LOADED, dtype, args.value("use_bnb_nested_quant") is True)
    attention(args, found, "attn_implementation", table()["attention"])
    if flavour != "transformers":
        found.bindings.append(bind("task", Const("causal-lm"), Rank.default))
    shrinking(args, found)
    deepspeed_link(args, found)
    return found


def _flavour(args: Arguments) -> str:
    """Which of TRL's trainers the file is for, by the command that reads it (`method`) or by its keys."""
    method = args.value("method")
    if isinstance(method, str):
        return method
    if "num_generations" in args or "max_completion_length" in args:
        return "grpo"
    if "max_length" in args or "packing" in args or ("dataset_name" in args and "model_name_or_path" in args):
        return "dpo" if "beta" in args else "sft"
    return "transformers"


def axolotl(args: Arguments) -> Found:
    """axolotl 0.19: micro_batch_size 1 per GPU, sequence_len 512, bf16 "auto", adamw_torch_fused.

    The model is loaded in the 16-bit type that it is trained in (cfg.torch_dtype), adapters are fp32.
    """
    found = Found()
    found.add("model.name", args.get("base_model"))
    found.bindings.append(bind("task", Const("causal-lm"), Rank.default))
    micro = args.get("micro_batch_size", 1)
    found.add("train.batch_size", micro)
    found.add("train.grad_accum", args.get("gradient_accumulation_steps", 1))
    found.add("train.seq_len", args.get("sequence_len", 512))
    packed, padded = args.get("sample_packing", False), args.get("pad_to_sequence_len", False)
    found.add("train.sequences", when(packed, Const("packed"), when(padded, Const("exact"), Const("bound"))))
    _precision(args, found)
    optimizer(args, found, "optimizer", "adamw_torch_fused")
    checkpointing(args, found)
    found.when_true(args, "activation_offloading", "train.activation_offload")
    if args.value("adapter") in ("lora", "qlora"):
        lora(args, found, "lora_r", 8, "lora_dropout", 0.0, "lora_target_modules")
        lora_kind(args, found)
        if args.value("lora_target_linear") is True:
            found.add("train.peft.targets", Const("all-linear", args.origin("lora_target_linear")))
    compute = next((b.expr for b in found.bindings if b.field == "train.weights_dtype"), None)
    quantized(args, found, _LOADED, compute, True)  # bnb_config_kwargs: nf4, double, in cfg.torch_dtype
    if args.some("val_set_size"):
        found.add("validation.batch_size", args.get("eval_batch_size") if "eval_batch_size" in args else micro)
        found.add("validation.seq_len", args.get("eval_sequence_len"))
    found.add("data.workers", args.get("dataloader_num_workers"))
    found.add("data.prefetch", args.get("dataloader_prefetch_factor"))
    for name, kind in (("flash_attention", "flash"), ("sdp_attention", "sdpa"), ("eager_attention", "eager")):
        found.when_true(args, name, "train.attention", kind)
    attention(args, found, "attn_implementation", table()["attention"])
    found.add("train.compile", args.get("torch_compile"))
    _axolotl_loss(args, found)
    if args.some("fsdp") or args.some("fsdp_config"):
        stated = "fsdp" if args.some("fsdp") else "fsdp_config"
        found.add("parallel.strategy", Const("fsdp", args.origin(stated)))
        version = {"version": args.get("fsdp_version")} if "fsdp_version" in args else {}
        settings = fsdp_settings({**args.inner("fsdp_config").all(), **version}, 1)
        found.bindings += [b for b in settings if b.field != "parallel.strategy"]
        if "offload" in str(args.value("fsdp")):
            found.add("parallel.offload", Const("parameters", args.origin("fsdp")))
    found.add("parallel.tensor", args.get("tensor_parallel_size"))
    deepspeed_link(args, found)
    return found


def _axolotl_loss(args: Arguments, found: Found) -> None:
    """Liger's and Apple's kernels never have the logits whole; both are switched on key by key, plugins alone do
    nothing (axolotl/integrations/{liger,cut_cross_entropy}/args.py)."""
    for name in ("liger_fused_linear_cross_entropy", "cut_cross_entropy"):
        found.when_true(args, name, "train.loss", "fused")
    plugins = args.value("plugins")
    cut = isinstance(plugins, tuple) and any("CutCrossEntropyPlugin" in str(one) for one in plugins)
    if cut and args.value("cut_cross_entropy") is None:  # its default is yes
        found.add("train.loss", Const("fused", args.origin("plugins")))
    if args.value("chunked_cross_entropy") is True:
        found.add("train.loss", Const("chunked", args.origin("chunked_cross_entropy")))


def _precision(args: Arguments, found: Found) -> None:
    for name, value in (("fp16", "fp16-mixed"), ("bf16", "bf16-mixed"), ("bfloat16", "bf16"), ("float16", "fp16")):
        given = args.value(name)
        if given is True or given in ("true", "full"):
            found.add("train.precision", Const("bf16" if given == "full" else value, args.origin(name)))
            found.add("train.weights_dtype", Const(value[:4], args.origin(name)))
    if not found.has("train.precision") and args.value("bf16") in (None, "auto"):
        found.default("train.precision", "bf16-mixed")
        found.default("train.weights_dtype", "bf16")


READERS: Mapping[str, Callable[[Arguments], Found]] = {
    "arguments": arguments, "axolotl": axolotl, "llamafactory": llamafactory, "accelerate": accelerate,
    "deepspeed": deepspeed, "fsdp": fsdp, "lightning": lightning, "torchtune": torchtune, "litgpt": litgpt,
    "swift": swift, "diffusers": diffusers, "ultralytics": ultralytics,
}  # fmt: skip

FRAMEWORKS: Mapping[str, Value] = {"lightning": "lightning", "torchtune": "hand-written", "litgpt": "hand-written",
                                    "diffusers": "hand-written", "ultralytics": "ultralytics"}  # fmt: skip
"""What runs the steps, where it is not transformers' Trainer."""
