"""autocast, Accelerate, Fabric and Lightning -> train.precision, train.weights_dtype, train.grad_accum, parallel.*."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.frameworks.lightning import named_strategy
from preflight.program.bindings import DEFAULT_RANK, bind, constant, first_origin, fold, under, when
from preflight.program.call_site import evaluates, words
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.reading import Binding
from preflight.vocabulary.spelling import DTYPES, PRECISIONS, spelled
from preflight.vocabulary.values import Const, Expr, Op, Scalar

_TRAINERS = ("Trainer", "Fabric")
_LIGHTNING = ("lightning", "pytorch_lightning")
DEFAULTS: Mapping[str, Scalar] = {"precision": None, "accumulate_grad_batches": 1, "num_nodes": 1, "devices": None,
                                  "strategy": "auto"}  # fmt: skip
"""Lightning's Trainer (2.6)."""


def is_lightning_trainer(record: CallRecord) -> bool:
    """Whether the call makes Lightning's Trainer or Fabric."""
    return record.method in _TRAINERS and record.name.startswith(_LIGHTNING)


def autocast_binding(records: Sequence[CallRecord], base: Expr | None) -> list[Binding]:
    """train.precision where the training forward runs under autocast; `base` is what the weights are otherwise."""
    found: list[Binding] = []
    for record in records:
        if record.method != "autocast" or evaluates(record):
            continue
        kind = record.argument("device_type", None if ".cuda." in record.name or ".cpu." in record.name else 0)
        if ".cpu." in record.name or (kind is not None and constant(kind) in ("cpu", "mps", "xla")):
            continue
        if record.receiver is not None and "Accelerator" in record.receiver:
            continue
        found += under(record.conditions, [bind("train.precision", _autocast(record, base))])
    return found


def _autocast(record: CallRecord, base: Expr | None) -> Expr:
    """torch.autocast(device_type, dtype=None, enabled=True); torch.cuda.amp.autocast(enabled=True, dtype=float16)."""
    old = record.name.endswith("cuda.amp.autocast")
    dtype, enabled = record.argument("dtype", 1), record.argument("enabled", 0 if old else 2)
    if dtype is None or constant(dtype) is None:
        mixed: Expr = Const("fp16-mixed", record.origin)  # torch.get_autocast_dtype("cuda")
    else:
        mixed = spelled(dtype, PRECISIONS)
    if enabled is None:
        return mixed
    return when(enabled, mixed, base or Const("fp32", first_origin(enabled)))


def weights_dtype(records: Sequence[CallRecord]) -> Expr | None:
    """What the model's weights are converted to by hand: model.half(), .bfloat16(), .to(dtype), set_default_dtype."""
    found: Expr | None = None
    for record in records:
        if record.method in ("half", "bfloat16") and _is_model(record):
            found = Const(DTYPES[record.method], record.origin)
        elif record.method == "to" and _is_model(record):
            for expr in (*record.args, *record.kwargs.values()):
                if str(constant(expr)).lower() in DTYPES:
                    found = spelled(expr, DTYPES)
        elif record.name == "torch.set_default_dtype" and record.args:
            found = spelled(record.args[0], DTYPES)
    return found


def _is_model(record: CallRecord) -> bool:
    """Whether a method is called on a model: an object of a Module class, or a name that says so."""
    if record.receiver_object is not None:
        for one in alternatives(record.receiver_object):
            if isinstance(one, Instance):
                bases = one.cls.external_bases if one.cls is not None else ()
                return any(base.endswith("Module") for base in bases) or "from_pretrained" in one.made_by or (
                    one.cls is None and bool(words(one.made_by.rpartition(".")[2]) & {"model", "net", "unet", "create"})
                )  # fmt: skip
    return bool(words(record.name.rpartition(".")[0]) & {"model", "net", "network", "unet", "encoder", "backbone"})


def accelerate_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Accelerator(mixed_precision=..., gradient_accumulation_steps=...)."""
    found: list[Binding] = []
    for record in records:
        if record.name not in ("accelerate.Accelerator", "accelerate.accelerator.Accelerator"):
            continue
        mixed = record.argument("mixed_precision", 2)
        if mixed is not None and constant(mixed) is not None:
            found.append(bind("train.precision", spelled(mixed, PRECISIONS)))
        steps = record.argument("gradient_accumulation_steps", 3)
        found.append(bind("train.grad_accum", steps or Const(1), None if steps else DEFAULT_RANK))
    return found


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
        bind("train.precision", base or Const("fp32"), DEFAULT_RANK)
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
        elif text.isdigit():
            devices = Const(int(text), first_origin(devices))
        else:
            return []
    elif isinstance(value, int) and value < 1:
        return []
    return [bind("parallel.gpus_per_node", devices), bind("parallel.ranks_per_node", devices)]


# What a program trains on, where it says so: -> machine.accelerator ("cpu": no CUDA context, no pinned memory).
#
# Lightning's Trainer and Fabric (accelerator="cpu"), transformers' TrainingArguments (use_cpu, no_cuda before 4.36),
# Accelerate's Accelerator(cpu=True). What is left to the library takes a GPU where there is one.

LIGHTNING = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "auto": "gpu"}
"""Lightning's accelerators; others (mps, tpu) have no CUDA context either, and are not known here."""
_SWITCHES = ("use_cpu", "no_cuda")
_ACCELERATOR = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")


def accelerator_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """machine.accelerator as the calls state it; nothing where they do not."""
    found: list[Binding] = []
    for record in records:
        found += under(record.conditions, _bindings(record))
    return found


def _bindings(record: CallRecord) -> list[Binding]:
    if is_lightning_trainer(record):
        said = record.kwargs.get("accelerator")
        return [] if said is None else [bind("machine.accelerator", spelled(said, LIGHTNING))]
    if record.name in _ACCELERATOR:
        switches = [record.argument("cpu", 4)]
    elif record.method.endswith("TrainingArguments"):
        switches = [record.kwargs.get(name) for name in _SWITCHES]
    else:
        return []
    said = next((one for one in switches if one is not None and constant(one) is True), None)
    return [] if said is None else [bind("machine.accelerator", Const("cpu", getattr(said, "origin", None)))]
