"""transformers' TrainingArguments and TRL's configurations -> bindings, wherever their values were written.

The same function reads keyword arguments of a Python call, a JSON or YAML file of arguments, and the flags that
`HfArgumentParser` adds: all of them are a mapping of argument names to expressions.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.deepspeed import deepspeed_config
from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.library_defaults import (
    ANY,
    FP32,
    NO,
    Argument,
    Use,
    arguments_at,
    library_arguments,
    model_config_at,
    truth,
)
from preflight.frameworks.trl import trl
from preflight.program.bindings import (
    bind,
    constant,
    either,
    first_origin,
    fold,
    is_constant,
    when,
)
from preflight.python.objects import CallRecord
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.reading import Binding, Parameter, Rank
from preflight.vocabulary.spelling import IMPLEMENTATIONS, IN_BACKWARD, OPTIMIZERS, spelled
from preflight.vocabulary.values import Const, Expr, Op, Ref, Scalar, Unknown

__all__ = ["ARGUMENT_CLASSES", "FP32", "NO", "Use", "from_command_line", "parameters", "training_arguments"]

ARGUMENT_CLASSES: Mapping[str, str] = {
    "TrainingArguments": "transformers", "Seq2SeqTrainingArguments": "transformers",
    "SFTConfig": "sft", "DPOConfig": "dpo", "GRPOConfig": "grpo", "RewardConfig": "reward", "KTOConfig": "kto",
    "SentenceTransformerTrainingArguments": "transformers", "CrossEncoderTrainingArguments": "transformers",
    "SparseEncoderTrainingArguments": "transformers",
    "ORPOConfig": "orpo", "CPOConfig": "cpo", "RLOOConfig": "rloo", "PPOConfig": "ppo",
}  # fmt: skip
"""Class of arguments -> flavour: transformers' own, or a trainer of TRL."""

_LANGUAGE = (None, "causal-lm")


def training_arguments(
    values: Mapping[str, Expr], flavour: str = "transformers", use: Use = ANY, version: str | None = None,
    trl_version: str | None = None,
) -> list[Binding]:  # fmt: skip
    """Bindings of every memory-relevant argument, defaults of the library's version included (rank 1)."""
    args = library_arguments(values, flavour, version, trl_version)
    found = [
        *_batches(args, flavour),
        args.bind("train.grad_accum", "gradient_accumulation_steps"),
        _precision(args, flavour, use),
        *_optimizer(args),
        args.bind("train.gradient_checkpointing", "gradient_checkpointing", truth(args["gradient_checkpointing"])),
        *_loaders(args),
        *_evaluation(args, use),
        *_loss(args, flavour, use),
        *parallel(args, version),
    ]
    for field, name in (("train.compile", "torch_compile"), ("train.tf32", "tf32")):
        if name in args:
            found.append(args.bind(field, name, truth(args[name])))
    if "torch_empty_cache_steps" in args:
        found.append(args.bind("train.empty_cache_every", "torch_empty_cache_steps"))
    if flavour != "transformers":
        found += trl(args, flavour, use, trl_version)
    return found


def _loss(args: Arguments, flavour: str, use: Use) -> list[Binding]:
    """Liger's kernels: the logits are never there as a whole, unless its own configuration keeps the usual loss."""
    if "use_liger_kernel" not in args or flavour == "reward" or use.task not in _LANGUAGE:
        return []
    kept = args.inner("liger_kernel_config").value("fused_linear_cross_entropy") is False
    expr = when(truth(args["use_liger_kernel"]), Const("full" if kept else "fused"), Const(None))
    return [args.bind("train.loss", "use_liger_kernel", expr)]


def _batches(args: Arguments, flavour: str) -> list[Binding]:
    batch = args["per_device_train_batch_size"]
    if flavour in ("dpo", "orpo", "cpo", "reward", "kto"):
        batch = Op(
            "*", (batch, Const(2)), first_origin(batch)
        )  # chosen and rejected go through together; not folded: it has a way back
    return [args.bind("train.batch_size", "per_device_train_batch_size", batch)]


def _precision(args: Arguments, flavour: str, use: Use) -> Binding:
    bf16, fp16 = args["bf16"], args["fp16"]
    if flavour != "transformers":  # TRL: bf16 unless it is said, or fp16 is asked for
        bf16 = when(fold(Op("is", (bf16, Const(None)))), fold(Op("not", (truth(fp16),))), bf16)
    expr = when(bf16, Const("bf16-mixed"), when(fp16, Const("fp16-mixed"), use.base))
    return args.bind("train.precision", "bf16" if "bf16" in args else "fp16", expr)


def _optimizer(args: Arguments) -> list[Binding]:
    optim = args["optim"]
    found = [args.bind("train.optimizer", "optim", spelled(optim, OPTIMIZERS, "other"))]
    if "optim" in args:
        at_once = spelled(optim, dict.fromkeys(IN_BACKWARD, True), False)
        found.append(args.bind("train.optimizer_in_backward", "optim", at_once))
    implementation = spelled(optim, IMPLEMENTATIONS, "foreach")
    return [*found, args.bind("train.optimizer_impl", "optim", implementation)]


def _loaders(args: Arguments) -> list[Binding]:
    found = [
        args.bind("data.workers", "dataloader_num_workers"),
        args.bind("data.pin_memory", "dataloader_pin_memory"),
        args.bind("data.persistent_workers", "dataloader_persistent_workers"),
        bind("data.shuffle", Const(True), Rank.default),
    ]
    if "dataloader_prefetch_factor" in args:
        prefetch = args["dataloader_prefetch_factor"]
        found.append(args.bind("data.prefetch", "dataloader_prefetch_factor", _or(prefetch, 2)))
    return found


def _or(expr: Expr, value: Scalar) -> Expr:
    """`value` where the argument is None."""
    return when(fold(Op("is", (expr, Const(None)))), Const(value), expr)


def _evaluation(args: Arguments, use: Use) -> list[Binding]:
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
    generates = truth(args["predict_with_generate"])
    if "predict_with_generate" in args:
        found.append(args.bind("validation.generates", "predict_with_generate", generates))
        if "generation_max_length" in args:
            found.append(args.bind("validation.max_new_tokens", "generation_max_length"))
        if "generation_num_beams" in args:
            found.append(args.bind("validation.beams", "generation_num_beams"))
    if not use.reduces_logits:
        keeps = (evaluates, use.compute_metrics, *(fold(Op("not", (truth(args[name]),))) for name in
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


def from_command_line(record: CallRecord) -> bool:
    """Whether the arguments object is made by `HfArgumentParser`, which gives every field a flag."""
    return isinstance(record.node, ast.Call) and "parse" in ast.unparse(record.node.func).rpartition(".")[2]


def parameters(flavour: str = "transformers", version: str | None = None) -> list[Parameter]:
    """The flags that `HfArgumentParser` adds for an arguments class, as far as they decide memory."""
    return _flags(arguments_at(flavour, version))


def model_config_parameters() -> list[Parameter]:
    """The flags that `TrlParser` adds for trl.ModelConfig."""
    return _flags(model_config_at())


def _flags(arguments: Mapping[str, Argument]) -> list[Parameter]:
    return [
        Parameter(name, Const(one.default), (*dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")),),
                  "dataclass", one.kind)
        for name, one in arguments.items()
    ]  # fmt: skip


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


# TrainingArguments(fsdp=..., fsdp_config=..., deepspeed={...}) -> parallel.*.

_FIRST, _SECOND = (5,), (5, 13)
"""Before 5.0 `fsdp` meant FSDP 1; from 5.13 on it means 2 (transformers' documentation of both; training_args.py of
5.23). In between, and where nobody states a release, which one it is stays open."""
_WORDS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


_STREAMED = (4, 31)
"""From this release on accelerate writes FSDP's checkpoints, by way of the host. Until then Trainer.save_model asked
`self.model.state_dict()`, which FSDP answers with every parameter whole on each GPU (transformers, trainer.py)."""


def parallel(args: Arguments, version: str | None) -> list[Binding]:
    """What the Trainer's own settings say of sharding; nothing where they name no scheme."""
    sharded = _fsdp(args, version)
    if sharded and (release(version) or NEWEST) < _STREAMED:
        sharded.append(bind("train.saves", Const("gathered", first_origin(args["fsdp"]))))
    return [*sharded, *_deepspeed(args)]


def _fsdp(args: Arguments, version: str | None) -> list[Binding]:
    if "fsdp" not in args or constant(args["fsdp"]) in (None, False, "", "false", "False"):
        return []
    fsdp = args["fsdp"]
    said = constant(fsdp)
    known = isinstance(said, (str, tuple, bool))
    config: dict[str, Expr] = {name: expr for name, expr in args.inner("fsdp_config").given.items() if name != "xla"}
    words = said.split() if isinstance(said, str) else [str(word) for word in said] if isinstance(said, tuple) else []
    place = first_origin(fsdp)
    stated = {name.removeprefix("fsdp_") for name in config}
    for word in words:
        if word.lower() in _WORDS and not stated & {"reshard_after_forward", "sharding_strategy"}:
            config["sharding_strategy"] = Const(word.lower(), place)
        elif word.lower() == "offload":
            config["cpu_offload"] = Const(True, place)
    found = fsdp_settings(config, _version(version), _mixed(args))
    if not known:  # a parameter, or something that cannot be followed
        return [replace(found[0], expr=when(fsdp, Const("fsdp"), Const(None)))]
    return [b if b.origin is not None or b.field != "parallel.strategy" else replace(b, origin=place,
            expr=Const(constant(b.expr), place)) for b in found]  # fmt: skip


def _version(transformers: str | None) -> int | None:
    numbers = release(transformers)
    if numbers is None or _FIRST <= numbers < _SECOND:
        return None
    return 1 if numbers < _FIRST else 2


def _mixed(args: Arguments) -> Expr | None:
    """The mixed precision that the Trainer hands to accelerate, where it is a plain yes."""
    return next((Const(name, first_origin(args[name])) for name in ("bf16", "fp16") if constant(args[name]) is True),
                None)  # fmt: skip


def _deepspeed(args: Arguments) -> list[Binding]:
    """A configuration written in place: `deepspeed={...}`, or a mapping in a file of arguments."""
    return deepspeed_config(args.inner("deepspeed"))
