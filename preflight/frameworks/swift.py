"""ms-swift (3): `swift sft`, `pt` and `rlhf`, as flags or in a file (`--config`): transformers' arguments and its own.

Read from docs/source_en/Instruction/Command-line-parameters.md and swift/llm/argument/train_args.py.
"""

from __future__ import annotations

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.images import SWIFT, pictures
from preflight.frameworks.shared import Found, attention, deepspeed_link, lora, lora_kind, shrinking
from preflight.frameworks.transformers_trainer import Use, training_arguments
from preflight.program.bindings import constant, first_origin
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.records import replace
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_ATTENTION = {"flash_attn": "flash", "flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa",
              "eager": "eager"}  # fmt: skip
_STAGES = {"zero0": "ddp", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "zero2_offload": "zero2",
           "zero3_offload": "zero3"}  # fmt: skip
"""Configurations of DeepSpeed that ms-swift ships."""
_DEFAULTS: dict[str, Expr] = {"per_device_train_batch_size": Const(1), "per_device_eval_batch_size": Const(1),
                              "gradient_checkpointing": Const(True), "dataloader_num_workers": Const(1)}  # fmt: skip
_EFFECTIVE = 16
"""gradient_accumulation_steps, where it is not set, makes the whole batch at least this."""
_PAIRS = ("dpo", "orpo", "cpo", "simpo", "rm")


def swift(args: Arguments) -> Found:
    """A fine-tuning run; the weights are kept in `torch_dtype`, adapters as peft has them."""
    found = Found()
    values = {**_DEFAULTS, **{name: expr for name, expr in args.all().items() if name not in ("bf16", "fp16")}}
    stage = args.value("deepspeed")
    shipped = _STAGES.get(stage) if isinstance(stage, str) else None
    if shipped is not None:
        values.pop("deepspeed")
    validates = "val_dataset" in args or args.some("split_dataset_ratio")
    bindings = training_arguments(values, "transformers", Use(evaluates=validates))
    pairs = args.value("rlhf_type") in _PAIRS
    for binding in bindings:
        if binding.field == "train.precision":
            continue  # its own rule, below
        if binding.origin is None:
            binding = replace(binding, rank=Rank.default)
        doubled = pairs and binding.field == "train.batch_size"
        found.bindings.append(replace(binding, expr=Op("*", (binding.expr, Const(2)), first_origin(binding.expr)))
                              if doubled else binding)  # fmt: skip
    for name in ("model_id_or_path", "model"):
        found.add("model.name", args.get(name))
        pictures(args, found, name, SWIFT, ("max_pixels", None))
    found.default("task", "causal-lm")
    length: Expr = args.get("max_length")
    if "max_length" not in args:
        length = Const(Unknown("samples are as long as the model allows: --max_length is not set", Cause.not_set))
    found.add("train.seq_len", length, Rank.read)
    packing = args.value("packing") is True
    found.add("train.sequences", Const("packed" if packing else "bound", args.origin("packing")))
    _accumulation(args, found)
    _precision(args, found)
    _adapters(args, found)
    _quantized(args, found)
    attention(args, found, "attn_impl", _ATTENTION)
    _references(args, found)
    if shipped is not None:
        found.add("parallel.strategy", Const(shipped, args.origin("deepspeed")))
        if str(stage).endswith("offload"):
            found.add("parallel.offload", Const("parameters" if shipped == "zero3" else "optimizer",
                                                args.origin("deepspeed")))  # fmt: skip
    if args.value("tuner_backend") == "unsloth":
        found.add("train.activation_offload", Const(True, args.origin("tuner_backend")))
    shrinking(args, found)
    deepspeed_link(args, found)
    return found


def _accumulation(args: Arguments, found: Found) -> None:
    if "gradient_accumulation_steps" in args:
        return
    batch = args.get("per_device_train_batch_size", 1)
    ranks = args.get("nproc_per_node", 1)
    steps = Op("ceil", (Op("/", (Const(_EFFECTIVE), Op("*", (Op("int", (batch,)), Op("int", (ranks,)))))),))
    found.bindings = [b for b in found.bindings if b.field != "train.grad_accum"]
    found.add("train.grad_accum", steps if constant(steps) is None else Const(constant(steps)), Rank.read)


def _precision(args: Arguments, found: Found) -> None:
    """Mixed precision in the type of the weights, which is the model's own where nobody states it."""
    if "torch_dtype" not in args:
        reason = "ms-swift takes the type that the model's own config.json names: --torch_dtype is not set"
        found.add("train.precision", Const(Unknown(reason, Cause.not_set)), Rank.read)
        return
    dtype = spelled(args.get("torch_dtype"), DTYPES)
    found.add("train.weights_dtype", dtype)
    mixed = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp32": "fp16-mixed"}  # fp32 weights run under fp16 autocast
    found.add("train.precision", spelled(dtype, mixed))


def _adapters(args: Arguments, found: Found) -> None:
    key = next((name for name in ("tuner_type", "train_type", "sft_type") if name in args), "train_type")
    kind = args.value(key) if key in args else "lora"
    if kind == "lora":
        lora(args, found, "lora_rank", 8, "lora_dropout", 0.05, "target_modules")
        if "target_modules" not in args:
            found.default("train.peft.targets", "all-linear")
        lora_kind(args, found)
        if "lora_dtype" in args:
            found.add("train.peft.dtype", spelled(args.get("lora_dtype"), DTYPES))
    elif kind != "full":
        found.add("train.peft.method", args.get(key), Rank.read)


def _quantized(args: Arguments, found: Found) -> None:
    bits, method = args.value("quant_bits"), args.value("quant_method")
    if bits is None:
        return
    if method not in (None, "bnb") or bits not in (4, 8):
        reason = f"{bits} bits by {method} are not modelled"
        found.add("train.quantization.type", Const(Unknown(reason, Cause.not_modelled), args.origin("quant_bits")))
        return
    kind = args.value("bnb_4bit_quant_type") or "nf4"
    found.add("train.quantization.type", Const(kind if bits == 4 else "int8", args.origin("quant_bits")))
    if bits == 4:
        found.add("train.quantization.double_quant", args.get("bnb_4bit_use_double_quant", True))
        dtype = args.get("bnb_4bit_compute_dtype", args.value("torch_dtype"))
        found.add("train.quantization.compute_dtype", spelled(dtype, DTYPES), Rank.read)


def _references(args: Arguments, found: Found) -> None:
    """`swift rlhf` trains against a frozen copy, which adapters make unnecessary."""
    kind = args.value("rlhf_type")
    full = any(args.value(name) == "full" for name in ("tuner_type", "train_type", "sft_type"))
    if kind in ("dpo", "kto") and full:
        found.add("train.copies.reference", Const(1, args.origin("rlhf_type")))
    elif kind in ("ppo", "grpo", "gkd"):
        reason = f"{str(kind).upper()} generates and scores beside training: not modelled"
        found.add("train.copies.reference", Const(Unknown(reason, Cause.not_modelled), args.origin("rlhf_type")))
