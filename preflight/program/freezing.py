"""Parts of a model that get no gradients -> train.frozen: prefixes of module names.

`for p in model.vision_model.parameters(): p.requires_grad = False` and `model.vision_model.requires_grad_(False)` say a
part of a model that a library made, whose module names are known. Where the text only shows that something is frozen
(the whole model before it gets a new head, the parameters that pass a test, a backbone that runs under `no_grad`, an
optimizer that gets a part), the frozen parts are unknown: they are never "none".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.program.adapters import adapts
from preflight.program.bindings import bind, constant, under
from preflight.program.call_site import (
    around,
    is_evaluation,
    is_module,
    names_of,
    no_grad_blocks,
    targets,
    without_gradients,
    words,
)
from preflight.program.loops import is_forward
from preflight.program.optimizers import is_optimizer
from preflight.program.trained import Trained, reachable, trained
from preflight.python.objects import Abstract, Attribute, CallRecord, FunctionValue, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Unknown

_LIBRARIES = ("transformers.", "torchvision.", "timm.", "open_clip.")
_PARAMETERS = ("parameters", "named_parameters")
_ASIDE = frozenset({
    "teacher", "ref", "reference", "ema", "target", "momentum", "k", "old", "key", "vae", "text", "tokenizer", "judge",
    "reward", "discriminator", "critic", "lpips", "perceptual", "scorer", "metric", "clip",
})  # fmt: skip
"""Words in the names of models that stand beside the one that is trained."""
_TRAINS = frozenset({"forward", "training_step", "shared_step", "compute_loss", "train_step"})
"""Functions whose calls of a model belong to training."""
_HOOKS = frozenset({"__init__", "setup", "configure_model", "configure_optimizers", "on_train_start", "on_fit_start"})
"""Methods that a framework calls."""

_FREEZING = {"freeze_feature_encoder": "feature_extractor", "freeze_feature_extractor": "feature_extractor"}
"""Methods of speech models of transformers -> the part that they freeze."""

FREEZES = "the program freezes a part of the model, and the text does not say which"
RUNS_WITHOUT = "the program runs a part of the model without gradients"
GETS_A_PART = "the optimizer gets the parameters of a part of the model"


@dataclass(frozen=True)
class _Frozen:
    """What a call freezes: the path of a module, or "" where the text does not say which."""

    record: CallRecord
    part: str = ""
    why: str = FREEZES


def frozen_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """One binding with every frozen part, or the reason why they are not known; empty if nothing is frozen.

    Adapters freeze what they adapt: beside them a model that is frozen as a whole says nothing more.
    """
    objects, adapted = trained(records), adapts(records)
    found = [one for record in records for one in _frozen(record, objects, project)]
    found = [one for one in found if one.part or not adapted]
    vague = [one for one in found if not one.part]
    if vague:
        return [b for one in vague for b in under(one.record.conditions, [_unknown(one.record, one.why)])]
    if not found:
        return []
    last = found[-1].record
    if any(_thaws(record) for record in records):
        return [_unknown(last, FREEZES)]
    names = tuple(dict.fromkeys(one.part for one in found))
    return list(under(last.conditions, [bind("train.frozen", Const(names, last.origin), Rank.read)]))


def _unknown(record: CallRecord, why: str) -> Binding:
    return bind("train.frozen", Const(Unknown(why, Cause.not_modelled), record.origin), Rank.read, record.origin)


def _frozen(record: CallRecord, objects: Trained, project: Project) -> Iterator[_Frozen]:
    """What one call freezes."""
    if not (record.reached or _named(record, project)):
        return
    if record.method == "requires_grad_":
        if constant(record.argument("requires_grad", 0)) is False and _of_training(record, objects, project):
            yield _Frozen(record, _path(record))
    elif record.method.startswith("freeze_") and not isinstance(record.callee, FunctionValue):
        if _of_training(record, objects, project):
            yield _Frozen(record, _FREEZING.get(record.method, ""))
    elif record.method in (*_PARAMETERS, "children", "named_children", "modules", "named_modules"):
        always = _clears(record, project)
        if always is not None and _of_training(record, objects, project):
            yield _Frozen(record, _path(record) if always and record.method in _PARAMETERS else "")
    elif is_optimizer(record):
        if _gets_a_part(record):
            yield _Frozen(record, why=GETS_A_PART)
    elif _runs_without_gradients(record) and _of_training(record, objects, project):
        yield _Frozen(record, why=RUNS_WITHOUT)


def _thaws(record: CallRecord) -> bool:
    """`model.layer4[2].requires_grad_(True)`: a part that may lie in one that was frozen, and is trained."""
    if record.method != "requires_grad_":
        return False
    given = record.argument("requires_grad", 0)
    return not isinstance(_base(record), ast.Name) and (given is None or constant(given) is not False)


def _named(record: CallRecord, project: Project) -> bool:
    """Whether a call that was not reached is made: it is in a hook, or in a function that something names."""
    name = (record.function or "").rpartition(".")[2]
    if name in _HOOKS or name in _TRAINS:
        return True
    return name in names_of(record.path, project)


# --- whose parameters they are ----------------------------------------------------------------------------------------


def _of_training(record: CallRecord, objects: Trained, project: Project) -> bool:
    """Whether the call is about the model that is trained: by what the optimizer gets, else by the words around it."""
    path = record.name.split(".")
    if words(" ".join((*path[: 2 if path[0] == "self" else 1], *targets(record, project)))) & _ASIDE:
        return False
    holder = record.receiver_object if record.receiver_object is not None else record.callee
    owners = list(_roots(holder)) if holder is not None else []
    if not owners or not objects.objects:
        return True
    for owner in owners:
        if objects.has(owner) or any(one is part for one in objects.objects for part in reachable(owner)):
            return True
    return not record.reached


def _roots(value: Abstract) -> Iterator[Instance]:
    """The objects whose part, or whose method's result, a value may be."""
    for one in alternatives(value):
        found: Abstract | None = one
        for _ in range(20):
            if isinstance(found, Attribute):
                found = found.receiver
            elif isinstance(found, Instance) and found.cls is None and (made := found.record) is not None:
                if made.receiver_object is None:
                    break
                found = made.receiver_object
            else:
                break
        if isinstance(found, Instance):
            yield found


def _path(record: CallRecord) -> str:
    """The module path within a model of a library that a call's receiver is; empty if it is the whole model, or if its
    module names are not known."""
    if record.receiver is None or not record.receiver.startswith(_LIBRARIES) or not _is_chain(_base(record)):
        return ""
    path = record.name.split(".")[:-1]
    inner = path[2:] if path[:1] == ["self"] else path[1:]
    return ".".join(inner)


def _base(record: CallRecord) -> ast.expr | None:
    """The text before the last dot of a call's function."""
    call = record.node
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _is_chain(node: ast.expr | None) -> bool:
    """`a.b.c`: names alone, no index and no call."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


# --- loops over parameters --------------------------------------------------------------------------------------------


def _clears(record: CallRecord, project: Project) -> bool | None:
    """Whether the loop over the call's result takes the gradients of all parameters (True) or of some (False); None if
    it takes none."""
    for node in around(record, project):
        if isinstance(node, ast.For):
            return _cleared(node, record) if _within(node.iter, record.node) else None
        if isinstance(node, ast.comprehension):
            continue
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            calls = (one for one in ast.walk(node.elt) if isinstance(one, ast.Call))
            return True if any(_is_clearing_call(one) for one in calls) else None
        if isinstance(node, ast.stmt):
            return None
    return None


def _cleared(loop: ast.For, record: CallRecord) -> bool | None:
    clearing = [node for node in ast.walk(loop) if _is_clearing(node)]
    if not clearing:
        return None
    direct = [node.value if isinstance(node, ast.Expr) else node for node in loop.body]
    return loop.iter is record.node and any(one is node for one in clearing for node in direct)


def _is_clearing(node: ast.AST) -> bool:
    """`p.requires_grad = False`, `p.requires_grad = "head" in name`, `p.requires_grad_(False)`."""
    if isinstance(node, ast.Assign):
        sets = any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        return sets and not (isinstance(node.value, ast.Constant) and node.value.value is True)
    return isinstance(node, ast.Call) and _is_clearing_call(node)


def _is_clearing_call(node: ast.Call) -> bool:
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    sets = isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_"
    return sets and bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is True)


def _within(whole: ast.AST, part: ast.AST) -> bool:
    return any(node is part for node in ast.walk(whole))


# --- optimizers and forward passes ------------------------------------------------------------------------------------


def _gets_a_part(record: CallRecord) -> bool:
    """`Adam(model.fc.parameters())`: all that the optimizer gets is a part of one model of a library."""
    given = record.object("params", 0)
    made = [one.record for one in alternatives(given) if isinstance(one, Instance)] if given is not None else []
    return bool(made) and all(one is not None and one.method in _PARAMETERS and _is_of_part(one) for one in made)


def _is_of_part(record: CallRecord) -> bool:
    """`model.fc.parameters()`. `self.model` is a whole one, and so is the `module` of a wrapper."""
    path = [part for part in record.name.split(".")[:-1] if part != "module"]
    return _is_chain(_base(record)) and len(path) > (2 if path[:1] == ["self"] else 1)


def _runs_without_gradients(record: CallRecord) -> bool:
    """`with torch.no_grad(): features = self.backbone(x)` in a forward pass."""
    name = (record.function or "").rpartition(".")[2]
    if name not in _TRAINS or not without_gradients(record) or is_evaluation(name):
        return False
    if record.caller is not None and no_grad_blocks(record) == no_grad_blocks(record.caller):
        return False  # the function as a whole is called without gradients: an evaluation
    callee = record.callee
    owned = isinstance(callee, Instance) and (is_module(callee.cls) or callee.made_by.startswith(_LIBRARIES))
    return owned and is_forward(record)
