"""Optimizer constructors -> train.optimizer and how its step runs (foreach, fused, one tensor at a time)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.program.bindings import bind, constant, decides, fold, same, under, when
from preflight.program.call_site import targets, words
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    ClassValue,
    Container,
    External,
    Instance,
    alternatives,
    made_by,
    to_expr,
)
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import IMPLEMENTATIONS, OPTIMIZERS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, unknown

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
    "mup",
)
_MADE = ("torch.optim.", "bitsandbytes.optim.", "galore_torch.", "apollo_torch.", "lomo_optim.", "schedulefree.")
"""Where whatever is made with a capital letter is an optimizer, known or not."""
_BASES = ("Optimizer", "GlobalOptimManager")
_PLACES = ("accelerate.utils.DummyOptim", "accelerate.utils.deepspeed.DummyOptim")
"""What stands in the program for the optimizer that DeepSpeed's file names (accelerate 1.1, utils/deepspeed.py)."""
_NOT_ONE = ("lr_scheduler", "swa_utils", "schedulers")
_MOMENTUM = {"SGD": 2}
"""Position of `momentum` in torch.optim.SGD(params, lr, momentum, ...)."""
_MORE = {"RMSprop": ("momentum", "centered"), "Adam": ("amsgrad",), "AdamW": ("amsgrad",)}
"""Arguments with which an optimizer keeps one more copy of the parameters (`rmsprop-momentum`)."""


_PARAMETERS = (".parameters", ".named_parameters", ".get_params")
"""Methods of a model whose result an optimizer takes."""
_NO_STEP = frozenset(
    {"ema", "average", "averaged", "averager", "averaging", "swa", "clip", "clipper", "counter", "fisher"}
)
"""Words in names of classes that take parameters and are no optimizer."""
_MAKES = frozenset({"create", "make", "build", "get", "configure", "init", "setup", "prepare"})
_OPTIMIZER = frozenset({"optimizer", "optim", "optimiser", "optimizers"})


def is_optimizer(record: CallRecord) -> bool:
    """Whether the call makes an optimizer: of a library that the tables know, of the project, or of any other."""
    return record.name not in _PLACES and (_of_library(record) or _is_own(record) or _is_foreign(record))


def _of_library(record: CallRecord) -> bool:
    if record.receiver is not None or not record.name.startswith(_MODULES):
        return False
    if isinstance(record.callee, ClassValue) or any(part in record.name for part in _NOT_ONE):
        return False
    known = record.method.lower() in OPTIMIZERS
    made = record.name.startswith(_MADE) and record.method[:1].isupper() and record.method not in _BASES
    return known or made


def _is_own(record: CallRecord) -> bool:
    """A class of the project that is an optimizer. Its name says nothing: an `AdamW` of its own may keep anything."""
    callee = record.callee
    return isinstance(callee, ClassValue) and any(_is_base(base) for base in callee.external_bases)


def _is_base(name: str) -> bool:
    last = name.rpartition(".")[2]
    return (name.startswith(_TORCH) and not any(part in name for part in _NOT_ONE)) or last == "Optimizer"


def _is_foreign(record: CallRecord) -> bool:
    """A class that is not in the project, made with the parameters of a model."""
    if (
        not isinstance(record.callee, External)
        or not record.method[:1].isupper()
        or record.name.startswith("torch.nn.")
    ):
        return False
    if words(record.method) & _NO_STEP or "." not in record.name:
        return False
    return _takes_parameters(record)


def _takes_parameters(record: CallRecord) -> bool:
    given = record.object("params", 0) or record.object("parameters")
    return given is not None and any(_is_parameters(one) for one in alternatives(given))


def _is_parameters(value: Abstract) -> bool:
    """`model.parameters()`, a filter of it, or groups that have it."""
    if isinstance(value, Container):
        return any(_is_parameters(one) for item in value.items.values() for one in alternatives(item))
    return (made_by(value) or "").endswith(_PARAMETERS)


def _chosen(record: CallRecord, project: Project) -> Expr | None:
    """The optimizer of a call whose class the text does not name; None if the call makes none.

    `{"sgd": torch.optim.SGD, ...}[name](model.parameters())` has one of a table. `getattr(torch.optim, name)(...)` is
    unknown, and so is what a function of a package makes, `create_optimizer(args, model)`.
    """
    callee, said = record.callee, words(record.method)
    if record.name.startswith("timm.optim") and record.method in ("create_optimizer", "create_optimizer_v2"):
        return _of_timm(record)
    makes = (
        isinstance(callee, External) and said & _MAKES and said & _OPTIMIZER and not said - _MAKES - _OPTIMIZER - {"v2"}
    )
    named = words(" ".join(targets(record, project))) & {*_OPTIMIZER, "opt"}
    looked_up = isinstance(callee, (Const, Op)) and named and _takes_parameters(record)
    if looked_up and isinstance(callee, Op) and callee.operator == "get":
        table = constant(callee.operands[0])
        if isinstance(table, Mapping) and all(str(name).startswith(_TORCH) for name in table.values()):
            momentum = constant(record.argument("momentum") or Const(0)) != 0
            names = {key: _named(str(name).rpartition(".")[2], momentum) for key, name in table.items()}
            return Op("get", (Const(names), callee.operands[1]), callee.origin)
    if not (makes or looked_up):
        return None
    return unknown(f"{record.method}() decides on the optimizer", record.origin, Cause.out_of_project)


_TIMM = {"adamw": "adamw", "adam": "adam", "sgd": "sgd-momentum", "nesterov": "sgd-momentum",
         "momentum": "sgd-momentum", "adamw8bit": "other"}  # fmt: skip
"""Names of timm's optimizers -> those of torch.optim that it makes (timm 0.9 and 1.0, optim_factory.py). Its own
classes of known names, `Adafactor` and `Lion`, keep other states than those that the laws are of."""


def _of_timm(record: CallRecord) -> Expr:
    """`create_optimizer_v2(model, opt="adamw")`, `create_optimizer(args, model)` with `args.opt`; SGD by default."""
    if record.method == "create_optimizer":
        settings = record.object("args", 0)
        name = settings.items.get("opt") if isinstance(settings, Container) else None
        momentum = settings.items.get("momentum") if isinstance(settings, Container) else None
        given, momentum = (to_expr(one) if one is not None else None for one in (name, momentum))
        if given is None:
            return unknown("create_optimizer() decides on the optimizer", record.origin, Cause.out_of_project)
    else:
        given = record.argument("opt", 1) or Const("sgd", record.origin)
        momentum = record.argument("momentum", 4)
    if momentum is not None and constant(momentum) in (0, 0.0):
        return unknown("the momentum of its optimizer is 0 or not known", record.origin)
    return spelled(given, _TIMM, "other")


def _named(class_name: str, momentum: bool) -> str:
    found = OPTIMIZERS.get(class_name.lower(), "other")
    return "sgd-momentum" if found == "sgd" and momentum else found


def optimizer_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """Bindings of every optimizer made. Of several that are assigned to one name the last wins; different ones that
    are made beside each other train parts of the model, and their states are not known."""
    made = [record for record in records if is_optimizer(record)]
    made = [record for record in made if not _of_single_tensors(record)] or made
    kinds = {id(record): _bindings(record)[0].expr for record in made}
    always = {_slot(record, project): record for record in made if not any(map(decides, record.conditions))}
    found: list[Binding] = []
    for record in made:
        beside = [kinds[id(one)] for slot, one in always.items() if slot != _slot(record, project)]
        bindings = _bindings(record)
        if any(not same(kind, kinds[id(record)]) for kind in beside):
            bindings = [replace(bindings[0], expr=Const("other", record.origin))]
        found += under(record.conditions, bindings)
    for record in records if not made else ():
        if (expr := _chosen(record, project)) is not None:
            found += under(record.conditions, [bind("train.optimizer", expr, None, record.origin)])
    return found


def own_optimizer(trainers: Sequence[CallRecord]) -> list[Binding] | None:
    """The optimizer that a Trainer gets instead of the one of its arguments, as bindings; None if it gets none.

    `optimizers=(optimizer, scheduler)` is one that the program makes, and has its own bindings if its class is known.
    """
    for record in trainers:
        pair = record.object("optimizers")
        if pair is not None and not _is_none(pair.items.get(0) if isinstance(pair, Container) else pair):
            return [bind("train.optimizer", unknown("the program makes it", record.origin))]
        named = record.object("optimizer_cls_and_kwargs")
        if named is not None and not _is_none(named):
            first = named.items.get(0) if isinstance(named, Container) else None
            known = isinstance(first, External) and first.name.startswith(_TORCH)
            name = _named(first.name.rpartition(".")[2], True) if known and isinstance(first, External) else "other"
            return [bind("train.optimizer", Const(name, record.origin))]
    return None


def _is_none(value: Abstract | None) -> bool:
    return isinstance(value, Const) and value.value is None


def _slot(record: CallRecord, project: Project) -> tuple[str, str | None, tuple[str, ...]]:
    """Where an optimizer is kept: of several in one place the last is used."""
    return record.path, record.function, targets(record, project)


def _of_single_tensors(record: CallRecord) -> bool:
    """`LBFGS([self.temperature])`: it fits a few tensors, not a model."""
    given = record.object("params", 0)
    if not isinstance(given, Container) or not given.is_sequence or given.open or not given.items:
        return False
    return all(_is_tensor(one) for item in given.items.values() for one in alternatives(item))


def _is_tensor(value: Abstract) -> bool:
    """`torch.nn.Parameter(...)`, `torch.zeros(...)`, or an attribute of an object that is not known: no parameters."""
    if isinstance(value, Attribute):
        return not _is_parameters(value)
    return isinstance(value, Instance) and value.cls is None and value.made_by.startswith("torch.")


def _bindings(record: CallRecord) -> list[Binding]:
    if not _of_library(record):
        return [bind("train.optimizer", Const("other", record.origin), None, record.origin)]
    name: Expr = Const(OPTIMIZERS.get(record.method.lower(), "other"), record.origin)
    if record.method in _MOMENTUM:
        momentum = record.argument("momentum", _MOMENTUM[record.method])
        if momentum is not None:
            name = when(fold(Op(">", (momentum, Const(0)))), Const("sgd-momentum", record.origin), name)
    more = [argument for argument in _MORE.get(record.method, ()) if _given(record, argument)]
    if more:
        known = len(more) == 1 and constant(record.argument(more[0]) or Const(None)) is not None
        name = Const(f"{record.method.lower()}-{more[0]}" if known else "other", record.origin)
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
