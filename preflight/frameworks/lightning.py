"""Lightning: devices, the file of LightningCLI and the dtype of weights, which tables/lightning.toml cannot express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.frameworks.fsdp import fsdp_objects
from preflight.frameworks.table import read
from preflight.program.arguments import Arguments, arguments_of_call
from preflight.program.bindings import bind, constant, first_origin, fold, under
from preflight.program.names import binding_for
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Op, Scalar

_TRAINERS = ("Trainer", "Fabric")
_LIGHTNING = ("lightning", "pytorch_lightning")
DEFAULTS: Mapping[str, Scalar] = {
    "precision": None,
    "accumulate_grad_batches": 1,
    "num_nodes": 1,
    "devices": None,
    "strategy": "auto",
}
"""The Trainer's (2.6), for a call that takes its arguments from a configuration as a whole."""


def is_lightning_trainer(record: CallRecord) -> bool:
    """Whether the call makes Lightning's Trainer or Fabric."""
    return record.method in _TRAINERS and record.name.startswith(_LIGHTNING)


def lightning_bindings(records: Sequence[CallRecord], weights: Expr | None) -> list[Binding]:
    """Bindings of the calls of Trainer and Fabric; `weights` is the type that the weights are stored in, if stated."""
    found: list[Binding] = []
    for record in records:
        if is_lightning_trainer(record):
            args = arguments_of_call(record)
            stored = [] if weights is None else [bind("train.precision", weights, Rank.default)]
            made = read("lightning", args).bindings
            found += under(record.conditions, [*made, *(stored if "precision" not in args else [])])
    return found


def trainer(args: Arguments) -> Arguments:
    """The arguments of a file of LightningCLI: the Trainer's without their prefix, with the rank of a call's."""
    if not any(name.startswith("trainer.") for name in args.given):
        return args
    given = {name: expr for name, expr in args.inner("trainer").given.items() if constant(expr) is not None}
    return Arguments({**args.given, **given}, rank=None)


def names_of_parts(args: Arguments, found: FoundSettings) -> None:
    """Settings of the data module and the model in a file of LightningCLI, by their names."""
    for key, expr in args.given.items():
        suggested = binding_for(key, expr, "json") if key.startswith(("data.", "model.")) else None
        if suggested is not None:
            found.bindings.append(suggested)


def devices(said: Expr) -> Expr | None:
    """The number of devices: 2 and "2" state it, [0, 1] and "0,1" list them; -1 and "auto" take all that are there."""
    value = constant(said)
    if isinstance(value, tuple):
        return Const(len(value), first_origin(said))
    if isinstance(value, str):
        listed = [part for part in value.split(",") if part.strip()]
        if "," not in value:
            return Const(int(value), first_origin(said)) if value.strip().isdecimal() else None
        return Const(len(listed), first_origin(said))
    return None if isinstance(value, int) and value < 1 else said


def overlaps(every: Expr) -> Expr:
    """Validation before the epoch's end (`val_check_interval`) runs while the training loader is full."""
    return fold(Op("!=", (every, Const(1.0))), first_origin(every))


def fsdp(args: Arguments, found: FoundSettings) -> None:
    """Objects and enumerations that FSDPStrategy is given."""
    found.bindings += fsdp_objects(args.call) if args.call is not None else []
