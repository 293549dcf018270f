"""Lightning: `self.save_hyperparameters()` keeps the arguments of `__init__` as `self.hparams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from preflight.python.access import class_attribute
from preflight.python.functions import bind_parameters
from preflight.python.hooks_config import namespace
from preflight.python.objects import Abstract, CallRecord, Container, Frame, FunctionValue, Instance
from preflight.vocabulary.values import Const

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook

ARGUMENTS = "arguments"
"""What an object's state keeps its constructor's arguments under: (positional, by keyword)."""


def save_hyperparameters(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Every parameter of the constructor with its argument, as attributes and as items."""
    holder = record.receiver_object
    if not isinstance(holder, Instance) or holder.cls is None or ARGUMENTS not in holder.state:
        return None
    init = class_attribute(holder.cls, "__init__")
    given = holder.state[ARGUMENTS]
    if not isinstance(init, FunctionValue) or not isinstance(given, tuple):
        return None
    frame = Frame({}, init.module)
    bind_parameters(init, (holder, *given[0]), dict(given[1]), frame)
    itself = next(iter(frame.variables), None)
    items = {name: value for name, value in frame.variables.items() if name != itself}
    ev.write(holder.attributes, "hparams", namespace(Container("dict", items, record.origin)))
    return Const(None)


HOOKS: Mapping[str, Hook] = {"*.save_hyperparameters": save_hyperparameters}
