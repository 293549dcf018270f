"""What each kind of argument file says about a job. Defaults: reference versions named at each reader."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from preflight.dialects.arguments_document import Arguments
from preflight.dialects.reading import Binding, Link, Problem
from preflight.libraries.common import DEFAULT_RANK, TEXT_RANK, bind, constant, first_origin, fold, when
from preflight.libraries.parallelism import STAGES, deepspeed_config
from preflight.libraries.precision import lightning_arguments
from preflight.libraries.spellings import OPTIMIZERS, PRECISIONS, spelled
from preflight.libraries.trainer import Use, training_arguments
from preflight.records import dataclass, field
from preflight.values import Const, Expr, Op, Value


@dataclass
class Found:
    bindings: list[Binding] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, name: str, expr: Expr, rank: int | None = TEXT_RANK) -> None:
        """A binding, unless the value is None; without a place it is a default."""
        if constant(expr) is not None:
            self.bindings.append(bind(name, expr, rank if first_origin(expr) is not None else DEFAULT_RANK))


def arguments(args: Arguments) -> Found:
    """HfArgumentParser and `trl --config`: transformers' own names, beside the script's."""
    found = Found()
    flavour = "transformers"
    if "max_length" in args or "packing" in args or ("dataset_name" in args and "model_name_or_path" in args):
        flavour = "dpo" if "beta" in args else "sft"
    if "max_seq_length" in args and "packing" not in args:
        flavour = "transformers"
        found.add("train.seq_len", args.get("max_seq_length"))
    use = Use(peft=args.value("use_peft") is True)
    found.bindings += training_arguments(args.all(), flavour, use)
    found.add("model.name", args.get("model_name_or_path"))
    if args.value("use_peft") is True:  # trl.ModelConfig: LoRA unless it says otherwise
        _lora(args, found, "lora_r", 16, "lora_dropout", 0.05, "lora_target_modules")
    for name, kind in (("load_in_4bit", "nf4"), ("load_in_8bit", "int8")):
        if args.value(name) is True:
            found.add("train.quantization.type", Const(kind, args.get(name).origin))
    if flavour != "transformers":
        found.bindings.append(bind("task", Const("causal-lm"), DEFAULT_RANK))
    _deepspeed_link(args, found)
    return found


def axolotl(args: Arguments) -> Found:
    """axolotl 0.19: micro_batch_size 1 per GPU, sequence_len 512, bf16 "auto", adamw_torch_fused."""
    found = Found()
    found.add("model.name", args.get("base_model"))
    found.bindings.append(bind("task", Const("causal-lm"), DEFAULT_RANK))
    micro = args.get("micro_batch_size", 1)
    found.add("train.batch_size", micro)
    found.add("train.grad_accum", args.get("gradient_accumulation_steps", 1))
    found.add("train.seq_len", args.get("sequence_len", 512))
    packed, padded = args.get("sample_packing", False), args.get("pad_to_sequence_len", False)
    found.add("train.sequences", when(packed, Const("packed"), when(padded, Const("exact"), Const("bound"))))
    _precision(args, found, auto="bf16-mixed")
    _optimizer(args, found, "optimizer", "adamw_torch_fused")
    checkpointing = args.value("gradient_checkpointing")
    found.add("train.gradient_checkpointing", Const(bool(checkpointing), args.get("gradient_checkpointing").origin))
    if args.value("adapter") in ("lora", "qlora"):
        _lora(args, found, "lora_r", 8, "lora_dropout", 0.0, "lora_target_modules")
        if args.value("lora_target_linear") is True:
            found.add("train.peft.targets", Const("all-linear", args.get("lora_target_linear").origin))
    for name, kind in (("load_in_4bit", "nf4"), ("load_in_8bit", "int8")):
        if args.value(name) is True:
            found.add("train.quantization.type", Const(kind, args.get(name).origin))
    if args.value("val_set_size"):
        found.add("validation.batch_size", args.get("eval_batch_size") if "eval_batch_size" in args else micro)
        found.add("validation.seq_len", args.get("eval_sequence_len"))
    found.add("data.workers", args.get("dataloader_num_workers"))
    found.add("data.prefetch", args.get("dataloader_prefetch_factor"))
    if args.value("flash_attention") is True:
        found.add("train.attention", Const("flash", args.get("flash_attention").origin))
    if args.value("fsdp"):
        found.add("parallel.strategy", Const("fsdp", args.get("fsdp").origin))
    _deepspeed_link(args, found)
    return found


def llamafactory(args: Arguments) -> Found:
    """LLaMA-Factory 0.9.5: transformers' arguments, cutoff_len 2048, checkpointing unless it is switched off."""
    found = Found()
    values = dict(args.all())
    disabled = args.get("disable_gradient_checkpointing", False)
    values["gradient_checkpointing"] = fold(Op("not", (disabled,)), first_origin(disabled))
    found.bindings += training_arguments(values, "transformers", Use(evaluates=bool(args.value("val_size"))))
    found.add("model.name", args.get("model_name_or_path"))
    found.bindings.append(bind("task", Const("causal-lm"), DEFAULT_RANK))
    found.add("train.seq_len", args.get("cutoff_len", 2048))
    found.add("train.sequences", when(args.get("packing", False), Const("packed"), Const("bound")))
    if args.value("finetuning_type") in (None, "lora"):
        _lora(args, found, "lora_rank", 8, "lora_dropout", 0.0, "lora_target")
    bits = args.value("quantization_bit")
    if bits in (4, 8):
        found.add("train.quantization.type", Const("nf4" if bits == 4 else "int8", args.get("quantization_bit").origin))
    if args.value("pure_bf16") is True:
        found.add("train.precision", Const("bf16", args.get("pure_bf16").origin), None)
    if args.value("stage") in ("dpo", "kto") and args.value("finetuning_type") == "full":
        found.add("train.copies.reference", Const(1, args.get("stage").origin))
    _deepspeed_link(args, found)
    return found


def accelerate(args: Arguments) -> Found:
    """accelerate 1.15: num_processes counts all machines' processes."""
    found = Found()
    mixed = args.get("mixed_precision")
    if constant(mixed) not in (None, "no", False):
        found.add("train.precision", spelled(mixed, PRECISIONS))
    total, machines = args.get("num_processes"), args.get("num_machines", 1)
    per_node = fold(Op("//", (total, machines)), first_origin(total)) if "num_processes" in args else Const(None)
    for name in ("parallel.ranks_per_node", "parallel.gpus_per_node"):
        found.add(name, per_node)
    found.add("parallel.nodes", args.get("num_machines"))
    kind = args.get("distributed_type", "NO")
    strategies: dict[str, Value] = {"MULTI_GPU": "ddp", "FSDP": "fsdp", "NO": "none"}
    found.add("parallel.strategy", Const(strategies.get(str(constant(kind))), first_origin(kind)))
    deepspeed = args.inner("deepspeed_config")
    stage = deepspeed.value("zero_stage")
    if isinstance(stage, int):
        found.add("parallel.strategy", Const(STAGES.get(stage), deepspeed.get("zero_stage").origin))
    for name, part in (("offload_optimizer_device", "optimizer"), ("offload_param_device", "parameters")):
        if deepspeed.value(name) in ("cpu", "nvme"):
            found.add("parallel.offload", Const(part, deepspeed.get(name).origin))
    if args.inner("fsdp_config").value("fsdp_offload_params") is True:
        found.add("parallel.offload", Const("parameters", args.inner("fsdp_config").get("fsdp_offload_params").origin))
    _file_link(deepspeed.get("deepspeed_config_file"), found)
    return found


def deepspeed(args: Arguments) -> Found:
    """DeepSpeed's JSON: what is "auto" is the Trainer's."""

    def place(keys: tuple[str, ...]) -> Expr | None:
        route = keys if args.document.has(keys) else keys[:1]
        return Const(None, args.document.origin(route)) if args.document.has(route) else None

    return Found(deepspeed_config(args.top, place))


def lightning(args: Arguments) -> Found:
    """LightningCLI: `trainer` is the Trainer's arguments; the data module's own names speak for themselves."""
    from preflight.libraries.aliases import binding_for

    found = Found(lightning_arguments(args.inner("trainer").all()))
    for route in args.document.routes():
        key = ".".join(str(part) for part in route)
        if route and route[0] in ("data", "model"):
            suggested = binding_for(key, Const(args.document.value(route), args.document.origin(route)), "json")
            if suggested is not None:
                found.bindings.append(suggested)
    return found


def _precision(args: Arguments, found: Found, auto: str) -> None:
    for name, value in (("fp16", "fp16-mixed"), ("bf16", "bf16-mixed"), ("bfloat16", "bf16"), ("float16", "fp16")):
        given = args.value(name)
        if given is True or given in ("true", "full"):
            found.add("train.precision", Const("bf16" if given == "full" else value, args.get(name).origin))
    if not any(binding.field == "train.precision" for binding in found.bindings) and args.value("bf16") in (
        None,
        "auto",
    ):
        found.bindings.append(bind("train.precision", Const(auto), DEFAULT_RANK))


def _optimizer(args: Arguments, found: Found, name: str, default: str) -> None:
    found.add("train.optimizer", spelled(args.get(name, default), OPTIMIZERS, "other"))


def _lora(
    args: Arguments, found: Found, rank: str, rank_default: int, dropout: str, dropout_default: float, targets: str
) -> None:
    found.bindings.append(bind("train.peft.method", Const("lora"), TEXT_RANK))
    found.add("train.peft.r", args.get(rank, rank_default))
    found.add("train.peft.dropout", args.get(dropout, dropout_default))
    given = args.value(targets)
    if given == "all":  # LLaMA-Factory's word for every linear layer
        found.add("train.peft.targets", Const("all-linear", args.get(targets).origin))
    elif isinstance(given, str) and "," in given:
        found.add("train.peft.targets", Const(tuple(x.strip() for x in given.split(",")), args.get(targets).origin))
    else:
        found.add("train.peft.targets", args.get(targets))


def _deepspeed_link(args: Arguments, found: Found) -> None:
    _file_link(args.get("deepspeed"), found)


def _file_link(expr: Expr, found: Found) -> None:
    target = constant(expr)
    if isinstance(target, str) and target.endswith((".json", ".yaml", ".yml")):
        found.links.append(Link("config", posixpath.normpath(target), origin=expr.origin))


READERS: Mapping[str, Callable[[Arguments], Found]] = {
    "arguments": arguments, "axolotl": axolotl, "llamafactory": llamafactory, "accelerate": accelerate,
    "deepspeed": deepspeed, "lightning": lightning,
}  # fmt: skip
