"""litgpt (0.5): a YAML of `litgpt finetune_lora --config`, or the same names as flags.

Read from litgpt/finetune/{lora,full,adapter}.py, litgpt/pretrain.py and litgpt/args.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TypedDict

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.shared import Found
from preflight.program.bindings import bind, first_origin, fold
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.spelling import OPTIMIZERS, PRECISIONS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, Value

_QUANTIZED = {"bnb.nf4": "nf4", "bnb.nf4-dq": "nf4", "bnb.fp4": "fp4", "bnb.fp4-dq": "fp4",
              "bnb.int8-training": "int8", "bnb.int8": "int8"}  # fmt: skip
_PARTS = {
    "lora_query": ("query", True), "lora_key": ("key", False), "lora_value": ("value", True),
    "lora_projection": ("projection", False), "lora_mlp": ("mlp", False), "lora_head": ("head", False),
}  # fmt: skip
"""Flag -> the part of the model that it adapts, and whether that is adapted by default."""


def litgpt(args: Arguments) -> Found:
    """A fine-tuning run; whether with adapters is said by their own settings, or by the command (`method`)."""
    found = Found()
    name = _model(args, found)
    adapted = "lora_r" in args or "lora_alpha" in args
    method = str(args.value("method")) if "method" in args else "lora" if adapted else "full"
    found.default("task", "causal-lm")
    # litgpt's GPT has a head of its own, also where a checkpoint's is tied (litgpt/model.py)
    found.default("model.config.tie_word_embeddings", False)
    found.default("software.litgpt", "unstated")
    precision = spelled(args.get("precision", "bf16-true"), PRECISIONS)
    found.add("train.precision", precision)
    _batches(args, found)
    if method == "lora":
        _lora(args, name, found)
    elif method.startswith("adapter"):
        found.add("train.peft.method", Const("llama-adapter", args.origin("method")), Rank.read)
    _optimizer(args, found)
    _quantized(args, found)
    _devices(args, method, found)
    if method != "pretrain":
        found.default("train.loss", "chunked")  # chunked_cross_entropy, 128 tokens at a time
    found.default("train.outputs_kept", "loop")  # `logits` stays bound until the next forward has ended
    return found


def _model(args: Arguments, found: Found) -> str:
    """`checkpoints/org/name`: the last two parts are what the hub calls it."""
    key = "checkpoint_dir" if "checkpoint_dir" in args else "model_name"
    value = args.value(key)
    if isinstance(value, str):
        name = "/".join(value.rstrip("/").split("/")[-2:])
        found.add("model.name", Const(name, args.origin(key)))
        return name
    return ""


def _batches(args: Arguments, found: Found) -> None:
    train = args.inner("train")
    micro: Expr = train.get("micro_batch_size", None)
    if "micro_batch_size" not in train:
        micro = Const(Unknown("train.micro_batch_size is not set, and litgpt's releases differ: 1 or 4", Cause.not_set))
    found.bindings.append(bind("train.batch_size", micro, Rank.read, train.origin("micro_batch_size")))
    if "global_batch_size" in train:
        ranks: Expr = args.get("devices", 1)
        if isinstance(args.value("devices"), str):
            ranks = Const(Unknown("how many devices there are is seen when it runs", Cause.run_time))
        per_step = fold(Op("//", (train.get("global_batch_size"), Op("*", (micro, ranks)))))
        found.bindings.append(bind("train.grad_accum", fold(Op("max", (Const(1), per_step))), Rank.read,
                                   train.origin("global_batch_size")))  # fmt: skip
    length: Expr = train.get("max_seq_length")
    if "max_seq_length" not in train:
        length = Const(Unknown("samples are as long as the data: train.max_seq_length is not set", Cause.not_set))
    found.bindings.append(bind("train.seq_len", length, Rank.read, train.origin("max_seq_length")))
    found.default("train.sequences", "bound")
    data = args.inner("data").inner("init_args")
    found.add("data.workers", data.get("num_workers"))


def _lora(args: Arguments, name: str, found: Found) -> None:
    found.add("train.peft.method", Const("lora", args.origin("lora_r")), Rank.read)
    found.add("train.peft.r", args.get("lora_r", 8))
    found.add("train.peft.dropout", args.get("lora_dropout", 0.05))
    parts = [part for key, (part, default) in _PARTS.items() if (args.value(key) if key in args else default) is True]
    first = next((args.origin(key) for key in _PARTS if key in args), None)
    found.add("train.peft.targets", Const(targets(name, parts), first), Rank.read)
    found.default("train.peft.dtype", "bf16")


def _optimizer(args: Arguments, found: Found) -> None:
    """`AdamW`, or a mapping with `class_path`; bitsandbytes' paged AdamW where weights are quantised."""
    given = args.value("optimizer")
    inner = args.inner("optimizer")
    path: Value = inner.value("class_path") if "class_path" in inner else given
    place = inner.origin("class_path") if "class_path" in inner else args.origin("optimizer")
    kind = path.rpartition(".")[2].lower() if isinstance(path, str) else "adamw"
    quantized = "quantize" in args and kind == "adamw"
    found.add("train.optimizer", Const("paged-adamw" if quantized else OPTIMIZERS.get(kind, "other"),
                                       args.origin("quantize") if quantized else place))  # fmt: skip
    found.default("train.optimizer_impl", "foreach")


def _quantized(args: Arguments, found: Found) -> None:
    expr = args.get("quantize")
    value = args.value("quantize")
    if value is None:
        return
    found.add("train.quantization.type", spelled(expr, _QUANTIZED))
    found.add("train.quantization.double_quant", Const(str(value).endswith("-dq"), first_origin(expr)))
    found.default("train.quantization.upcast_rest", False)
    dtype = {"bf16-true": "bf16", "16-true": "fp16", "32-true": "fp32"}.get(str(args.value("precision")), "bf16")
    found.add("train.quantization.compute_dtype", Const(dtype, args.origin("precision")))


def _devices(args: Arguments, method: str, found: Found) -> None:
    """More than one device: FSDP by blocks, with checkpointing."""
    devices, nodes = args.value("devices"), args.value("num_nodes")
    for name in ("parallel.gpus_per_node", "parallel.ranks_per_node"):
        if isinstance(devices, int):
            found.add(name, args.get("devices"))
    found.add("parallel.nodes", args.get("num_nodes"))
    several = any(isinstance(count, int) and count > 1 for count in (devices, nodes))
    if several:
        found.add("parallel.strategy", Const("fsdp", args.origin("devices")), Rank.read)
        found.default("parallel.options.fsdp_version", 1)
        if method != "pretrain":
            found.add("train.gradient_checkpointing", Const(True, args.origin("devices")), Rank.read)
    else:
        found.default("train.gradient_checkpointing", False)


# What torchtune and litgpt call models and the layers that adapters go to, in the hub's and transformers' words.


class Table(TypedDict):
    torchtune: dict[str, str]
    dimensions: dict[str, str]
    targets: dict[str, dict[str, list[str]]]
    families: dict[str, str]


@lru_cache(maxsize=1)
def table() -> Table:
    """The shipped names."""
    loaded: Table = json.loads(files("preflight.frameworks").joinpath("recipes.json").read_text("utf-8"))
    return loaded


def targets(model: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Modules of transformers that hold a model's query, key, value, projection, mlp and head."""
    name = model.lower()
    family = next((kind for start, kind in table()["families"].items() if start in name), "llama")
    modules: Mapping[str, list[str]] = table()["targets"][family]
    return tuple(dict.fromkeys(module for part in parts for module in modules[part]))
