"""autocast, and weights converted by hand -> train.precision, train.weights_dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.program.bindings import bind, constant, decides, first_origin, fold, is_constant, pruned, under, when
from preflight.program.call_site import evaluates, is_module, names_of, words
from preflight.program.loops import is_forward
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import DTYPES, PRECISIONS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, unknown


def autocast_binding(records: Sequence[CallRecord], base: Expr | None) -> list[Binding]:
    """train.precision if the training forward runs under autocast; `base` is the type of the weights otherwise."""
    found: list[Binding] = []
    regions = _regions(records)
    for record in records:
        if record.name == "apex.amp.initialize":
            found += under(record.conditions, [bind("train.precision", _apex(record, base))])
        if record in regions:
            found += under(record.conditions, [bind("train.precision", _autocast(record, base))])
    return found


def _regions(records: Sequence[CallRecord]) -> list[CallRecord]:
    """The autocast regions that training runs in. One that is switched off within the others, or behind them, is for a
    loss or a layer: it counts where no model runs in one of the others."""
    found = [record for record in records if record.method == "autocast" and _is_training(record)]
    on = [record for record in found if constant(_enabled(record) or Const(True)) is not False]
    if not on or len(on) == len(found):
        return found
    inside = [_innermost(record) for record in records if is_forward(record)]
    off = [one for one in inside if one is not None and one in found and one not in on]
    return found if off and not any(one in on for one in inside) else on


def _innermost(record: CallRecord) -> CallRecord | None:
    """The autocast region that decides over a call."""
    return next((one for one in reversed(record.contexts) if one.method == "autocast"), None)


def _is_training(record: CallRecord) -> bool:
    """Whether an autocast region is of a GPU and of no evaluation."""
    if evaluates(record) or (record.receiver is not None and "Accelerator" in record.receiver):
        return False
    kind = record.argument("device_type", None if ".cuda." in record.name or ".cpu." in record.name else 0)
    return ".cpu." not in record.name and (kind is None or constant(kind) not in ("cpu", "mps", "xla"))


def _enabled(record: CallRecord) -> Expr | None:
    return record.argument("enabled", 0 if record.name.endswith("cuda.amp.autocast") else 2)


def _apex(record: CallRecord, base: Expr | None) -> Expr:
    """apex.amp.initialize(models, optimizers, opt_level="O1"): O1 casts the inputs of functions as autocast does. O2
    casts the weights and keeps copies in fp32, which is not modelled (apex/amp/frontend.py)."""
    level = record.argument("opt_level") or Const("O1", record.origin)
    plain = constant(base) if base is not None and is_constant(base) else "fp32"
    unread = Unknown("apex's opt_level O2 is not modelled", Cause.not_modelled)
    known = Const({"O0": plain, "O1": "fp16-mixed", "O2": unread, "O3": "fp16"})
    return fold(Op("get", (known, level), record.origin), record.origin)


def unread_autocast(
    paths: Iterable[str], records: Iterable[CallRecord], bindings: Iterable[Binding], project: Project
) -> list[Binding]:
    """train.precision is unknown if nothing states it, and a file of the program names autocast: in a method of an
    object that was not followed, for example."""
    followed = any(record.method == "autocast" for record in records)
    if followed or any(binding.field == "train.precision" for binding in bindings):
        return []
    for path in paths:
        if "autocast" in names_of(path, project):
            why = Unknown(f"{path} uses autocast where it was not followed", Cause.not_read, ("train.precision",))
            return [bind("train.precision", Const(why), Rank.not_followed)]
    return []


def _autocast(record: CallRecord, base: Expr | None) -> Expr:
    """torch.autocast(device_type, dtype=None, enabled=True); torch.cuda.amp.autocast(enabled=True, dtype=float16)."""
    dtype, enabled = record.argument("dtype", 1), _enabled(record)
    if dtype is None or constant(dtype) is None:
        mixed: Expr = Const("fp16-mixed", record.origin)  # torch.get_autocast_dtype("cuda")
    else:
        mixed = spelled(dtype, PRECISIONS)
    if enabled is None:
        return mixed
    return when(enabled, mixed, base or Const("fp32", first_origin(enabled)))


def weights_dtype(records: Sequence[CallRecord]) -> Expr | None:
    """The dtype of a conversion of the model's weights: model.half(), .bfloat16(), .to(dtype), set_default_dtype. It is
    unknown for fp64, which no Job has. Where a condition decides, the weights keep their type without it."""
    found: Expr | None = None
    for record in records:
        converted = _converted(record)
        if converted is not None:
            sure = tuple(one for one in record.conditions if decides(one))
            unsure = [one for one in record.conditions if not decides(one)]
            tests = [sure[0] if len(sure) == 1 else Op("and", sure, first_origin(*sure)), *unsure] if sure else unsure
            for condition in tests:
                converted = when(condition, converted, found or Const(None))
            found = pruned(converted)
    return found


def _converted(record: CallRecord) -> Expr | None:
    """The dtype to which a call converts the model's weights; None where it converts none."""
    if record.method in ("half", "bfloat16", "double") and _is_model(record):
        return _dtype(Const(record.method, record.origin))
    if record.method == "to" and _is_model(record):
        return next((_dtype(one) for one in (*record.args, *record.kwargs.values()) if _is_dtype(one)), None)
    if record.name == "torch.set_default_dtype" and record.args:
        return _dtype(record.args[0])
    if record.name == "torch.set_default_tensor_type" and record.args and _is_dtype(record.args[0]):
        return _dtype(record.args[0])
    return None


_FP64 = frozenset(
    {"double", "torch.double", "float64", "torch.float64", "torch.doubletensor", "torch.cuda.doubletensor"}
)


def _dtype(expr: Expr) -> Expr:
    """A dtype in the Job's spelling, which has none for fp64."""
    if isinstance(expr, Const) and str(expr.value).lower() in _FP64:
        return unknown("the weights are in fp64, which is not modelled", expr.origin, Cause.not_modelled)
    return spelled(expr, DTYPES)


def _is_dtype(expr: Expr) -> bool:
    """Whether an expression is a dtype, or one of two that a condition chooses."""
    if isinstance(expr, Op):
        return expr.operator == "if" and any(_is_dtype(one) for one in expr.operands[1:])
    return isinstance(expr, Const) and str(expr.value).lower() in DTYPES.keys() | _FP64


def _is_model(record: CallRecord) -> bool:
    """Whether a method is called on a model: an object of a Module class, or a name that says so."""
    if record.receiver_object is not None:
        for one in alternatives(record.receiver_object):
            if isinstance(one, Instance):
                maker = words(one.made_by.rpartition(".")[2]) if one.cls is None else frozenset()
                made = "from_pretrained" in one.made_by or bool(maker & {"model", "net", "unet", "create"})
                return made or is_module(one.cls)
    *_, called = record.name.rpartition(".")[0].removesuffix(".module").split(".")  # model.projector is a part
    return bool(words(called) & {"model", "net", "network", "unet", "encoder", "backbone"})
