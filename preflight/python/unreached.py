"""Functions that nothing called: those of a module and of its classes, methods bound to an object if one exists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.python.objects import Abstract, ClassValue, FunctionValue, Instance, ModuleValue
from preflight.records import replace

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator


def functions_of(module: ModuleValue, evaluator: Evaluator, entry: bool) -> Iterator[FunctionValue]:
    """Functions of the module that a framework may call, methods with `self` an instance the program made.

    Of the entry every function (with a new, empty instance where none was made); of other modules only the methods of
    classes that have one: a large library in the same repository would be read from end to end otherwise.
    """
    for value in list(module.frame.variables.values()):
        if isinstance(value, FunctionValue) and value.module is module.module and entry:
            yield value
        elif isinstance(value, ClassValue) and value.module is module.module and (entry or _made(value, evaluator)):
            yield from _methods(value, evaluator)


def _made(cls: ClassValue, evaluator: Evaluator) -> list[Instance]:
    return evaluator.instances.get(id(cls.node), [])


def _methods(cls: ClassValue, evaluator: Evaluator) -> Iterator[FunctionValue]:
    made = _made(cls, evaluator)
    itself: Abstract = made[0] if made else Instance(f"{cls.module.name}.{cls.name}", cls)
    for value in sorted(cls.attributes.values(), key=_init_first):
        if isinstance(value, FunctionValue):
            yield replace(value, self_value=itself)


def _init_first(value: Abstract) -> bool:
    return not (isinstance(value, FunctionValue) and value.name.endswith("__init__"))
