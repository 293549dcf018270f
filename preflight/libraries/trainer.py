"""transformers' TrainingArguments and TRL's configurations -> bindings, wherever their values were written.

The same function reads keyword arguments of a Python call, a JSON or YAML file of arguments, and the flags that
`HfArgumentParser` adds: all of them are a mapping of argument names to expressions.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from preflight.dialects.reading import Binding, Parameter
from preflight.libraries.common import (
    DEFAULT_RANK,
    bind,
    constant,
    defaults_at,
    either,
    first_origin,
    fold,
    is_constant,
    when,
)
from preflight.libraries.spellings import IMPLEMENTATIONS, OPTIMIZERS, spelled
from preflight.python.records import CallRecord
from preflight.values import Const, Expr, Op, Ref, Scalar, Unknown

NO = Const(False)
FP32 = Const("fp32")
ARGUMENT_CLASSES: Mapping[str, str] = {
    "TrainingArguments": "transformers", "Seq2SeqTrainingArguments": "transformers",
    "SFTConfig": "sft", "DPOConfig": "dpo", "GRPOConfig": "grpo", "RewardConfig": "reward", "KTOConfig": "kto",
    "ORPOConfig": "orpo", "CPOConfig": "cpo",
}  # fmt: skip
"""Class of arguments -> flavour: transformers' own, or a trainer of TRL."""

_NULLABLE = frozenset({"gradient_checkpointing", "tf32", "bf16", "activation_checkpointing"})
"""Flags of type Optional[bool]."""
_TEXTS = frozenset({"deepspeed", "fsdp"})


@dataclass(frozen=True, slots=True)
class Use:
    """How a Trainer uses its arguments: what makes its evaluation keep logits, and whether it evaluates anyway."""

    evaluates: bool = False
    compute_metrics: Expr = NO
    reduces_logits: bool = False
    """preprocess_logits_for_metrics is given: what is kept is its result (usually an argmax), not the logits."""
    peft: bool = False
    base: Expr = FP32
    """Precision when neither bf16 nor fp16 is asked for: the weights' own."""


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped data on transformers and TRL."""
    loaded: dict[str, Any] = json.loads(files("preflight.libraries").joinpath("transformers.json").read_text("utf-8"))
    return loaded


class _Arguments:
    """Arguments by name: what was given, else the library's default for the version."""

    def __init__(self, values: Mapping[str, Expr], flavour: str, version: str | None) -> None:
        renamed: dict[str, str] = table()["renamed"]
        self.given = {renamed.get(name, name): expr for name, expr in values.items()}
        self.defaults = dict(defaults_at(table()["transformers"], version))
        if flavour != "transformers":
            self.defaults.update(defaults_at(table()["trl"], None))

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def __getitem__(self, name: str) -> Expr:
        default = self.defaults.get(name)
        return self.given.get(name) or Const(default if isinstance(default, (bool, int, float, str)) else None)

    def bind(self, field: str, name: str, expr: Expr | None = None) -> Binding:
        """The field takes the argument's value (or `expr`, made of it); a default has a default's rank."""
        value = self[name] if expr is None else expr
        used = name in self.given or not is_constant(value)
        return bind(field, value, None if used else DEFAULT_RANK, first_origin(self[name]))


def training_arguments(
    values: Mapping[str, Expr], flavour: str = "transformers", use: Use = Use(), version: str | None = None
) -> list[Binding]:
    """Bindings of every memory-relevant argument, defaults of the library's version included (rank 1)."""
    args = _Arguments(values, flavour, version)
    found = [
        *_batches(args, flavour),
        args.bind("train.grad_accum", "gradient_accumulation_steps"),
        _precision(args, flavour, use),
        *_optimizer(args),
        args.bind("train.gradient_checkpointing", "gradient_checkpointing", _truth(args["gradient_checkpointing"])),
        *_loaders(args),
        *_evaluation(args, use),
        *_parallel(args),
    ]
    for field, name in (("train.compile", "torch_compile"), ("train.tf32", "tf32")):
        if name in args:
            found.append(args.bind(field, name, _truth(args[name])))
    if "torch_empty_cache_steps" in args:
        found.append(args.bind("train.empty_cache_every", "torch_empty_cache_steps"))
    if flavour != "transformers":
        found += _trl(args, flavour, use)
    return found


def _truth(expr: Expr) -> Expr:
    """None counts as False."""
    return expr if isinstance(constant(expr), bool) else fold(Op("bool", (expr,)), first_origin(expr))


def _batches(args: _Arguments, flavour: str) -> list[Binding]:
    batch = args["per_device_train_batch_size"]
    if flavour in ("dpo", "orpo", "cpo", "reward", "kto"):
        batch = Op(
            "*", (batch, Const(2)), first_origin(batch)
        )  # chosen and rejected go through together; not folded: it has a way back
    return [args.bind("train.batch_size", "per_device_train_batch_size", batch)]


def _precision(args: _Arguments, flavour: str, use: Use) -> Binding:
    bf16, fp16 = args["bf16"], args["fp16"]
    if flavour != "transformers" and "bf16" not in args:
        bf16 = fold(Op("not", (_truth(fp16),)))  # TRL: bf16 unless fp16 is asked for
    expr = when(bf16, Const("bf16-mixed"), when(fp16, Const("fp16-mixed"), use.base))
    return args.bind("train.precision", "bf16" if "bf16" in args else "fp16", expr)


def _optimizer(args: _Arguments) -> list[Binding]:
    optim = args["optim"]
    found = [args.bind("train.optimizer", "optim", spelled(optim, OPTIMIZERS, "other"))]
    implementation = spelled(optim, IMPLEMENTATIONS, "foreach")
    return [*found, args.bind("train.optimizer_impl", "optim", implementation)]


def _loaders(args: _Arguments) -> list[Binding]:
    found = [
        args.bind("data.workers", "dataloader_num_workers"),
        args.bind("data.pin_memory", "dataloader_pin_memory"),
        args.bind("data.persistent_workers", "dataloader_persistent_workers"),
        bind("data.shuffle", Const(True), DEFAULT_RANK),
    ]
    if "dataloader_prefetch_factor" in args:
        prefetch = args["dataloader_prefetch_factor"]
        found.append(args.bind("data.prefetch", "dataloader_prefetch_factor", _or(prefetch, 2)))
    return found


def _or(expr: Expr, value: Scalar) -> Expr:
    """`value` where the argument is None."""
    return when(fold(Op("is", (expr, Const(None)))), Const(value), expr)


def _evaluation(args: _Arguments, use: Use) -> list[Binding]:
    strategy = args["eval_strategy"]
    evaluates = Const(True) if use.evaluates else fold(Op("!=", (fold(Op("str", (strategy,))), Const("no"))))
    if "do_eval" in args:
        evaluates = either(evaluates, args["do_eval"])
    known = constant(evaluates)
    if not isinstance(known, Unknown) and not known:
        return []
    if is_constant(evaluates):  # a strategy that cannot be read is given to evaluate
        evaluates = Const(True)
    found = [
        args.bind(
            "validation.batch_size",
            "per_device_eval_batch_size",
            when(evaluates, args["per_device_eval_batch_size"], Const(None)),
        ),
        args.bind(
            "data.validation_workers",
            "dataloader_num_workers",
            when(evaluates, args["dataloader_num_workers"], Const(None)),
        ),
    ]
    overlaps = fold(Op("==", (fold(Op("str", (strategy,))), Const("steps"))))
    if "eval_strategy" in args and not isinstance(constant(overlaps), Unknown):
        found.append(bind("data.validation_overlaps", overlaps, None, first_origin(strategy)))
    if "eval_accumulation_steps" in args:
        found.append(args.bind("validation.eval_accumulation", "eval_accumulation_steps"))
    generates = _truth(args["predict_with_generate"])
    if "predict_with_generate" in args:
        found.append(args.bind("validation.generates", "predict_with_generate", generates))
        if "generation_max_length" in args:
            found.append(args.bind("validation.max_new_tokens", "generation_max_length"))
        if "generation_num_beams" in args:
            found.append(args.bind("validation.beams", "generation_num_beams"))
    if not use.reduces_logits:
        keeps = (evaluates, use.compute_metrics, *(fold(Op("not", (_truth(args[name]),))) for name in
                 ("prediction_loss_only", "batch_eval_metrics", "predict_with_generate")))  # fmt: skip
        found.append(
            bind(
                "validation.accumulates_logits",
                fold(Op("bool", (Op("and", keeps),))),
                None,
                first_origin(use.compute_metrics),
            )
        )
    return found


def _parallel(args: _Arguments) -> list[Binding]:
    if "fsdp" not in args:
        return []
    fsdp = args["fsdp"]
    text = constant(fsdp)
    found = [args.bind("parallel.strategy", "fsdp", when(fsdp, Const("fsdp"), Const(None)))]
    if isinstance(text, (str, tuple)) and "offload" in str(text):
        found.append(bind("parallel.offload", Const("parameters", first_origin(fsdp))))
    return [binding for binding in found if constant(binding.expr) is not None]


def _trl(args: _Arguments, flavour: str, use: Use) -> list[Binding]:
    found: list[Binding] = []
    if flavour == "grpo":
        prompt, completion = args["max_prompt_length"], args["max_completion_length"]
        if constant(prompt) is None:
            total: Expr = Const(Unknown("GRPO does not bound the prompt here"))
        else:
            total = fold(Op("+", (prompt, completion)), first_origin(prompt, completion))
        found.append(bind("train.seq_len", total))
    else:
        found.append(args.bind("train.seq_len", "max_length"))
        packed = when(args["packing"], Const("packed"), Const("bound"))
        found.append(args.bind("train.sequences", "packing", packed))
    if flavour in ("dpo", "kto") and not use.peft:
        found.append(
            bind("train.copies.reference", Const(1), DEFAULT_RANK)
        )  # with adapters the base model is the reference
    return found


def from_command_line(record: CallRecord) -> bool:
    """Whether the arguments object is made by `HfArgumentParser`, which gives every field a flag."""
    return isinstance(record.node, ast.Call) and "parse" in ast.unparse(record.node.func).rpartition(".")[2]


def parameters(flavour: str = "transformers", version: str | None = None) -> list[Parameter]:
    """The flags that `HfArgumentParser` adds for an arguments class, as far as they decide memory."""
    found = []
    for name, default in _Arguments({}, flavour, version).defaults.items():
        value = default if isinstance(default, (bool, int, float, str)) else None
        if name in _TEXTS or isinstance(value, str):
            kind = "str"
        else:
            kind = "bool" if isinstance(value, bool) or name in _NULLABLE else "int"
        flags = tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))
        found.append(Parameter(name, Const(value), flags, "dataclass", kind))
    return found


_MODEL_CONFIG: Mapping[str, tuple[str, Scalar]] = {
    "model_name_or_path": ("str", None), "dtype": ("str", None), "torch_dtype": ("str", None),
    "attn_implementation": ("str", None), "use_peft": ("bool", False), "lora_r": ("int", 16),
    "lora_dropout": ("float", 0.05), "load_in_4bit": ("bool", False), "load_in_8bit": ("bool", False),
}  # fmt: skip
"""Flags of trl.ModelConfig that decide memory: type and default (TRL's documentation of ModelConfig)."""


def model_config_parameters() -> list[Parameter]:
    """The flags that `TrlParser` adds for trl.ModelConfig."""
    return [
        Parameter(name, Const(default), (f"--{name}", f"--{name.replace('_', '-')}"), "dataclass", kind)
        for name, (kind, default) in _MODEL_CONFIG.items()
    ]


def model_config_bindings() -> list[Binding]:
    """What `get_peft_config` and `get_quantization_config` make of those flags."""
    four, eight = Ref("load_in_4bit"), Ref("load_in_8bit")
    quantized = Op("if", (four, Const("nf4"), Op("if", (eight, Const("int8"), Const("none")))))
    return [
        Binding("train.peft.method", Op("if", (Ref("use_peft"), Const("lora"), Const(None)))),
        Binding("train.peft.r", Ref("lora_r")),
        Binding("train.peft.dropout", Ref("lora_dropout")),
        Binding("train.quantization.type", quantized),
    ]
