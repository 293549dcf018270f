"""Lightning's strategies by name and as objects -> parallel.*: what they shard, and with which buckets.

Read from lightning 2.6, pytorch/strategies/{fsdp,deepspeed,ddp}.py and their registered names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.frameworks.deepspeed import STAGES
from preflight.frameworks.fsdp import fsdp_objects, truth
from preflight.program.bindings import bind, constant, first_origin, fold, under
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import PRECISIONS, spelled
from preflight.vocabulary.values import Const, Expr, Op, Scalar

STRATEGIES: Mapping[str, str] = {
    "ddp": "ddp", "ddp_spawn": "ddp", "ddp_notebook": "ddp", "ddp_fork": "ddp",
    "ddp_find_unused_parameters_true": "ddp", "ddp_find_unused_parameters_false": "ddp",
    "fsdp": "fsdp", "fsdp_cpu_offload": "fsdp",
    "deepspeed_stage_1": "zero1", "deepspeed_stage_2": "zero2", "deepspeed_stage_3": "zero3", "deepspeed": "zero2",
    "deepspeed_stage_1_offload": "zero1", "deepspeed_stage_2_offload": "zero2", "deepspeed_stage_3_offload": "zero3",
    "deepspeed_stage_3_offload_nvme": "zero3", "ddpstrategy": "ddp", "fsdpstrategy": "fsdp", "none": "none",
}  # fmt: skip
"""Lightning's registered strategies; a bare "deepspeed" is stage 2."""
BUCKET = 200_000_000
"""Elements of DeepSpeedStrategy's reduce_bucket_size and allgather_bucket_size, where DeepSpeed's own are 5e8."""
_BUCKETS = ("reduce_bucket_size", "allgather_bucket_size")
_DDP = ("gradient_as_bucket_view", "static_graph", "find_unused_parameters", "bucket_cap_mb")


def named_strategy(strategy: Expr) -> list[Binding]:
    """`strategy="deepspeed_stage_3_offload"`; "auto" says nothing."""
    name = str(constant(strategy))
    if name == "auto":
        return []
    found = [bind("parallel.strategy", spelled(strategy, STRATEGIES))]
    place = first_origin(strategy)
    if "offload" in name:
        part = "parameters" if "stage_3" in name or name.startswith("fsdp") else "optimizer"
        found.append(bind("parallel.offload", Const(part, place)))
    if name.startswith("deepspeed"):
        found += [bind(f"parallel.options.{bucket}", Const(BUCKET), Rank.default) for bucket in _BUCKETS]
    if name.startswith("fsdp"):
        found.append(bind("parallel.options.fsdp_version", Const(1), Rank.default))
    return found


def strategy_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Strategies that the program makes itself: FSDPStrategy(...), DeepSpeedStrategy(...), DDPStrategy(...)."""
    makers = {"FSDPStrategy": _fsdp, "DeepSpeedStrategy": _deepspeed, "DDPStrategy": _ddp,
              "ModelParallelStrategy": _two_dimensional}  # fmt: skip
    found: list[Binding] = []
    for record in records:
        maker = makers.get(record.method)
        if maker is not None and record.name.startswith(("lightning", "pytorch_lightning")):
            found += under(record.conditions, maker(record))
    return found


def _fsdp(record: CallRecord) -> list[Binding]:
    found = [
        bind("parallel.strategy", Const("fsdp", record.origin), Rank.read, record.origin),
        bind("parallel.options.fsdp_version", Const(1), Rank.default),
        *fsdp_objects(record),
    ]
    for name in ("forward_prefetch", "limit_all_gathers"):
        given = record.argument(name)
        if given is not None:
            found.append(bind(f"parallel.options.{name}", given))
    policy = record.argument("activation_checkpointing_policy") or record.argument("activation_checkpointing")
    if policy is not None and constant(policy) is not None:
        found.append(bind("train.gradient_checkpointing", Const(True, first_origin(policy) or record.origin)))
    return found


def _deepspeed(record: CallRecord) -> list[Binding]:
    stage = record.argument("stage") or Const(2)
    names = {str(number): name for number, name in STAGES.items()}
    found = [bind("parallel.strategy", spelled(stage, names), Rank.read, first_origin(stage) or record.origin)]
    for name, part in (("offload_optimizer", "optimizer"), ("offload_parameters", "parameters")):
        expr = record.argument(name)
        if expr is not None and constant(truth(expr)) is True:
            found.append(bind("parallel.offload", Const(part, first_origin(expr))))
    for name in _BUCKETS:
        given = record.argument(name)
        found.append(bind(f"parallel.options.{name}", given or Const(BUCKET), None if given else Rank.default))
    for name in ("contiguous_gradients", "overlap_comm", "sub_group_size"):
        given = record.argument(name)
        if given is not None:
            found.append(bind(f"parallel.options.{name}", given))
    return found


def _ddp(record: CallRecord) -> list[Binding]:
    found = [bind("parallel.strategy", Const("ddp", record.origin), Rank.read, record.origin)]
    given = ((name, record.argument(name)) for name in _DDP)
    return found + [bind(f"parallel.options.{name}", expr) for name, expr in given if expr is not None]


def _two_dimensional(record: CallRecord) -> list[Binding]:
    """FSDP 2 beside tensor parallelism, of sizes that are "auto" unless they are said."""
    found = [
        bind("parallel.strategy", Const("fsdp", record.origin), Rank.read, record.origin),
        bind("parallel.options.fsdp_version", Const(2), Rank.default),
    ]
    size = record.argument("tensor_parallel_size")
    if size is not None and constant(size) != "auto":
        found.append(bind("parallel.tensor", size))
    return found


_TRAINERS = ("Trainer", "Fabric")
_LIGHTNING = ("lightning", "pytorch_lightning")
DEFAULTS: Mapping[str, Scalar] = {"precision": None, "accumulate_grad_batches": 1, "num_nodes": 1, "devices": None,
                                  "strategy": "auto"}  # fmt: skip
"""Lightning's Trainer (2.6)."""


def is_lightning_trainer(record: CallRecord) -> bool:
    """Whether the call makes Lightning's Trainer or Fabric."""
    return record.method in _TRAINERS and record.name.startswith(_LIGHTNING)


def lightning_bindings(records: Sequence[CallRecord], base: Expr | None = None) -> list[Binding]:
    """Lightning's Trainer and Fabric calls."""
    return [
        b for r in records if is_lightning_trainer(r) for b in under(r.conditions, lightning_arguments(r.kwargs, base))
    ]


def lightning_arguments(values: Mapping[str, Expr], base: Expr | None = None) -> list[Binding]:
    """Arguments of Lightning's Trainer, from a call or a config: `devices` is per node, a list names devices."""
    found: list[Binding] = []
    precision = values.get("precision")
    found.append(
        bind("train.precision", base or Const("fp32"), Rank.default)
        if precision is None or constant(precision) is None
        else bind("train.precision", spelled(precision, PRECISIONS))
    )
    if (steps := values.get("accumulate_grad_batches")) is not None:
        found.append(bind("train.grad_accum", steps))
    if (nodes := values.get("num_nodes")) is not None:
        found.append(bind("parallel.nodes", nodes))
    found += _devices(values.get("devices"))
    strategy = values.get("strategy")
    found += named_strategy(strategy) if strategy is not None else []
    every = values.get("val_check_interval")
    if every is not None:
        found.append(bind("data.validation_overlaps", fold(Op("!=", (every, Const(1.0))), first_origin(every))))
    return found


def _devices(devices: Expr | None) -> list[Binding]:
    """How many: 2 and "2" count, [0, 1] and "0,1" list, -1 and "auto" take what is there."""
    if devices is None:
        return []
    value = constant(devices)
    if isinstance(value, tuple):
        devices = Const(len(value), first_origin(devices))
    elif isinstance(value, str):
        text = value.strip()
        if "," in text:
            devices = Const(len([part for part in text.split(",") if part.strip()]), first_origin(devices))
        elif text.isdecimal():
            devices = Const(int(text), first_origin(devices))
        else:
            return []
    elif isinstance(value, int) and value < 1:
        return []
    return [bind("parallel.gpus_per_node", devices), bind("parallel.ranks_per_node", devices)]
