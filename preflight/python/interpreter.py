"""Static evaluation of Python: which calls a program makes, and with what, as expressions over its parameters.

Nothing is imported, executed or evaluated by Python: the syntax tree is interpreted over abstract values (`objects`),
within budgets. Past one, the evaluation raises OverBudget: what comes behind may set anything, so nothing of it is an
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from preflight.python import calls, expressions, statements
from preflight.python.access import class_attribute
from preflight.python.classes import instantiate
from preflight.python.evaluator import Evaluator
from preflight.python.functions import invoke
from preflight.python.hooks import LIBRARY_HOOKS, LIBRARY_VALUES
from preflight.python.hooks.remote_functions import run_entry_points
from preflight.python.module import load_module
from preflight.python.objects import Abstract, ClassValue, FunctionValue, Instance, ModuleValue
from preflight.python.position import Position
from preflight.vocabulary.budgets import SYNTAX_DEPTH, OverBudget
from preflight.vocabulary.values import Cause, unknown

STEPS_UNREACHED = 15_000
"""Steps that functions have which nothing calls, whatever the rest of the program took."""


class Interpreter(Evaluator):
    """Interprets one program."""

    library_hooks = LIBRARY_HOOKS
    library_values = LIBRARY_VALUES
    evaluate = expressions.evaluate
    execute = statements.execute
    call_at = calls.call_at

    def call(
        self, function: Abstract, args: Sequence[Abstract], kwargs: Mapping[str, Abstract] | None = None
    ) -> Abstract:
        """The return value of a function or class of the project; the call is not recorded."""
        if isinstance(function, FunctionValue):
            return invoke(self, function, tuple(args), dict(kwargs or {}))
        if isinstance(function, ClassValue):
            return instantiate(self, function, tuple(args), dict(kwargs or {}), None)
        if isinstance(function, Instance) and function.cls is not None:
            method = class_attribute(function.cls, "__call__")
            if isinstance(method, FunctionValue):
                return invoke(self, replace(method, self_value=function), tuple(args), dict(kwargs or {}))
        return unknown("what it calls is not known", cause=Cause.out_of_project)

    def run(self, path: str, entry: str = "__main__", *, unreached: bool = True) -> ModuleValue | None:
        """Interpret a file as a script (or call its function `entry`), then the functions that nothing called.

        Returns the module's value; None where it cannot be parsed. Raises OverBudget.
        """
        self.texts.add(path)
        module = load_module(path, self.project)
        if module is None:
            return None
        value = self.module_value(module, "__main__" if entry == "__main__" else module.name)
        self.guarded(lambda: self.execute_module(value))
        function = value.frame.variables.get(entry)
        if isinstance(function, FunctionValue):
            self.guarded(lambda: self.call(function, ()))
        self.guarded(lambda: run_entry_points(value, self))
        if unreached:
            self.run_unreached(value)
        return value

    def guarded(self, action: Callable[[], object]) -> None:
        """Run `action` from the program's top. Raises OverBudget where a budget or Python's stack ends."""
        depth, position = self.depth, self.position
        self.position = Position()
        try:
            action()
        except OverBudget as error:
            self.cut_off = error.budget
        except RecursionError:
            self.cut_off = SYNTAX_DEPTH
        self.depth, self.position = depth, position
        self.whole()

    def whole(self) -> Interpreter:
        """Itself. Raises OverBudget if a budget ended the evaluation: for who keeps one to use it again."""
        if self.cut_off is not None:
            raise OverBudget(self.cut_off)
        return self

    def run_unreached(self, entry: ModuleValue) -> None:
        """Interpret functions that nothing called, with unknown parameters, so that their calls are recorded too."""
        self.reached, self.steps_left = False, max(self.steps_left, STEPS_UNREACHED)
        for module in [entry, *(m for m in self.modules.values() if m is not entry and m.state == "done")]:
            for function in functions_of(module, self, module is entry):
                if id(function.node) not in self.interpreted:
                    self.guarded(lambda function=function: self.call(function, ()))  # type: ignore[misc]


# Functions that nothing called: those of a module and of its classes, methods bound to an object if one exists.


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
