"""litgpt: rules that tables/litgpt.toml cannot express: names, accumulation, the targets of LoRA, several devices."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, fold
from preflight.program.rows import FoundSettings
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.spelling import OPTIMIZERS, PARTS
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_PARTS = {
    "query": ("lora_query", True), "key": ("lora_key", False), "value": ("lora_value", True),
    "projection": ("lora_projection", False), "mlp": ("lora_mlp", False), "head": ("lora_head", False),
}  # fmt: skip
"""Part of the model -> the switch that adapts it, and whether it is adapted by default (litgpt/lora.py, Config)."""


def completed(args: Arguments) -> Arguments:
    """The arguments with `method`: from the command, else lora if a setting of LoRA is given."""
    if "method" in args:
        return args
    adapted = "lora_r" in args or "lora_alpha" in args
    return args.completed({"method": Const("lora" if adapted else "full")})


def _name(args: Arguments) -> Const:
    """`checkpoints/org/name`: the last two parts are its name at the hub."""
    key = "checkpoint_dir" if "checkpoint_dir" in args else "model_name"
    value = args.value(key)
    return Const("/".join(value.rstrip("/").split("/")[-2:]) if isinstance(value, str) else None, args.origin(key))


def model(args: Arguments, found: FoundSettings) -> None:
    """model.name by the folder of the checkpoint."""
    found.add("model.name", _name(args))


def accumulation(args: Arguments, found: FoundSettings) -> None:
    """Accumulation steps: the whole batch over the micro-batches of all devices."""
    micro = args.get("train.micro_batch_size", Unknown("train.micro_batch_size is not set", Cause.not_set))
    ranks: Expr = args.get("devices", 1)
    if isinstance(args.value("devices"), str):
        ranks = Const(Unknown("the number of devices is known only when the program runs", Cause.run_time))
    per_step = fold(Op("//", (args.get("train.global_batch_size"), Op("*", (micro, ranks)))))
    steps = fold(Op("max", (Const(1), per_step)))
    found.bindings.append(bind("train.grad_accum", steps, Rank.read, args.origin("train.global_batch_size")))


def targets_of_parts(args: Arguments, found: FoundSettings) -> None:
    """train.peft.targets by the switches of LoRA."""
    parts = [part for part, (key, default) in _PARTS.items() if constant(args.get(key, default)) is True]
    first = next((args.origin(key) for key, _ in _PARTS.values() if key in args), None)
    found.add("train.peft.targets", Const(targets(str(_name(args).value), parts), first))


def optimizer(args: Arguments, found: FoundSettings) -> None:
    """`AdamW`, or a mapping with `class_path`; bitsandbytes' paged AdamW where weights are quantised."""
    key = "optimizer.class_path" if "optimizer.class_path" in args else "optimizer"
    path = args.value(key)
    kind = path.rpartition(".")[2].lower() if isinstance(path, str) else "adamw"
    quantized = "quantize" in args and kind == "adamw"
    name = "paged-adamw" if quantized else OPTIMIZERS.get(kind, "other")
    found.add("train.optimizer", Const(name, args.origin("quantize" if quantized else key)))


def devices(args: Arguments, found: FoundSettings) -> None:
    """More than one device: FSDP by blocks, with checkpointing."""
    counts = (args.value("devices"), args.value("num_nodes"))
    for name in ("parallel.gpus_per_node", "parallel.ranks_per_node"):
        if isinstance(counts[0], int):
            found.add(name, args.get("devices"))
    found.add("parallel.nodes", args.get("num_nodes"))
    if not any(isinstance(count, int) and count > 1 for count in counts):
        found.default("train.gradient_checkpointing", False)
        return
    found.add("parallel.strategy", Const("fsdp", args.origin("devices")))
    found.default("parallel.options.fsdp_version", 1)
    if args.value("method") != "pretrain":
        found.add("train.gradient_checkpointing", Const(True, args.origin("devices")))


# torchtune's and litgpt's names of models and of adapters' target layers -> the hub's and transformers' names.


class LitGptTable(TypedDict):
    torchtune: dict[str, str]
    dimensions: dict[str, str]
    families: dict[str, str]


@lru_cache(maxsize=1)
def table() -> LitGptTable:
    """The shipped names."""
    loaded: LitGptTable = json.loads(Path(__file__).with_name("recipes.json").read_bytes())
    return loaded


def targets(model: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Modules of transformers that hold a model's query, key, value, projection, mlp and head."""
    name = model.lower()
    family = next((kind for start, kind in table()["families"].items() if start in name), "llama")
    return tuple(dict.fromkeys(module for part in parts for module in PARTS[family][part]))
