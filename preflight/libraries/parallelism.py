"""DistributedDataParallel, FSDP, DeepSpeed and DataParallel -> parallel.*; DeepSpeed's configuration as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from preflight.dialects.reading import Binding
from preflight.libraries.common import DEFAULT_RANK, TEXT_RANK, bind, constant, is_unknown, under
from preflight.python.records import CallRecord
from preflight.values import Const, Expr, Value

_WRAPPERS = {
    "DistributedDataParallel": "ddp", "DDP": "ddp", "FullyShardedDataParallel": "fsdp", "FSDP": "fsdp",
    "fully_shard": "fsdp", "FullyShardedDataParallelPlugin": "fsdp",
}  # fmt: skip
_VERSIONS = {"FullyShardedDataParallel": 1, "FSDP": 1, "fully_shard": 2}
_ARGUMENTS = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters",
              "reshard_after_forward", "forward_prefetch", "limit_all_gathers")  # fmt: skip
"""Arguments of the wrappers that decide what they hold: keys of parallel.options."""
_DEEPSPEED = ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size",
              "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_param_persistence_threshold",
              "sub_group_size", "contiguous_gradients", "overlap_comm")  # fmt: skip
"""The same of DeepSpeed's zero_optimization."""
STAGES: Mapping[int, str] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


def parallel_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """How the program spreads a model over GPUs; a wrapper under a condition keeps the condition."""
    found: list[Binding] = []
    for record in records:
        if record.method in _WRAPPERS and "." in record.name:
            # under a condition on the environment, what launches the program decides
            rank = DEFAULT_RANK if any(is_unknown(condition) for condition in record.conditions) else TEXT_RANK
            expr = Const(_WRAPPERS[record.method], record.origin)
            wrapped = [bind("parallel.strategy", expr, rank, record.origin)]
            options = _options(record)
            if options:
                wrapped.append(bind("parallel.options", Const(options, record.origin), rank, record.origin))
            found += under(record.conditions, wrapped)
        elif record.name == "deepspeed.initialize":
            config = record.argument("config") or record.argument("config_params")
            value = constant(config) if config is not None else None
            if isinstance(value, Mapping):
                found += deepspeed_config(value, partial(_whole, config))
    return found


def _options(record: CallRecord) -> dict[str, Value]:
    """What a wrapper's call says of its buffers; a value that is not a plain one says nothing."""
    given = {name: constant(record.argument(name)) for name in _ARGUMENTS}
    options: dict[str, Value] = {n: value for n, value in given.items() if isinstance(value, (bool, int))}
    if record.method in _VERSIONS:
        options["fsdp_version"] = _VERSIONS[record.method]
    return options


def _whole(config: Expr | None, _keys: tuple[str, ...]) -> Expr | None:
    """Every key of a literal configuration is placed at the literal."""
    return config


def deepspeed_links(records: Sequence[CallRecord]) -> list[tuple[str, Expr]]:
    """JSON files that calls name as DeepSpeed's configuration: `deepspeed="ds.json"`, `config="ds.json"`."""
    found = []
    for record in records:
        expr = record.argument("deepspeed") or (
            record.argument("config") if record.name == "deepspeed.initialize" else None
        )
        expr = expr or (record.argument("hf_ds_config") if record.method == "DeepSpeedPlugin" else None)
        value = constant(expr) if expr is not None else None
        if expr is not None and isinstance(value, str) and value.endswith(".json"):
            found.append((value, expr))
    return found


Place = Callable[["tuple[str, ...]"], "Expr | None"]
"""Where a key of a configuration is written: an expression with its origin, by the route to the key."""


def _value(config: Mapping[str, Value], *keys: str) -> Value:
    node: Value = config
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def deepspeed_config(config: Mapping[str, Value], place: Place) -> list[Binding]:
    """Bindings of a DeepSpeed configuration; "auto" values are the Trainer's and bind nothing.

    `place(keys)` gives an expression with the origin of a key (or None).
    """
    found: list[Binding] = []

    def add(field: str, value: Value, *keys: str) -> None:
        placed = place(keys)
        found.append(bind(field, Const(value, placed.origin if placed is not None else None), 2))

    stage = _value(config, "zero_optimization", "stage")
    if isinstance(stage, int) and stage in STAGES:
        add("parallel.strategy", STAGES[stage], "zero_optimization", "stage")
    offloads = [(part, _value(config, "zero_optimization", f"offload_{name}", "device"))
                for name, part in (("optimizer", "optimizer"), ("param", "parameters"))]  # fmt: skip
    for part, device in offloads:
        if device in ("cpu", "nvme"):
            add(
                "parallel.offload",
                part,
                "zero_optimization",
                "offload_optimizer" if part == "optimizer" else "offload_param",
            )
    zero = _value(config, "zero_optimization")
    if isinstance(zero, Mapping):
        options = {name: zero[name] for name in _DEEPSPEED if isinstance(zero.get(name), (bool, int, float, str))}
        if options:
            add("parallel.options", options, "zero_optimization")
    for key, precision in (("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")):
        if _value(config, key, "enabled") is True:
            add("train.precision", precision, key, "enabled")
    for key, field in (
        ("train_micro_batch_size_per_gpu", "train.batch_size"),
        ("gradient_accumulation_steps", "train.grad_accum"),
    ):
        value = _value(config, key)
        if isinstance(value, int) and not isinstance(value, bool):
            add(field, value, key)
    return found
