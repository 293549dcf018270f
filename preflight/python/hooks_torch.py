"""torch and its wrappers: calls that give back what they were given, so that a model stays the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from preflight.python.objects import Abstract, Attribute, CallRecord, Container, FunctionValue, Instance, sequence
from preflight.vocabulary.values import Const

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook


def first(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A wrapper around its first argument."""
    return next(iter((*record.arguments, *record.keywords.values())), None)


def prepare(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`accelerator.prepare(model, optimizer, loader)`: its arguments, one or a tuple."""
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


def yes(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """What a job on a GPU finds: there is one, of the last generations."""
    return Const(True, record.origin)


_WRAPPERS = (
    "torch.compile", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard", "torch.jit.script",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "peft.get_peft_model", "peft.prepare_model_for_kbit_training",
    "torch.distributed._composable.fsdp.fully_shard",
)  # fmt: skip

HOOKS: Mapping[str, Hook] = {
    **dict.fromkeys(_WRAPPERS, first),
    "torch.cuda.is_available": yes, "torch.cuda.is_bf16_supported": yes,
    "accelerate.Accelerator.prepare": prepare, "accelerate.Accelerator.prepare_model": first,
    "accelerate.Accelerator.prepare_data_loader": first, "accelerate.Accelerator.unwrap_model": first,
    "lightning.Fabric.setup": prepare, "lightning.fabric.Fabric.setup": prepare,
    "lightning_fabric.Fabric.setup": prepare,
    "lightning.Fabric.setup_dataloaders": prepare, "lightning.fabric.Fabric.setup_dataloaders": prepare,
    "deepspeed.initialize": deepspeed,
    "torch.multiprocessing.spawn": spawn, "torch.multiprocessing.start_processes": spawn,
}  # fmt: skip
