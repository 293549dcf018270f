"""DistributedDataParallel, FSDP, DeepSpeed and DataParallel -> parallel.*; DeepSpeed's configuration as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from preflight.frameworks.fsdp import fsdp_objects
from preflight.program.bindings import bind, constant, first_origin, is_unknown, under
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.records import replace
from preflight.vocabulary.spelling import OPTIMIZERS
from preflight.vocabulary.values import Const, Expr, Value

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
_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""accelerate's ways to put layers on all GPUs that one process sees."""
STAGES: Mapping[int, str] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


def parallel_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """How the program spreads a model over GPUs; a wrapper under a condition keeps the condition."""
    found: list[Binding] = []
    for record in records:
        if record.method in _WRAPPERS and "." in record.name:
            # under a condition on the environment, what launches the program decides
            rank = Rank.default if any(is_unknown(condition) for condition in record.conditions) else Rank.read
            expr = Const(_WRAPPERS[record.method], record.origin)
            wrapped = [bind("parallel.strategy", expr, rank, record.origin)]
            wrapped += [bind(field, option, rank, record.origin) for field, option in _options(record).items()]
            if _WRAPPERS[record.method] == "fsdp":
                wrapped += [replace(binding, rank=rank) for binding in fsdp_objects(record)]
            found += under(record.conditions, wrapped)
        elif record.method == "DataParallel" and record.name.startswith("torch.nn."):
            found += under(record.conditions, _devices(record))
        elif record.name == "deepspeed.initialize":
            config = record.argument("config") or record.argument("config_params")
            value = constant(config) if config is not None else None
            if isinstance(value, Mapping):
                found += deepspeed_config(value, partial(_whole, config))
    return found


def _devices(record: CallRecord) -> list[Binding]:
    """`DataParallel(model, device_ids=[0, 1])`: how many GPUs the one process takes."""
    ids = constant(record.argument("device_ids", 1))
    if not isinstance(ids, tuple) or not ids:
        return []
    return [bind("parallel.gpus_per_node", Const(len(ids), first_origin(record.argument("device_ids", 1))), Rank.read)]


def _options(record: CallRecord) -> dict[str, Expr]:
    """What a wrapper's call says of its buffers, by Job field; a value that is not a plain one says nothing."""
    given = {f"parallel.options.{name}": record.argument(name) for name in _ARGUMENTS}
    options = {field: expr for field, expr in given.items() if expr is not None and _plain(constant(expr))}
    if record.method in _VERSIONS:
        options["parallel.options.fsdp_version"] = Const(_VERSIONS[record.method], record.origin)
    return options


def _plain(value: Value) -> bool:
    return isinstance(value, (bool, int))


def _whole(config: Expr | None, _keys: tuple[str, ...]) -> Expr | None:
    """Every key of a literal configuration is placed at the literal."""
    return config


def settings_links(records: Sequence[CallRecord]) -> list[tuple[str, Expr]]:
    """JSON files that calls name as settings: `deepspeed="ds.json"`, `config="ds.json"`, `fsdp_config="fsdp.json"`."""
    found = []
    for record in records:
        expr = record.argument("deepspeed") or (
            record.argument("config") if record.name == "deepspeed.initialize" else None
        )
        expr = expr or (record.argument("hf_ds_config") if record.method == "DeepSpeedPlugin" else None)
        for one in (expr, record.argument("fsdp_config")):
            value = constant(one) if one is not None else None
            if one is not None and isinstance(value, str) and value.endswith(".json"):
                found.append((value, one))
    return found


def one_process(records: Sequence[CallRecord]) -> list[Fact]:
    """What spreads a model over the GPUs of one process: GPU 0 holds more than the others then, or other layers."""
    for record in records:
        if record.method == "DataParallel" and record.name.startswith("torch.nn."):
            return [Fact("one_process", "torch.nn.DataParallel", record.origin)]
        mapped = record.argument("device_map") if record.method == "from_pretrained" else None
        if mapped is not None and constant(mapped) in _MAPS:
            return [Fact("one_process", f"device_map={constant(mapped)!r}", first_origin(mapped) or record.origin)]
    return []


Place = Callable[["tuple[str, ...]"], "Expr | None"]
Add = Callable[..., None]
"""Where a key of a configuration is written: an expression with its origin, by the route to the key."""


def _value(config: Mapping[str, Value], *keys: str) -> Value:
    node: Value = config
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _optimizer(config: Mapping[str, Value], add: Add) -> None:
    """DeepSpeed makes the optimizer itself where its file names one: Adam's are its fused or its CPU kernels
    (runtime/engine.py, _configure_basic_optimizer), which step without temporaries on the GPU."""
    kind = _value(config, "optimizer", "type")
    if not isinstance(kind, str):
        return
    name = OPTIMIZERS.get(kind.lower(), "other")
    add("train.optimizer", name, "optimizer", "type")
    if name in ("adam", "adamw"):
        add("train.optimizer_impl", "fused", "optimizer", "type")


def deepspeed_config(config: Mapping[str, Value], place: Place) -> list[Binding]:
    """Bindings of a DeepSpeed configuration; "auto" values are the Trainer's and bind nothing.

    `place(keys)` gives an expression with the origin of a key (or None).
    """
    found: list[Binding] = []

    def add(field: str, value: Value, *keys: str) -> None:
        placed = place(keys)
        found.append(bind(field, Const(value, placed.origin if placed is not None else None), Rank.read))

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
    for name in _DEEPSPEED:
        value = _value(config, "zero_optimization", name)
        if isinstance(value, (bool, int, float, str)):
            add(f"parallel.options.{name}", value, "zero_optimization", name)
    _optimizer(config, add)
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
