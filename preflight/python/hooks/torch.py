"""torch, Accelerate, DeepSpeed and Lightning: return values of their functions. A wrapped model stays the model."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.access import class_attribute, mark_changed
from preflight.python.calls import spawned_rank
from preflight.python.classes import itself
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.functions import bind_parameters
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    Frame,
    FunctionValue,
    Instance,
    namespace,
    sequence,
)
from preflight.vocabulary.reading import GPUS_SEEN
from preflight.vocabulary.values import Const, Expr, Op, evaluate, names


def wrapped(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The first argument, which the function wraps."""
    return next(iter((*record.arguments, *record.keywords.values())), None)


def prepare(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`accelerator.prepare(model, optimizer, loader)`: its one argument, or the tuple of them."""
    if len(record.arguments) == 1:
        return record.arguments[0]
    return sequence(list(record.arguments), "tuple", record.origin) if record.arguments else None


def initialized(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`apex.amp.initialize(models, optimizers)`: the models, or the tuple of both."""
    given = [one for one in (record.object("models", 0), record.object("optimizers", 1)) if one is not None]
    return given[0] if len(given) == 1 else sequence(given, "tuple", record.origin)


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
    return ev.call(function, (spawned_rank(), *(rest or [])))


def gpu_available(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Whether there is a GPU of a recent generation: the job runs on one."""
    return Const(True, record.origin)


def device_count(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES` leaves, which the program or its launch sets; else as many as SLURM gives
    the job on a node; else as many as there are."""
    name = "CUDA_VISIBLE_DEVICES"
    said = ev.set_variables.get(name) or ev.variable(name)
    if said is None:
        given = ev.variable("SLURM_GPUS_ON_NODE")
        count = None if given is None else evaluate(Op("int", (given,)))
        known = given is not None and isinstance(count, int)
        return Const(count, given.origin) if known and given is not None else Const(GPUS_SEEN, record.origin)
    counted = Op("len", (Op("split", (Op("str", (said,)), Const(",")), said.origin),), said.origin)
    if any(True for _ in names(said)):  # a flag says which
        return counted
    value = evaluate(counted)
    known = isinstance(value, int) and evaluate(said) not in ("", "-1", -1)
    return Const(value, said.origin) if known else Const(GPUS_SEEN, record.origin)


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


def add_layers(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`layers.append(layer)`, `layers.extend([...])`, `self.add_module(name, layer)` and `register_parameter`: parts of
    the module."""
    holder = record.receiver_object
    if not isinstance(holder, Instance):
        return None
    if holder.cls is None and holder.made_by.rpartition(".")[2] not in LAYER_LISTS:
        return None
    named = record.method in NAMED
    given = record.object(NAMED[record.method], 1) if named else record.object("module", int(record.method == "insert"))
    several = record.method == "extend"
    items = None if given is None else ev.iterate(given) if several else [given]
    name = constant_of(record.argument("name", 0)) if named else None
    if isinstance(name, str) and name in holder.attributes:
        ev.journal.remove(holder.attributes, name)  # the part takes the place of an older one
    loops = ev.position.loops_since(holder.record)
    if isinstance(name, str) and isinstance(given, Instance) and not loops:
        ev.journal.write(holder.attributes, name, given)
        return holder
    turns = ev.position.turns_here if loops else None
    if items is not None and turns is not None:
        items = [Instance(REPEATED, origin=record.origin, state={"count": turns, "layer": item}) for item in items]
    elif items is None or loops:
        items = [Instance(UNCOUNTED, origin=record.origin)]
    for item in items:
        ev.journal.write(holder.attributes, ("layer", len(holder.attributes)), item)
    return holder


def layers_of_base(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`super().__init__(layer, ...)` of a class that extends nn.Sequential or nn.ModuleList: parts of the object."""
    holder = itself(record.receiver_object) if record.receiver_object is not None else None
    if not isinstance(holder, Instance) or holder.cls is None:
        return None
    several = "torch.nn.Sequential" not in holder.cls.external_bases
    parts = ev.iterate(record.arguments[0]) if several and record.arguments else list(record.arguments)
    if parts is None or not record.complete or ev.position.loops_since(holder.record):
        mark_changed(holder)
    for part in parts or ():
        ev.journal.write(holder.attributes, ("layer", len(holder.attributes)), part)
    return Const(None)


def changed(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`layers.pop()`, `layers.update(...)`: what the object holds afterwards is not followed."""
    if record.receiver_object is not None:
        mark_changed(record.receiver_object)
    return None


def constant_of(value: Expr | None) -> object:
    return value.value if isinstance(value, Const) else None


NAMED = {"add_module": "module", "register_module": "module", "register_parameter": "param"}
"""Methods that get a part's name first -> their name for the part."""
LAYER_LISTS = frozenset({"ModuleList", "Sequential"})
UNCOUNTED = "torch.nn.layers_of_a_loop"
"""What stands for layers that a loop adds to a module, of which nothing tells the number."""
REPEATED = "torch.nn.layer_of_each_turn"
"""What stands for a layer of which a loop adds as many as its state's `count` says."""

_WRAPPERS = (
    "torch.compile", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard", "torch.jit.script",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "peft.get_peft_model", "peft.prepare_model_for_kbit_training",
    "peft.prepare_model_for_int8_training", "torch.distributed._composable.fsdp.fully_shard",
)  # fmt: skip

HOOKS: Mapping[str, Hook] = {
    "*.save_hyperparameters": save_hyperparameters,
    **dict.fromkeys((f"torch.nn.{name}.{do}" for name in ("ModuleList", "Sequential") for do in
                     ("append", "extend", "insert", "add_module")), add_layers),
    **dict.fromkeys((f"*.{name}" for name in NAMED), add_layers),
    **dict.fromkeys((f"torch.nn.{name}.{do}" for name in ("ModuleList", "Sequential", "ModuleDict") for do in
                     ("pop", "update", "clear", "popitem", "__delitem__", "__setitem__", "__iadd__")), changed),
    "torch.nn.Sequential.__init__": layers_of_base, "torch.nn.ModuleList.__init__": layers_of_base,
    **dict.fromkeys(_WRAPPERS, wrapped),
    "torch.cuda.is_available": gpu_available, "torch.cuda.is_bf16_supported": gpu_available,
    "torch.cuda.device_count": device_count,
    "apex.amp.initialize": initialized,
    "accelerate.Accelerator.prepare": prepare, "accelerate.Accelerator.prepare_model": wrapped,
    "accelerate.Accelerator.prepare_data_loader": wrapped, "accelerate.Accelerator.unwrap_model": wrapped,
    "lightning.Fabric.setup": prepare, "lightning.fabric.Fabric.setup": prepare,
    "lightning_fabric.Fabric.setup": prepare,
    "lightning.Fabric.setup_dataloaders": prepare, "lightning.fabric.Fabric.setup_dataloaders": prepare,
    "deepspeed.initialize": deepspeed,
    "torch.multiprocessing.spawn": spawn, "torch.multiprocessing.start_processes": spawn,
}  # fmt: skip
