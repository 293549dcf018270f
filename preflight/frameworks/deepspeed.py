"""DistributedDataParallel, FSDP, DeepSpeed and DataParallel -> parallel.*; DeepSpeed's configuration as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.frameworks.fsdp import fsdp_objects
from preflight.frameworks.table import read
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, is_unknown, under
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import DATA_PARALLEL, ONE_PROCESS, Binding, Fact, Rank
from preflight.vocabulary.spelling import OPTIMIZERS
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, Value

_WRAPPERS = {
    "DistributedDataParallel": "ddp", "DDP": "ddp", "FullyShardedDataParallel": "fsdp", "FSDP": "fsdp",
    "fully_shard": "fsdp", "FullyShardedDataParallelPlugin": "fsdp",
}  # fmt: skip
_VERSIONS = {"FullyShardedDataParallel": 1, "FSDP": 1, "fully_shard": 2}
_ARGUMENTS = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters",
              "reshard_after_forward", "forward_prefetch", "limit_all_gathers")  # fmt: skip
"""Arguments of the wrappers that decide their memory: keys of parallel.options."""
_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""accelerate's ways to put layers on all GPUs that one process sees."""
STAGES: Mapping[int, str] = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


def parallel_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """How the program distributes a model over GPUs; a wrapper under a condition keeps the condition."""
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
            found += under(
                record.conditions, [bind(ONE_PROCESS, Const(DATA_PARALLEL, record.origin)), *_devices(record)]
            )
        elif record.name in _SPAWNING:
            found += under(record.conditions, _spawned(record))
        elif record.name == "deepspeed.initialize":
            found += _initialized(record)
    return found


_SPAWNING = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")


def _spawned(record: CallRecord) -> list[Binding]:
    """`spawn(main, nprocs=torch.cuda.device_count())`: the program starts its processes itself, one on each GPU."""
    count = record.argument("nprocs", 2)
    if count is None:
        return []
    if is_unknown(count):
        why = Unknown("the program starts a process on each GPU that it sees", Cause.run_time, (GPUS_OF_NODE,))
        return [bind(GPUS_OF_NODE, Const(why, record.origin), Rank.not_followed, record.origin)]
    return [bind(GPUS_OF_NODE, count, Rank.read), bind("parallel.ranks_per_node", count, Rank.read)]


GPUS_OF_NODE = "parallel.gpus_per_node"
_OF_ITS_FILE = ("parallel.strategy", "parallel.offload", "train.precision")
"""What DeepSpeed has from its configuration alone, and what the estimate depends on most."""


def _initialized(record: CallRecord) -> list[Binding]:
    """`deepspeed.initialize(args, model, config=...)`: a mapping says it here; else a file that a flag may name."""
    config = record.argument("config") or record.argument("config_params")
    found = deepspeed_config(Arguments({} if config is None else {"config": config}).inner("config"))
    if isinstance(constant(config), (Mapping, str)):
        return found
    unread = Unknown("the configuration of DeepSpeed says it, and was not read", Cause.not_read)
    return [*found, *(bind(field, Const(unread, record.origin), Rank.not_followed) for field in _OF_ITS_FILE)]


def _devices(record: CallRecord) -> list[Binding]:
    """`DataParallel(model, device_ids=[0, 1])`: how many GPUs the one process takes."""
    ids = constant(record.argument("device_ids", 1))
    if not isinstance(ids, tuple) or not ids:
        return []
    return [bind("parallel.gpus_per_node", Const(len(ids), first_origin(record.argument("device_ids", 1))), Rank.read)]


def _options(record: CallRecord) -> dict[str, Expr]:
    """Job field -> the value that a wrapper's call gives to its buffers; only plain values count."""
    given = {f"parallel.options.{name}": record.argument(name) for name in _ARGUMENTS}
    options = {field: expr for field, expr in given.items() if expr is not None and _plain(constant(expr))}
    if record.method in _VERSIONS:
        options["parallel.options.fsdp_version"] = Const(_VERSIONS[record.method], record.origin)
    return options


def _plain(value: Value) -> bool:
    return isinstance(value, (bool, int))


def settings_links(records: Sequence[CallRecord]) -> list[tuple[str, Expr]]:
    """Files that calls name as settings: `deepspeed="ds.json"`, `config="ds.json"`, `fsdp_config="fsdp.json"`."""
    found = []
    for record in records:
        expr = record.argument("deepspeed") or (
            record.argument("config") if record.name == "deepspeed.initialize" else None
        )
        expr = expr or (record.argument("hf_ds_config") if record.method == "DeepSpeedPlugin" else None)
        for one in (expr, record.argument("fsdp_config")):
            value = constant(one) if one is not None else None
            if one is not None and isinstance(value, str) and ("." in value or "/" in value):
                found.append((value, one))
    return found


def one_process(records: Sequence[CallRecord]) -> list[Fact]:
    """The call that puts the layers of a model on the GPUs that one process sees."""
    for record in records:
        mapped = record.argument("device_map") if record.method == "from_pretrained" else None
        if mapped is not None and constant(mapped) in _MAPS:
            return [Fact("one_process", f"device_map={constant(mapped)!r}", first_origin(mapped) or record.origin)]
    return []


def kernels(kind: Expr) -> Expr:
    """DeepSpeed makes the optimizer itself if its file names one: Adam has its fused or its CPU kernels
    (runtime/engine.py, _configure_basic_optimizer), which step without temporaries on the GPU."""
    adam = OPTIMIZERS.get(str(constant(kind)).lower()) in ("adam", "adamw")
    return Const("fused" if adam else None, first_origin(kind))


def deepspeed_config(config: Arguments) -> list[Binding]:
    """Bindings of a DeepSpeed configuration; values that are "auto" follow the Trainer and bind nothing."""
    return read("deepspeed", config).bindings


def stated_batch(args: Arguments, found: FoundSettings) -> None:
    """The whole batch of all ranks, which a rule compares with micro-batch, accumulation and ranks."""
    value = args.value("train_batch_size")
    if isinstance(value, int):
        found.facts.append(Fact("stated_batch", value, args.origin("train_batch_size")))
