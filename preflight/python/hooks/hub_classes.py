"""Classes of the project that extend a model of transformers: `Scorer.from_pretrained("bert-base-uncased")`.

`from_pretrained` is of the library. It reads the configuration of that name, makes an object of the class with it, and
loads the weights of that name into it (transformers 4 and 5, modeling_utils.py). Keywords that `__init__` takes go to
it, the others to the configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.classes import instantiate
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.objects import Abstract, Attribute, CallRecord, ClassValue, External, FunctionValue, Instance
from preflight.vocabulary.values import Const

_CONFIGURATION = "transformers.AutoConfig.from_pretrained"
_OF_THE_LIBRARY = ("transformers.", "PreTrainedModel")
"""How the name of a base of such a class begins and ends: it has no layers of its own."""


def is_hub_class(value: Abstract | None) -> bool:
    """Whether it is a class of the project that makes its own layers, and loads weights as the library's models do."""
    home, name = _OF_THE_LIBRARY
    return isinstance(value, ClassValue) and any(
        base.startswith(home) and base.endswith(name) for base in value.external_bases
    )


def _from_pretrained(record: CallRecord, ev: Evaluator) -> Abstract | None:
    cls, identity = record.receiver_object, record.object("pretrained_model_name_or_path", 0)
    if not isinstance(cls, ClassValue) or not is_hub_class(cls) or not isinstance(record.callee, Attribute):
        return None
    init = class_attribute(cls, "__init__")
    if identity is None or not isinstance(init, FunctionValue):
        return None
    taken = _taken(init)
    own = {key: value for key, value in record.keywords.items() if key in taken and key != "config"}
    config = record.keywords.get("config")
    if config is None or (isinstance(config, Const) and config.value is None):
        config = _configuration(record, own)
    return instantiate(ev, cls, (config, *record.arguments[1:]), own, record, record.more)


def _taken(init: FunctionValue) -> set[str]:
    """The names of a function's arguments."""
    arguments = init.node.args if isinstance(init.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else None
    return {one.arg for one in (*arguments.args, *arguments.kwonlyargs)} if arguments is not None else set()


def _configuration(record: CallRecord, own: Mapping[str, Abstract]) -> Instance:
    """The configuration that the call reads."""
    others = record.keywords.keys() - own.keys() - {"config"}
    call = replace(
        record,
        name=_CONFIGURATION,
        receiver=None,
        receiver_object=None,
        callee=External(_CONFIGURATION),
        kwargs={key: record.kwargs[key] for key in record.kwargs if key in others},
        keywords={key: record.keywords[key] for key in record.keywords if key in others},
        args=record.args[:1],
        arguments=record.arguments[:1],
    )
    return Instance(_CONFIGURATION, record=call, origin=record.origin)


HOOKS: Mapping[str, Hook] = {"*.from_pretrained": _from_pretrained}
