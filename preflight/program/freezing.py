"""Parts of a model that get no gradients -> train.frozen.

`for p in model.vision_model.parameters(): p.requires_grad = False` and `model.vision_model.requires_grad_(False)` say a
part of a model that a library made, whose module names are known. The value lists what is frozen and trained again in
the order of the program, as `parameter_tests` spells it; "!fc" also stands for a new layer. Where the text only shows
that something is frozen (children of a list, a backbone that runs under `no_grad`, an optimizer that gets a part), the
frozen parts are unknown: they are never "none".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from preflight.program.adapters import adapting
from preflight.program.bindings import bind, constant, decides, fold, under
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
from preflight.program.parameter_tests import EVERY, EXCEPT, is_pattern, switched_in_loop
from preflight.program.trained import Trained, reachable, trained
from preflight.python.objects import Abstract, Attribute, CallRecord, FunctionValue, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_LIBRARIES = ("transformers.", "torchvision.", "timm.", "open_clip.")
_PARAMETERS = ("parameters", "named_parameters")
_MODULES = ("children", "named_children", "modules", "named_modules")
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


class _Change(Struct, frozen=True):
    """What a call freezes, or trains again: parts of the model, or none where the text does not say which."""

    record: CallRecord
    parts: tuple[str, ...] = ()
    why: str = FREEZES
    trains: bool = False

    @property
    def fixed(self) -> bool:
        """Whether it freezes whole modules, by their paths."""
        return bool(self.parts) and not self.trains and not any(map(is_pattern, self.parts))


def frozen_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """One binding with every frozen part, or the reason why they are not known; empty if nothing is frozen.

    Adapters freeze what they adapt: beside them a model that is frozen as a whole says nothing more. In a run that
    makes none it says what it says elsewhere.
    """
    read = _Reading(records, project)
    found = [one for record in records for one in read.changes(record)]
    adapters = adapting(records)
    if not adapters:
        return _bindings(found, read)
    beside = _bindings([one for one in found if one.fixed], read)
    without = tuple(fold(Op("not", (_all(one.conditions),))) for one in adapters)
    if not all(map(decides, without)) or all(one.fixed for one in found):
        return beside
    return [*beside, *under(without, _bindings(found, read))]


def _all(conditions: Sequence[Expr]) -> Expr:
    whole: Expr = Const(True)
    for one in conditions:
        whole = one if whole == Const(True) else Op("and", (whole, one), one.origin)
    return whole


def _bindings(found: Sequence[_Change], read: _Reading) -> list[Binding]:
    found = _since_all_trained(sorted((*found, *read.new_layers(found)), key=lambda one: one.record.number))
    frozen = [one for one in found if not one.trains]
    if not frozen:
        return []
    parts = tuple(dict.fromkeys(part for one in found for part in one.parts))
    vague = [one for one in found if not one.parts and not (one.why == GETS_A_PART and read.gets_the_rest(one, parts))]
    named = [one for one in frozen if one.parts]
    if EVERY in parts and not any(part.startswith(EXCEPT) for part in parts):
        vague += named  # what is trained is a layer that this text does not show
    elif len({one.record.conditions for one in named}) > 1 or any(
        one.record.conditions not in ((), named[-1].record.conditions) for one in found if named and one.trains
    ):
        vague += named
    if vague:
        return [b for one in vague for b in under(one.record.conditions, [_unknown(one.record, one.why)])]
    last = named[-1].record
    return list(under(last.conditions, [bind("train.frozen", Const(parts, last.origin), Rank.read)]))


def _since_all_trained(changes: Sequence[_Change]) -> list[_Change]:
    """The changes after the last one that trains the whole model, from the first that freezes something."""
    starts = [number for number, one in enumerate(changes) if one.parts == (EXCEPT + EVERY,)]
    rest = changes[starts[-1] + 1 :] if starts else changes
    first = next((number for number, one in enumerate(rest) if not one.trains), len(rest))
    return list(rest[first:])


def _unknown(record: CallRecord, why: str) -> Binding:
    return bind("train.frozen", Const(Unknown(why, Cause.not_modelled), record.origin), Rank.read, record.origin)


class _Reading:
    """What the calls of one program freeze."""

    def __init__(self, records: Sequence[CallRecord], project: Project) -> None:
        self._records, self._project = records, project
        self._objects = trained(records)
        self._heads = {
            id(value): (owner, key)
            for record in records
            if _of_library(owner := record.receiver_object) and isinstance(owner, Instance)
            for key, value in owner.attributes.items()
            if isinstance(key, str) and isinstance(value, Instance) and _is_layer(value)
        }
        """New layers of models of libraries, each with its model and name."""

    def changes(self, record: CallRecord) -> Iterator[_Change]:
        """What one call freezes, or trains again."""
        if not (record.reached or _named(record, self._project)):
            return
        if record.method == "requires_grad_":
            yield from self._switched(record)
        elif record.method.startswith("freeze_") and not isinstance(record.callee, FunctionValue):
            if self._of_training(record):
                yield _Change(record, (_FREEZING[record.method],) if record.method in _FREEZING else ())
        elif record.method == "_freeze_parameters":  # of the encoders of speech models
            if self._of_training(record):
                yield _Change(record, self._below(record, (EVERY,)))
        elif record.method in (*_PARAMETERS, *_MODULES):
            loop = switched_in_loop(record, self._project)
            if loop is not None and self._of_training(record):
                parts = self._below(record, loop.parts) if record.method in _PARAMETERS else ()
                yield _Change(record, parts, trains=loop.trains)
        elif is_optimizer(record):
            if _gets_a_part(record):
                yield _Change(record, why=GETS_A_PART)
        elif _runs_without_gradients(record) and self._of_training(record):
            yield _Change(record, why=RUNS_WITHOUT)

    def _switched(self, record: CallRecord) -> Iterator[_Change]:
        """`model.layer4.requires_grad_(False)`."""
        if isinstance(_base(record), ast.Name) and self._place(record) is None and _is_of_loop(record, self._project):
            return  # which is asked about the loop itself
        given = record.argument("requires_grad", 0)
        value = True if given is None else constant(given)
        if value is False and self._of_training(record):
            yield _Change(record, self._below(record, (EVERY,)))
        elif value is True and self._of_training(record):
            yield _Change(record, self._below(record, (EXCEPT + EVERY,)), trains=True)
        elif value is not False and not isinstance(_base(record), ast.Name):
            yield _Change(record, trains=True)

    def new_layers(self, changes: Sequence[_Change]) -> Iterator[_Change]:
        """New layers of models that were frozen as a whole: `model.fc = nn.Linear(2048, 10)`."""
        frozen = [one.record for one in changes if EVERY in one.parts]
        for owner, key in self._heads.values():
            made = owner.attributes[key]
            before = any(one.receiver_object is owner for one in frozen)
            if before and isinstance(made, Instance) and made.record is not None:
                yield _Change(made.record, (f"{EXCEPT}{key}",), trains=True)
        owners = {_text(_base(one)): one for one in frozen}
        for record in self._records:
            path = _item(record, self._project) if record.name.startswith("torch.nn.") else None
            if path is not None and (one := owners.get(path[0])) is not None and one.function == record.function:
                yield _Change(record, (EXCEPT + path[1],), trains=True)

    def gets_the_rest(self, change: _Change, parts: Sequence[str]) -> bool:
        """`SGD(model.fc.parameters())`, where all is frozen but `fc`."""
        given = change.record.object("params", 0)
        made = [one.record for one in alternatives(given) if isinstance(one, Instance)] if given is not None else []
        places = [self._place(one) if one is not None else None for one in made]
        return parts[:1] == (EVERY,) and set(parts[1:]) == {f"{EXCEPT}{place}" for place in places}

    def _below(self, record: CallRecord, parts: Sequence[str]) -> tuple[str, ...]:
        """Parts of a call's receiver as parts of its model; empty where its place in a model is not known."""
        place = self._place(record)
        if place is None:
            return ()
        return tuple(EXCEPT + _join(place, part[1:]) if part[0] == EXCEPT else _join(place, part) for part in parts)

    def _place(self, record: CallRecord) -> str | None:
        """The module path of a call's receiver within a model of a library, "" for the model; None where it is not
        known."""
        found, names = record.receiver_object, list[str]()
        if found is None or not _is_chain(_base(record)):
            return None
        while isinstance(found, Attribute):
            names.append(found.name)
            found = found.receiver
        if id(found) in self._heads:
            names.append(self._heads[id(found)][1])
        elif not _of_library(found):
            return None
        return ".".join(name for name in reversed(names) if name != "module")

    def _of_training(self, record: CallRecord) -> bool:
        return _of_training(record, self._objects, self._project)


def _is_layer(value: Instance) -> bool:
    return value.made_by.startswith("torch.nn.") and not value.made_by.endswith(".Identity")


def _join(place: str, part: str) -> str:
    return part if not place else place if part == EVERY else f"{place}.{part}"


def _of_library(value: Abstract | None) -> bool:
    """Whether an object is a model that a library made, and no result of a model's method."""
    if not isinstance(value, Instance) or value.cls is not None or not value.made_by.startswith(_LIBRARIES):
        return False
    return value.record is None or value.record.receiver_object is None


def _item(record: CallRecord, project: Project) -> tuple[str, str] | None:
    """The text of a model and the path of a layer, where a call makes `model.classifier[6]`."""
    node = next((one for one in around(record, project) if isinstance(one, ast.stmt)), None)
    target = node.targets[0] if isinstance(node, ast.Assign) and node.value is record.node else None
    if not isinstance(target, ast.Subscript) or not _is_chain(target.value):
        return None
    try:
        index = ast.literal_eval(target.slice)
    except ValueError:
        return None
    path = ast.unparse(target.value).split(".")
    start = 2 if path[0] == "self" else 1
    inner = ".".join((*path[start:], str(index)))
    return (".".join(path[:start]), inner) if isinstance(index, int) and len(path) > start else None


def _is_of_loop(record: CallRecord, project: Project) -> bool:
    """Whether a call's receiver is the variable of a comprehension over the parameters or modules of something."""
    base = _base(record)
    for node in around(record, project):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            generator = node.generators[0]
            over = generator.iter.func if isinstance(generator.iter, ast.Call) else None
            method = over.attr if isinstance(over, ast.Attribute) else ""
            return _text(generator.target) == _text(base) and method in (*_PARAMETERS, *_MODULES)
        if isinstance(node, ast.stmt):
            break
    return False


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


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


def _base(record: CallRecord) -> ast.expr | None:
    """The text before the last dot of a call's function."""
    call = record.node
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _is_chain(node: ast.expr | None) -> bool:
    """`a.b.c`: names alone, no index and no call."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


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
