"""Which objects a program trains, and what they are made of: a part of a model is not the model.

Trained is what an optimizer gets the parameters of, and what a trainer gets as its model. A model of a library may be
that object, stand beside it (the network of a perceptual loss), or be a part of a class of the project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from preflight.program.call_site import is_module
from preflight.program.optimizers import is_optimizer
from preflight.python.objects import Abstract, Attribute, CallRecord, Container, Either, Instance, alternatives

MOST_OBJECTS = 4000
"""Objects that are looked at: those of a large program."""
_LARGE = (
    "Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer",
    "MultiheadAttention", "LSTM", "GRU", "RNN", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d",
)  # fmt: skip
"""Layers of torch.nn that are no small head."""
_NO_PARTS = frozenset(
    {"config", "device", "dtype", "hidden_size", "in_features", "out_features", "num_features", "embed_dim"}
    | {"embedding_dim", "vocab_size", "n_embd", "d_model"}
)
"""Attributes of a model that are settings and numbers: `Linear(model.config.hidden_size, 2)` holds no model."""
_PARAMETERS = ("parameters", "named_parameters")


class Trained(Struct, frozen=True, dict=True):
    """The objects that are trained. Empty: the text does not show them."""

    objects: tuple[Instance, ...] = ()
    modules: tuple[Instance, ...] = ()
    """Where the text does not show them: the modules of the project, each of which may be trained."""

    def of_project(self) -> bool:
        """Whether all of them are objects of the project's own classes, or layers of torch.nn."""
        return bool(self.objects) and all(is_module(one.cls) or _is_layer(one) for one in self.objects)

    def beside(self, model: Abstract) -> bool:
        """Whether a model is certainly no part of what is trained."""
        return self.of_project() and not self.has(model)

    def has(self, model: Abstract) -> bool:
        """Whether a model is trained, or a part of what is trained, or a part of it is (`model.fc = Linear(...)`)."""
        if id(model) in self._parts:
            return True
        if not isinstance(model, Instance):
            return False
        if id(model) not in self._has_parts:
            self._has_parts[id(model)] = any(_has(model, one) for one in self.objects)
        return self._has_parts[id(model)]

    @cached_property
    def _parts(self) -> dict[int, Instance]:
        """What is trained, and the parts of it. A program that names forty networks asks of each call of a layer."""
        return {id(part): part for one in self.objects for part in reachable(one)}

    @cached_property
    def _has_parts(self) -> dict[int, bool]:
        """Of each object that was asked about: whether it has a part that is trained."""
        return {}

    def cut(self, model: Abstract) -> bool:
        """Whether some layers of a model are all that a module of the project, which is trained, has of it."""
        inside = [one for one in self.objects if is_module(one.cls) and _has(one, model)]
        return bool(inside) and not any(part is model for one in inside for part in reachable(one, slices=False))

    def larger(self, model: Abstract, others: Sequence[Abstract]) -> str | None:
        """The class of the project that a model is a part of, if it has other models or large layers, too."""
        for one in self.objects or self.modules:
            if not is_module(one.cls) or not _has(one, model):
                continue
            within = list(reachable(one))
            several = any(other is not model and any(other is part for part in within) for other in others)
            if several or any(_is_large(part) for part in within):
                return one.made_by.rpartition(".")[2]
        return None

    def another(self, models: Sequence[Abstract]) -> str | None:
        """The class of a module with large layers that is trained beside models, and holds none of them; a head or a
        loss with parameters is small."""
        if not any(self.has(model) for model in models):
            return None
        for one in self.objects:
            module = is_module(one.cls) or _is_layer(one)
            apart = module and not any(_has(one, model) or _has_part(model, one) for model in models)
            if apart and any(_is_large(part) for part in reachable(one)):
                return one.made_by.rpartition(".")[2]
        return None


def trained(records: Sequence[CallRecord]) -> Trained:
    """What the optimizers and trainers of a program get."""
    found: list[Instance] = []
    for record in records:
        if is_optimizer(record) or makes_optimizer(record):
            given = (
                [*given_to_optimizer(record)] or [*_named_within(record, records)] or [*whose_method(record, records)]
            )
            found += [one for value in given for one in _objects(value)]
        elif record.method.endswith("Trainer") or record.method == "fit":
            found += _objects(record.object("model", 0))
            found += _objects(record.object("model", 1)) if record.method == "PPOTrainer" else []  # TRL before 0.12
        elif record.name == "deepspeed.initialize":
            found += _objects(record.object("model", 1))
    return Trained(tuple({id(one): one for one in found}.values()))


def given_to_optimizer(record: CallRecord) -> Iterator[Abstract]:
    """The objects whose parameters an optimizer gets, by themselves, in a list or in a group; else the modules of the
    project that a function made its groups of (`add_weight_decay(model, 0.05)`)."""
    if makes_optimizer(record):
        model = record.object("model_or_params", 0) if record.method.endswith("_v2") else record.object("model", 1)
        if isinstance(model, Instance) and (model.record is None or model.record.method not in _PARAMETERS):
            yield model
            return
        given = model
    else:
        given = record.object("params", 0)
    parts = list(reachable(given, calls=False)) if given is not None else []
    made = [one.record for one in parts if one.record is not None and one.record.method in _PARAMETERS]
    holders = [one.receiver_object for one in made if one.receiver_object is not None]
    yield from holders
    if holders or given is None:
        return
    modules = [one for one in reachable(given) if is_module(one.cls)]
    inside = {id(part) for one in modules for part in reachable(one) if part is not one}
    yield from (one for one in modules if id(one) not in inside)


def _named_within(record: CallRecord, records: Sequence[CallRecord]) -> Iterator[Abstract]:
    """The objects whose parameters the text of an optimizer's call names: `list(a.parameters()) + [b.scale]`."""
    inside = set(ast.walk(record.node))
    for one in records:
        if one.method in _PARAMETERS and one.receiver_object is not None and one.node in inside:
            yield one.receiver_object


def whose_method(record: CallRecord, records: Sequence[CallRecord]) -> Iterator[Instance]:
    """The modules of the project whose own method makes an optimizer of their parameters, sorted in loops: nanoGPT's
    `model.configure_optimizers(...)`."""
    for one in records:
        owner = one.receiver_object
        beside = one.method in _PARAMETERS and one.function == record.function and one.path == record.path
        if beside and isinstance(owner, Instance) and is_module(owner.cls):
            yield owner


def makes_optimizer(record: CallRecord) -> bool:
    """timm's `create_optimizer_v2(model, opt="adamw")` and `create_optimizer(args, model)`."""
    return record.name.startswith("timm.optim") and record.method in ("create_optimizer", "create_optimizer_v2")


def _objects(value: Abstract | None) -> list[Instance]:
    """The objects that a value may be: those that a wrapper got stand for the wrapper."""
    return [] if value is None else [one for one in alternatives(value) if isinstance(one, Instance)]


def is_slice(value: Attribute) -> bool:
    """Whether a value is some of the layers of a list of layers, `model.encoder.layer[:6]`."""
    return value.name.startswith("[:")


def _is_layer(part: Instance) -> bool:
    return part.cls is None and part.made_by.startswith("torch.nn.")


def _is_large(part: Instance) -> bool:
    home, _, name = part.made_by.rpartition(".")
    return home.startswith("torch.nn") and name in _LARGE


def _has(holder: Instance, model: Abstract) -> bool:
    return any(part is model for part in reachable(holder))


def _has_part(model: Abstract, part: Instance) -> bool:
    return isinstance(model, Instance) and _has(model, part)


def reachable(start: Abstract, calls: bool = True, slices: bool = True) -> Iterator[Instance]:
    """The objects that an object is or holds, those included that calls made it of (a wrapper, a method), and with
    `slices` those that some layers were taken of."""
    left: list[Abstract] = [start]
    seen: set[int] = set()
    while left and len(seen) < MOST_OBJECTS:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Container):
            left += value.items.values()
        elif isinstance(value, Either):
            left += [value.then, value.otherwise]
        elif isinstance(value, Attribute):
            left += [] if value.name in _NO_PARTS or (not slices and is_slice(value)) else [value.receiver]
        elif isinstance(value, Instance):
            yield value
            left += value.attributes.values()
            if calls and value.record is not None:
                made = value.record
                left += [*made.arguments, *made.keywords.values()]
                left += [made.receiver_object] if made.receiver_object is not None else []
