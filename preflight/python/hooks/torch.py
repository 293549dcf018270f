"""torch, Accelerate, DeepSpeed and Lightning: return values of their functions. A wrapped model stays the model."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.access import class_attribute
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.functions import bind_parameters
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    Container,
    Frame,
    FunctionValue,
    Instance,
    namespace,
    sequence,
)
from preflight.vocabulary.values import Const, Op, evaluate, names


def wrapped(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The first argument, which the function wraps."""
    return next(iter((*record.arguments, *record.keywords.values())), None)


def prepare(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`accelerator.prepare(model, optimizer, loader)`: its one argument, or the tuple of them."""
    if len(record.arguments) == 1:
        return record.arguments[0]
    return sequence(list(record.arguments), "tuple", record.origin) if record.arguments else None


def deepspeed(record: CallRecord, ev: Evaluator) -> Abstract | None:
    model = record.object("model") or Const(None)
    optimizer = record.object("optimizer") or Instance("deepspeed.optimizer", record=record)
    loader = Instance("deepspeed.loader", record=record)
    return sequence([model, optimizer, loader, Const(None)], "tuple", record.origin)


def spawn(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torch.multiprocessing.spawn(fn, args=(...))`: fn(rank, *args)."""
    function = record.object("fn", 0)
    args = record.object("args", 1)
    if not isinstance(function, FunctionValue):
        return None
    rest = ev.iterate(args) if isinstance(args, Container) else []
    rank = Attribute(Instance("torch.multiprocessing"), "rank")
    return ev.call(function, (rank, *(rest or [])))


def gpu_available(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Whether there is a GPU of a recent generation: the job runs on one."""
    return Const(True, record.origin)


def device_count(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES` leaves, which the program or its launch sets; else as many as there are."""
    name = "CUDA_VISIBLE_DEVICES"
    said = ev.set_variables.get(name) or ev.variable(name)
    if said is None:
        return None
    count = Op("len", (Op("split", (Op("str", (said,)), Const(",")), said.origin),), said.origin)
    if any(True for _ in names(said)):  # a flag says which
        return count
    value = evaluate(count)
    return Const(value, said.origin) if isinstance(value, int) and evaluate(said) not in ("", "-1", -1) else None


# --- Lightning --------------------------------------------------------------------------------------------------------

ARGUMENTS = "arguments"
"""The key of an object's state for the arguments of its constructor: (positional, by keyword)."""


def save_hyperparameters(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`self.save_hyperparameters()` sets `self.hparams`: the arguments of `__init__`, as attributes and as items."""
    holder = record.receiver_object
    if not isinstance(holder, Instance) or holder.cls is None or ARGUMENTS not in holder.state:
        return None
    init = class_attribute(holder.cls, "__init__")
    given = holder.state[ARGUMENTS]
    if not isinstance(init, FunctionValue) or not isinstance(given, tuple):
        return None
    frame = Frame({}, init.module)
    bind_parameters(init, (holder, *given[0]), dict(given[1]), frame)
    itself = next(iter(frame.variables), None)
    items = {name: value for name, value in frame.variables.items() if name != itself}
    ev.journal.write(holder.attributes, "hparams", namespace(Container("dict", items, record.origin)))
    return Const(None)


_WRAPPERS = (
    "torch.compile", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard", "torch.jit.script",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "peft.get_peft_model", "peft.prepare_model_for_kbit_training",
    "torch.distributed._composable.fsdp.fully_shard",
)  # fmt: skip

HOOKS: Mapping[str, Hook] = {
    "*.save_hyperparameters": save_hyperparameters,
    **dict.fromkeys(_WRAPPERS, wrapped),
    "torch.cuda.is_available": gpu_available, "torch.cuda.is_bf16_supported": gpu_available,
    "torch.cuda.device_count": device_count,
    "accelerate.Accelerator.prepare": prepare, "accelerate.Accelerator.prepare_model": wrapped,
    "accelerate.Accelerator.prepare_data_loader": wrapped, "accelerate.Accelerator.unwrap_model": wrapped,
    "lightning.Fabric.setup": prepare, "lightning.fabric.Fabric.setup": prepare,
    "lightning_fabric.Fabric.setup": prepare,
    "lightning.Fabric.setup_dataloaders": prepare, "lightning.fabric.Fabric.setup_dataloaders": prepare,
    "deepspeed.initialize": deepspeed,
    "torch.multiprocessing.spawn": spawn, "torch.multiprocessing.start_processes": spawn,
}  # fmt: skip
