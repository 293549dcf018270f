"""A module of the project's own -> model.parameters: the parameters that its `__init__` makes, layer by layer.

Counted as an expression over the program's settings. A layer whose sizes are not known is left out: then the count is
the least. A model has no count if another library makes a part of it, or if the number of its layers is not known: what
is missing may be most of it. What a model keeps
for the backward pass is not in its `__init__`: a count gives the least memory that a job takes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.program.bindings import bind, constant, fold, is_unknown
from preflight.program.call_site import is_module, words
from preflight.program.layer_parameters import LAYERS, WITHOUT_PARAMETERS, NotCounted, numbers, times, total
from preflight.program.library_parts import layer_part, model_part, without_last_children
from preflight.program.model_configurations import table
from preflight.program.optimizers import is_optimizer
from preflight.program.own_steps import step_bindings
from preflight.program.trained import given_to_optimizer, makes_optimizer, reachable, whose_method
from preflight.python.hooks.torch import REPEATED, UNCOUNTED
from preflight.python.objects import (
    BASE,
    CHANGED,
    Abstract,
    Attribute,
    CallRecord,
    ClassValue,
    Container,
    Either,
    Instance,
    Key,
    alternatives,
    has_unknown,
    is_children,
    is_expr,
    to_expr,
)
from preflight.vocabulary.budgets import MODEL_PARTS
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, names

_NN = "torch.nn."
_PLAIN = ("torchmetrics.", "logging.", "random.", "numpy.", "math.", "pathlib.", "collections.", "einops.", "path.",
          "builtins.", "torcheval.metrics.", "functools.", "os.", "json.", "time.", "copy.", "torch.optim.",
          "torchaudio.transforms.", "torch.device", "torch.Generator", "wandb.", "torchvision.transforms.",
          "torch.amp.", "torch.cuda.")  # fmt: skip
"""What makes objects that are no parts of a model, or have no parameters."""


_LOADS = ("torch.hub.", "torch.load", "torch.jit.", "torch.ao.", "torch.quantization.", "torch.export.", "torch.fx.")
"""Parts of torch that make or load whole models."""
_EMPTY = ("Module", "Mixin", "abc.ABC", "typing.Generic", "ABCMeta")
"""How the names of bases end that bring no parameters of their own: torch.nn.Module, LightningModule."""


_COPIES = frozenset({"teacher", "ref", "reference", "ema", "target", "momentum", "k", "old", "key", "frozen"})
"""Words in the names of models that stand beside the one that is trained."""
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList")
"""Layers of torch.nn that a class may extend: what they are made of is a part of the object."""


def _is_empty(base: str) -> bool:
    """Whether a base brings no parameters of its own."""
    return base.endswith(_EMPTY) or base in _HOLDERS or (base.startswith(_NN) and _is_plain_layer(_short(base)))


def _is_plain_layer(name: str) -> bool:
    return name in WITHOUT_PARAMETERS or name.endswith("Loss")


def _layer_name(base: str) -> str | None:
    """The layer of torch.nn that a class extends, if its parameters are counted."""
    return _short(base) if base.startswith(_NN) and _short(base) in LAYERS else None


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _may_hold_parameters(cls: ClassValue) -> bool:
    return is_module(cls) or any(base.startswith(_NN) for base in cls.external_bases)


def _called_parts(cls: ClassValue) -> Iterator[str]:
    """The attributes that methods of a class call: `self.body(x)`."""
    found = (node.func for one in cls.lineage() for node in ast.walk(one.node) if isinstance(node, ast.Call))
    yield from dict.fromkeys(
        call.attr for call in found if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
    )


def _shares_in_loops(cls: ClassValue) -> bool:
    """Whether the file of a class gives a layer another's weight in a loop, or a layer that an index chooses: which
    layers share their weights is then not known."""
    inside: list[ast.AST]
    for node in ast.walk(cls.module.tree):
        if isinstance(node, (ast.For, ast.While)):
            inside = [one for statement in node.body for one in ast.walk(statement)]
            if isinstance(node, ast.For) and any(_gives_part(one, _names_in(node.target)) for one in ast.walk(node)):
                return True
        elif isinstance(node, ast.Assign):
            inside = [node] if any(_of_item(target) for target in node.targets) else []
        else:
            continue
        for one in inside:
            if not isinstance(one, ast.Assign) or _is_slice_of(one.value, one.targets):
                continue
            if any(_is_weight(target) for target in one.targets):
                return True
    return False


def _names_in(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _gives_part(node: ast.AST, turns: set[str]) -> bool:
    """Whether it is `block.part = other.part`, for each `block` of a loop."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, (ast.Attribute, ast.Subscript, ast.Call, ast.Name))
        and any(isinstance(one, ast.Attribute) and _names_in(one) & turns for one in node.targets)
        and not _is_slice_of(node.value, node.targets)
        and not any(isinstance(one, ast.Attribute) and one.attr in ("requires_grad", "data") for one in node.targets)
    )


def _is_slice_of(value: ast.expr, targets: Sequence[ast.expr]) -> bool:
    """`block.bias = block.bias[:size]`: a part keeps some of its own numbers."""
    return isinstance(value, ast.Subscript) and ast.unparse(value.value) in {ast.unparse(one) for one in targets}


def _is_weight(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr in ("weight", "bias")


def _of_item(target: ast.expr) -> bool:
    return any(isinstance(node, ast.Subscript) for node in ast.walk(target))


class _AnyNumber(NotCounted):
    """Layers of which there may be any number: they may be most of the model."""


class _Counting(Struct):
    """The parts of a model that were counted: a part that two attributes share has its parameters once."""

    seen: set[int] = field(default_factory=set)
    classes: dict[int, ClassValue] = field(default_factory=dict)
    """The classes of the project that were counted."""
    parts: int = 0
    met: tuple[Expr, ...] | None = None
    """The conditions under which the module is made whose parts are counted; None for the model itself."""
    left: list[str] = field(default_factory=list)
    """What was not counted, in words: a layer whose sizes are not known."""
    foreign: list[str] = field(default_factory=list)
    """Parts that may be most of the model: another library makes them, or their number is not known."""

    def of(self, value: Abstract) -> Expr:
        """The parameters of a value that is a part of a module; 0 for what is no module, or not known."""
        if not isinstance(value, (Either, Instance)) or id(value) in self.seen:
            return Const(0)
        if isinstance(value, Instance):
            self.seen.add(id(value))
        self.parts += 1
        if self.parts > MODEL_PARTS:
            self.left.append(f"its number of parts is {MODEL_PARTS.over}")
            return Const(0)
        if isinstance(value, Either):
            return self._either(value)
        made, met = value.record.conditions if value.record is not None else (), self.met
        same = set(map(id, met or ()))  # most are the same objects: those need no comparison
        open_ = [condition for condition in made if id(condition) not in same and condition not in (met or ())]
        if met is not None and any(has_unknown(condition) for condition in open_):
            self.left.append("a condition decides about a part")
            return Const(0)
        self.met = made
        try:
            found = self._whole(value)
        except NotCounted as why:
            (self.foreign if isinstance(why, _AnyNumber) else self.left).append(str(why))
            return Const(0)
        finally:
            self.met = met
        for condition in open_ if met is not None and constant(found) != 0 else ():
            found = fold(Op("if", (condition, found, Const(0))))
        return found

    def _whole(self, value: Instance) -> Expr:
        """The parameters of an object, under the conditions that it is made under."""
        if value.state.get(CHANGED):
            raise _AnyNumber("parts of it are changed after they are made")
        if value.cls is not None:
            return self._held(value) if _may_hold_parameters(value.cls) else Const(0)
        return self._of_library(value)

    def _either(self, value: Either) -> Expr:
        """One of two parts; the smaller one where nothing tells which."""
        if isinstance(value.then, Instance) and value.then.made_by == REPEATED:
            return self.of(value.then)  # the number of turns says whether the loop runs
        before = set(self.seen)
        then = self.of(value.then)
        after, self.seen = self.seen, before
        otherwise = self.of(value.otherwise)
        self.seen |= after
        if then == otherwise:
            return then
        if has_unknown(value.condition):
            self.left.append("a condition decides about a part")
            return fold(Op("min", (then, otherwise)))
        return fold(Op("if", (value.condition, then, otherwise)))

    def _held(self, value: Instance) -> Expr:
        """The parameters of what a module of the project holds."""
        cls = value.cls
        assert cls is not None
        self.classes[id(cls)] = cls
        bases = [base for base in cls.external_bases if "." in base and not _is_empty(base)]
        layer = _layer_name(bases[0]) if len(bases) == 1 else None
        own = self._own_layer(value, layer) if layer is not None else Const(0)
        self.foreign += [f"it extends {base}" for base in bases if layer is None]
        added = {key for key in value.attributes if isinstance(key, tuple)}  # by `add_module`, not by assignment
        for name in _called_parts(cls):
            part = value.attributes.get(name)
            if isinstance(part, Attribute) or (part is not None and is_expr(part) and has_unknown(to_expr(part))):
                self.left.append(f"it calls {name}, which is not known")
        return total([own, *(self._member(v, key, key in added) for key, v in value.attributes.items())])

    def _own_layer(self, value: Instance, name: str) -> Expr:
        """The parameters of the layer of torch.nn that an object is (`class Wide(nn.Linear)`), without the parts of it
        that its class replaces."""
        made = value.state.get(BASE)
        if not isinstance(made, CallRecord) or not made.complete:
            self.left.append(f"the arguments of the torch.nn.{name} that it extends are not known")
            return Const(0)
        sizes = LAYERS[name](replace(made, method=name))
        if set(value.attributes) & {"weight", "bias"} and "all" in sizes:
            raise NotCounted(f"a weight of torch.nn.{name} is replaced")
        return total([size for part, size in sizes.items() if part not in value.attributes])

    def _member(self, value: Abstract, key: Key, added: bool) -> Expr:
        """The parameters of what an attribute holds. A library's model that is called a copy of another is none that is
        trained: its weights have no gradients."""
        if words(str(key)) & _COPIES and isinstance(value, Instance) and model_part(value) is not None:
            self.left.append(f"{key} is called a copy of another model")
            return Const(0)
        return self._items(value) if added else self.of(value)

    def _of_library(self, value: Instance) -> Expr:
        record, name = value.record, value.made_by.removeprefix(_NN).removeprefix("modules.")
        if value.made_by == UNCOUNTED:
            raise _AnyNumber("a loop adds layers, and their number is not known")
        if value.made_by == REPEATED:
            count, layer = value.state["count"], value.state["layer"]
            return times(count, self.of(layer))  # type: ignore[arg-type]
        if record is None or value.made_by.startswith(_PLAIN):
            return Const(0)
        if value.made_by in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            return numbers(record.object("data", 0))
        if value.made_by.endswith(("spectral_norm", "weight_norm")):
            part = record.object("module", 0)
            if value.made_by.endswith("weight_norm"):
                self.left.append("weight_norm adds the lengths of its rows")
            return self.of(part) if part is not None else Const(0)
        if "[]" in value.made_by or "(" in value.made_by or "__" in value.made_by:
            raise NotCounted("what makes a part of it is not known")
        if not value.made_by.startswith(_NN):
            if (count := self._part(value, record)) is not None:
                return count
            if _may_be_module(value):
                self.foreign.append(f"{value.made_by}() makes a part of it")
            elif not value.made_by.startswith("torch."):
                self.left.append(f"what {value.made_by}() makes is not known")
            return Const(0)
        if name in ("ModuleList", "Sequential", "ModuleDict"):
            return self._several(value, record, name)
        if name in ("TransformerEncoder", "TransformerDecoder"):
            return self._stack(record)
        home, _, last = name.rpartition(".")
        if home and value.made_by.startswith(f"{_NN}modules."):
            name, home = last, ""
        if home and (last[:1].isupper() or last.startswith("from_")):
            raise NotCounted(f"torch.nn.{name} is not counted")
        layer = LAYERS.get(name)
        if layer is None:
            if home or _is_plain_layer(name) or name[:1].islower():
                return total([self.of(one) for one in value.attributes.values()])
            raise NotCounted(f"torch.nn.{name} is not counted")
        if not record.complete:
            raise NotCounted(f"the arguments of torch.nn.{name} are not known")
        sizes = layer(record)
        given = {part: one for part, one in value.attributes.items() if isinstance(one, Instance)}
        if set(value.attributes) & {"weight", "bias"} and "all" in sizes:
            raise NotCounted(f"a weight of torch.nn.{name} is replaced")
        # `head.weight = embedding.weight`: it is the other layer's
        own = [size for part, size in sizes.items() if part not in value.attributes]
        return total([*own, *(self.of(one) for one in given.values())])

    def _part(self, value: Instance, record: CallRecord) -> Expr | None:
        """The parameters of a library's layer, or of its model without the head, with what the program put into it."""
        count = layer_part(record)
        if count is not None:
            self.left.append(f"what the switches of {value.made_by}() add is not counted")
        else:
            count = model_part(value)
            if count is None:
                return None
            self.left.append(f"the head of {value.made_by}() is not counted")
        own = [self.of(one) for one in value.attributes.values()]
        return total([count, *own])

    def _several(self, value: Instance, record: CallRecord, name: str) -> Expr:
        given = record.arguments if name == "Sequential" else record.arguments[:1]
        cut = [self._children(one) for one in record.spread]
        if not record.complete and (not cut or None in cut):
            self.foreign.append("the number of its layers is not known")
        named = given[0] if name == "ModuleDict" and given else None
        if isinstance(named, Container) and set(named.items) & set(value.attributes):  # another layer under its name
            given = (replace(named, items={k: v for k, v in named.items.items() if k not in value.attributes}),)
        held = [self._items(one) for one in (*given, *value.attributes.values())]
        return total([*held, *(count for count in cut if count is not None)])

    def _children(self, value: Abstract) -> Expr | None:
        """The parameters of a library's model without its last children: `Sequential(*list(model.children())[:-1])`."""
        inner = value.receiver if isinstance(value, Attribute) else None
        made = inner.record if isinstance(inner, Instance) and is_children(inner) else None
        model = made.receiver_object if made is not None else None
        if not isinstance(value, Attribute) or not isinstance(model, Instance):
            return None
        if id(model) in self.seen:
            return Const(0)
        count = without_last_children(model, value.name)
        if count is not None:
            self.seen.add(id(model))
            self.left.append(f"of {model.made_by}() it has the layers without the last")
        return count

    def _items(self, value: Abstract) -> Expr:
        if isinstance(value, Container):
            if value.repeats is not None and len(value.items) == 1:
                only = value.items[0]
                return times(value.repeats, self.of(only.then if isinstance(only, Either) else only))
            if value.open:
                self.foreign.append("the number of its layers is not known")
                return Const(0)
            return total([self._items(one) for one in value.items.values()])
        if isinstance(value, Instance) and value.made_by.endswith("OrderedDict") and value.record is not None:
            return total([self._items(one) for one in value.record.arguments[:1]])
        if is_expr(value) and not (isinstance(value, Const) and isinstance(value.value, (str, type(None)))):
            self.foreign.append("some of its layers are not known")
        return self.of(value)

    def _stack(self, record: CallRecord) -> Expr:
        """Copies of one layer. The layer itself is no part of it."""
        side = "encoder" if record.method == "TransformerEncoder" else "decoder"
        layer, norm = record.object(f"{side}_layer", 0), record.object("norm", 2)
        count = record.argument("num_layers", 1)
        if layer is None or count is None or is_unknown(count):
            raise _AnyNumber("the number of its layers is not known")
        before, self.seen = self.seen, set()
        copies = times(count, self.of(layer))
        self.seen = before
        return total([copies, self.of(norm) if norm is not None else Const(0)])


def _may_be_module(value: Instance) -> bool:
    """Whether an object of a library may have parameters: a class made it, or a function that makes models."""
    home, _, name = value.made_by.rpartition(".")
    if home.startswith("transformers.") and home.endswith(tuple(table()["not_models"])):
        return False
    if value.made_by.startswith("torch."):
        return value.made_by.startswith(_LOADS)
    if (value.record is not None and value.record.receiver is not None) or name.startswith(("to_", "trunc_", "init_")):
        return False
    makes = name[:1].isupper() or name.startswith(("from_", "create_", "load")) or "models." in value.made_by
    return makes and "." in value.made_by


# --- the model of a program -------------------------------------------------------------------------------------------


class OwnModel(Struct, frozen=True):
    """A class of the project that is trained: its name, where it is written, and the parameters that were counted."""

    name: str
    origin: Origin
    line: int
    count: Expr
    left: tuple[str, ...] = ()
    """What was not counted: then the count is the least."""
    foreign: tuple[str, ...] = ()
    is_class: bool = True
    """Not layers of torch.nn alone."""


def own_model(records: Sequence[CallRecord]) -> OwnModel | None:
    """The class of the project that a program trains; None if it trains none."""
    return _counted(list(_trained_values(records)))


def _counted(values: Sequence[Abstract]) -> OwnModel | None:
    """The class of the project that these objects have; None if they have none. Of several that the text does not
    choose from, the smallest is counted."""
    made = [one for value in values for one in alternatives(value)]
    classes = {id(one.cls): one.cls for one in made if isinstance(one, Instance) and one.cls is not None}
    if not made or not all(isinstance(one, Instance) and (is_module(one.cls) or _is_layer(one)) for one in made):
        return None
    each = [_Counting() for _ in values]
    counts = [counting.of(value) for counting, value in zip(each, values, strict=True)]
    left = [why for counting in each for why in counting.left]
    count = counts[0]
    if any(other != count for other in counts):
        count, left = Op("min", tuple(counts)), [*left, "it trains several models"]
    if sum(1 for _ in names(count)) > MODEL_PARTS:
        count, left = Const(0), ["its parameters depend on too many settings"]
    if any(_shares_in_loops(cls) for counting in each for cls in counting.classes.values()):
        each[0].foreign.append("it shares weights between layers, and which is not known")
    foreign = [why for counting in each for why in counting.foreign]
    told = tuple(dict.fromkeys(left)), tuple(dict.fromkeys(foreign))
    if not classes:
        layer = next(one for one in made if isinstance(one, Instance) and one.record is not None)
        assert layer.record is not None
        return OwnModel(
            layer.made_by, layer.record.origin, layer.record.node.lineno, fold(count), *told, is_class=False
        )
    first = next(iter(classes.values()))
    origin = first.module.origin(first.node, editable=False)
    called = " or ".join(dict.fromkeys(cls.name for cls in classes.values()))
    return OwnModel(called, origin, first.node.lineno, fold(count), *told)


def _is_layer(value: Instance) -> bool:
    """Whether it is a layer of torch.nn that the program makes."""
    return value.cls is None and value.record is not None and value.made_by.startswith(_NN)


def own_module_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """What is known of a model that is a class of the project: its parameters, and that it is one."""
    model = own_model(records)
    if model is None:
        return []
    why = f": {model.foreign[0]}" if model.foreign else ""
    what = f"what is trained is {model.name}, a class of the project ({model.origin.path}, line {model.line})"
    unknown = Unknown(f"{what}{why}; a dry run tells its memory", Cause.not_modelled)
    named = Binding("model.name", Const(unknown, model.origin), Rank.read, model.origin)
    found = [named] if model.is_class else []  # layers of torch have no name to look for
    counted = [*found, *_parameters(model)]
    return step_bindings(records, list(_trained_values(records)), counted, project)


def parameter_bindings(model: Instance) -> list[Binding]:
    """The parameters of an object that is the model, as far as they are known."""
    counted = _counted([model])
    return [] if counted is None else _parameters(counted)


def _parameters(model: OwnModel) -> list[Binding]:
    if model.foreign or constant(model.count) == 0:
        return []
    field_ = "model.least_parameters" if model.left else "model.parameters"
    return [bind(field_, model.count, Rank.read, model.origin)]


def _trained_values(records: Sequence[CallRecord]) -> Iterator[Abstract]:
    """What optimizers and trainers get, once each: that of the outermost object where one holds the others."""
    found: dict[int, Abstract] = {}
    for record in records:
        if is_optimizer(record) or makes_optimizer(record):
            for holder in [*given_to_optimizer(record)] or whose_method(record, records):
                found.setdefault(id(holder), holder)
        elif record.method.endswith("Trainer") or record.method == "fit" or record.name == "deepspeed.initialize":
            model = record.object("model", 1 if record.name == "deepspeed.initialize" else 0)
            if model is not None and any(isinstance(one, Instance) for one in alternatives(model)):
                found.setdefault(id(model), model)
    inner = {
        id(value)
        for value in found.values()
        if any(other is not value and _holds(other, value) for other in found.values())
    }
    yield from (value for at, value in found.items() if at not in inner)


def _holds(holder: Abstract, part: Abstract) -> bool:
    """Whether an object has another as a part, and is made wherever that is: `if args.masks: model = Masks(model)`
    leaves both to be trained."""
    if not isinstance(part, Instance) or not any(one is part for one in reachable(holder, calls=False)):
        return False
    return len(_conditions(holder)) <= len(_conditions(part))


def _conditions(value: Abstract) -> Sequence[Expr]:
    return value.record.conditions if isinstance(value, Instance) and value.record is not None else ()
