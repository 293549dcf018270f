"""What tables/{accelerate,fsdp,arguments}.toml cannot say in rows."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.shared import scheme_link
from preflight.frameworks.transformers_trainer import Use, training_arguments
from preflight.program.arguments import Arguments
from preflight.program.bindings import constant, first_origin, fold
from preflight.program.rows import Found
from preflight.vocabulary.values import Const, Op, Value


def trainer(args: Arguments, found: Found) -> None:
    """transformers' and TRL's arguments of a file or a command."""
    flavour = _flavour(args)
    if "max_seq_length" in args and "packing" not in args:
        flavour = "transformers"
        found.add("train.seq_len", args.get("max_seq_length"))
    found.bindings += training_arguments(args.given, flavour, Use(peft=args.value("use_peft") is True))
    if flavour != "transformers":
        found.default("task", "causal-lm")


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


def processes(args: Arguments, found: Found) -> None:
    """accelerate: ranks of a node, and how FSDP shards over them."""
    total, machines = args.get("num_processes"), args.get("num_machines", 1)
    per_node = fold(Op("//", (total, machines)), first_origin(total)) if "num_processes" in args else Const(None)
    for name in ("parallel.ranks_per_node", "parallel.gpus_per_node"):
        found.add(name, per_node)
    if args.value("distributed_type") == "FSDP":
        known = None if constant(per_node) is None else per_node
        settings = fsdp_settings(args.inner("fsdp_config").given, 1, args.get("mixed_precision"), known)
        found.bindings += [b for b in settings if b.field != "parallel.strategy" or constant(b.expr) != "fsdp"]


def scheme(args: Arguments, found: Found) -> None:
    """accelerate: a file of DeepSpeed's."""
    scheme_link(args.get("deepspeed_config.deepspeed_config_file"), found)


def is_fsdp(top: Mapping[str, Value]) -> bool:
    """Whether a file says which layers are sharded apart, with or without `fsdp_` in front."""
    return any(key.endswith("transformer_layer_cls_to_wrap") for key in top)


def fsdp(args: Arguments, found: Found) -> None:
    """FSDP's settings in a file of their own."""
    bindings = fsdp_settings(args.given, None)
    found.bindings += [b for b in bindings if b.field != "parallel.strategy" or constant(b.expr) != "fsdp"]
