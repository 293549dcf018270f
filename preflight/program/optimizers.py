"""Optimizer constructors -> train.optimizer and how its step runs (foreach, fused, one tensor at a time)."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.program.bindings import bind, constant, fold, under, when
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import IMPLEMENTATIONS, OPTIMIZERS
from preflight.vocabulary.values import Const, Expr, Op

_TORCH = ("torch.optim.",)
_MODULES = (
    "torch.optim",
    "bitsandbytes",
    "transformers",
    "torchao",
    "apex",
    "lion_pytorch",
    "deepspeed",
    "timm",
    "optimi",
    "galore_torch",
    "apollo_torch",
    "lomo_optim",
    "schedulefree",
)
_MADE = ("torch.optim.", "bitsandbytes.optim.", "galore_torch.", "apollo_torch.", "lomo_optim.", "schedulefree.")
"""Where whatever is made with a capital letter is an optimizer, known or not."""
_BASES = ("Optimizer", "GlobalOptimManager")
_NOT_ONE = ("lr_scheduler", "swa_utils", "schedulers")
_MOMENTUM = {"SGD": 2}
"""Position of `momentum` in torch.optim.SGD(params, lr, momentum, ...)."""
_MORE = {"RMSprop": ("momentum", "centered"), "Adam": ("amsgrad",), "AdamW": ("amsgrad",)}
"""Arguments with which an optimizer keeps one more copy of the parameters."""


def is_optimizer(record: CallRecord) -> bool:
    """Whether the call makes an optimizer of a library that the tables know."""
    if record.receiver is not None or not record.name.startswith(_MODULES):
        return False
    if any(part in record.name for part in _NOT_ONE):
        return False
    known = record.method.lower() in OPTIMIZERS
    made = record.name.startswith(_MADE) and record.method[:1].isupper() and record.method not in _BASES
    return known or made


def optimizer_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Bindings of every optimizer made (the last wins)."""
    return [b for record in records if is_optimizer(record) for b in under(record.conditions, _bindings(record))]


def _bindings(record: CallRecord) -> list[Binding]:
    name: Expr = Const(OPTIMIZERS.get(record.method.lower(), "other"), record.origin)
    if record.method in _MOMENTUM:
        momentum = record.argument("momentum", _MOMENTUM[record.method])
        if momentum is not None:
            name = when(fold(Op(">", (momentum, Const(0)))), Const("sgd-momentum", record.origin), name)
    if record.method in _MORE and any(_given(record, argument) for argument in _MORE[record.method]):
        name = Const("other", record.origin)  # copies that its law does not have
    found = [bind("train.optimizer", name, None, record.origin)]
    return [*found, *_implementation(record)]


def _given(record: CallRecord, argument: str) -> bool:
    expr = record.argument(argument)
    return expr is not None and constant(expr) not in (None, False, 0, 0.0)


def _implementation(record: CallRecord) -> list[Binding]:
    """How the step runs. PyTorch takes foreach on CUDA by default; kernels of other libraries have no such choice."""
    decided = IMPLEMENTATIONS.get(record.method.lower())
    if decided is not None:
        return [bind("train.optimizer_impl", Const(decided), None, record.origin)]
    if not record.name.startswith(_TORCH):
        return []
    fused, foreach = record.argument("fused"), record.argument("foreach")
    if fused is None and foreach is None:
        return [bind("train.optimizer_impl", Const("foreach"), Rank.default)] if record.complete else []
    loop = Const(False) if foreach is None else fold(Op("is", (foreach, Const(False))))
    expr = when(loop, Const("for-loop"), Const("foreach"))
    if fused is not None and constant(fused) is not None:
        expr = when(fused, Const("fused"), expr)
    return [bind("train.optimizer_impl", expr)]
