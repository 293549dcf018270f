"""LLaMA-Factory (0.9.5): transformers' arguments, its own for models, adapters and data.

Read from src/llamafactory/hparams, model/adapter.py, model/loader.py and train/*/workflow.py.
"""

from __future__ import annotations

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.images import LLAMAFACTORY, LLAMAFACTORY_PIXELS, pictures
from preflight.frameworks.shared import Found, attention, deepspeed_link, lora, lora_kind, shrinking
from preflight.frameworks.transformers_trainer import Use, training_arguments
from preflight.program.bindings import bind, first_origin, fold, when
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.records import replace
from preflight.vocabulary.values import Cause, Const, Op, Unknown

_ATTENTION = {"fa2": "flash", "fa3": "flash", "sdpa": "sdpa", "disabled": "eager"}
"""flash_attn; "auto" is whatever transformers takes."""
_WITHOUT_REFERENCE = ("orpo", "simpo")
_LOWRANK = (("use_galore", "galore-adamw", "galore_layerwise"), ("use_apollo", "apollo-adamw", "apollo_layerwise"),
            ("use_badam", "badam", None))  # fmt: skip


def llamafactory(args: Arguments) -> Found:
    """`llamafactory-cli train`: cutoff_len 2048, checkpointing unless it is switched off."""
    found = Found()
    values = dict(args.all())
    disabled = args.get("disable_gradient_checkpointing", False)
    values["gradient_checkpointing"] = fold(Op("not", (disabled,)), first_origin(disabled))
    if "enable_liger_kernel" in args:
        values["use_liger_kernel"] = args.get("enable_liger_kernel")
    evaluates = args.some("val_size") or "eval_dataset" in args
    found.bindings += _pairs(args, training_arguments(values, "transformers", Use(evaluates=evaluates)))
    found.add("model.name", args.get("model_name_or_path"))
    found.bindings.append(bind("task", Const("causal-lm"), Rank.default))
    found.add("train.seq_len", args.get("cutoff_len", 2048))
    packing = args.get("packing", args.value("stage") == "pt")  # packed by itself where the text is only read
    packing = args.get("neat_packing") if args.value("neat_packing") is True else packing
    found.add("train.sequences", when(packing, Const("packed"), Const("bound")))
    _tuned(args, found)
    pictures(args, found, "model_name_or_path", LLAMAFACTORY, ("image_max_pixels", LLAMAFACTORY_PIXELS))
    _quantized(args, found)
    attention(args, found, "flash_attn", _ATTENTION)
    for name in ("use_unsloth", "use_unsloth_gc"):
        found.when_true(args, name, "train.activation_offload")
    _optimizers(args, found)
    _references(args, found)
    shrinking(args, found)
    deepspeed_link(args, found)
    return found


def _pairs(args: Arguments, bindings: list[Binding]) -> list[Binding]:
    """Preferences: chosen and rejected go through together."""
    if args.value("stage") not in ("dpo", "rm"):
        return bindings
    return [
        replace(b, expr=Op("*", (b.expr, Const(2)), first_origin(b.expr))) if b.field == "train.batch_size" else b
        for b in bindings
    ]


def _tuned(args: Arguments, found: Found) -> None:
    """What trains, and in what the weights are kept: those that train in fp32 unless training is purely 16-bit."""
    method = args.value("finetuning_type")
    half = next((name for name in ("bf16", "fp16") if args.value(name) is True), None)
    if args.value("pure_bf16") is True:
        found.add("train.precision", Const("bf16", args.origin("pure_bf16")), None)
    elif half is not None and method in (None, "lora", "oft"):
        found.add("train.weights_dtype", Const(half, args.origin(half)))
    if method in (None, "lora"):
        lora(args, found, "lora_rank", 8, "lora_dropout", 0.0, "lora_target")
        if "lora_target" not in args:
            found.default("train.peft.targets", "all-linear")
        lora_kind(args, found)
    elif method == "oft":
        found.add("train.peft.method", args.get("finetuning_type"))
    elif method == "freeze":
        reason = Unknown("which layers train is counted from the model's end", Cause.not_modelled)
        found.add("train.frozen", Const(reason, args.origin("finetuning_type")))


def _quantized(args: Arguments, found: Found) -> None:
    bits, place = args.value("quantization_bit"), args.origin("quantization_bit")
    method = args.value("quantization_method")
    if bits is None:
        return
    if method not in (None, "bnb", "bitsandbytes") or bits not in (4, 8):
        reason = f"{bits} bits by {method or 'bnb'} are not modelled"
        found.add("train.quantization.type", Const(Unknown(reason, Cause.not_modelled), place))
        return
    kind = args.value("quantization_type") if "quantization_type" in args else "nf4"
    found.add("train.quantization.type", Const(kind if bits == 4 else "int8", place))
    if bits == 4:
        found.add("train.quantization.double_quant", args.get("double_quantization", True))
        half = next((name for name in ("bf16", "fp16") if args.value(name) is True), "fp32")
        found.add("train.quantization.compute_dtype", Const(half, args.origin(half)))


def _optimizers(args: Arguments, found: Found) -> None:
    for flag, name, layerwise in _LOWRANK:
        found.when_true(args, flag, "train.optimizer", name)
        if layerwise is not None and args.value(flag) is True:
            found.when_true(args, layerwise, "train.optimizer_in_backward")


def _references(args: Arguments, found: Found) -> None:
    """A frozen copy beside the model that is trained; with adapters the base model is it."""
    stage, full = args.value("stage"), args.value("finetuning_type") in ("full", "freeze")
    if stage == "ppo":
        reason = "PPO holds a reward model and a value head beside the one that is trained"
        found.add("train.copies.reference", Const(Unknown(reason, Cause.not_modelled), args.origin("stage")))
        return
    compares = stage in ("dpo", "kto") and args.value("pref_loss") not in _WITHOUT_REFERENCE
    if compares and (full or "ref_model" in args):
        found.add("train.copies.reference", Const(1, args.origin("ref_model" if "ref_model" in args else "stage")))
