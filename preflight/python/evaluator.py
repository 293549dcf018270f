"""Static evaluation of Python: which calls a program makes, and with what, as expressions over its parameters.

Nothing is imported, executed or evaluated by Python: the syntax tree is interpreted over abstract values (`objects`),
within a budget of steps. Past the budget, what is known stays and the rest is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from preflight.python.access import class_attribute
from preflight.python.classes import instantiate
from preflight.python.functions import invoke
from preflight.python.hooks import library_hooks
from preflight.python.module import Module, load_module
from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Container,
    Either,
    Frame,
    FunctionValue,
    Instance,
    Key,
    ModuleValue,
    TryRecord,
    from_value,
    has_unknown,
    is_expr,
    is_object,
    is_within,
    to_expr,
)
from preflight.python.statements import execute
from preflight.vocabulary.caches import Remembered
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Parameter
from preflight.vocabulary.values import (
    Cause,
    Const,
    Environment,
    Expr,
    Op,
    Origin,
    Unknown,
    Value,
    evaluate,
    names,
    unknown,
)

STEPS = 50_000
"""Nodes interpreted from the entry; a 600-line training script takes some 3,000."""
STEPS_UNREACHED = 15_000
MAX_SIZE = 300
"""Nodes of one expression; larger ones (a value doubled in a loop) are unknown."""


Hook: TypeAlias = Callable[[CallRecord, "Evaluator"], "Abstract | None"]
"""What a library's call gives: an abstract value, or None for "an object made by it"."""


class OutOfSteps(Exception):
    """The budget is spent; caught where interpretation was started."""


_MISSING = Const(Unknown("not set", Cause.not_set))


class Evaluator:
    """Interprets one program.

    `hooks` are by qualified name ("argparse.ArgumentParser.add_argument", "@hydra.main" for a decorator) and come
    before the shipped ones (`library_hooks`). `assume` gives values of parameters by which conditions are decided,
    without replacing them in expressions; with `assume_defaults` the parameters' own defaults decide too.
    """

    def __init__(
        self,
        project: Project,
        hooks: Mapping[str, Hook] | None = None,
        *,
        environment: Mapping[str, Expr] | None = None,
        assume: Environment | None = None,
        assume_defaults: bool = False,
        steps: int = STEPS,
    ) -> None:
        self.project = project
        self.hooks: dict[str, Hook] = {**library_hooks(), **(hooks or {})}
        self.environment = dict(environment or {})
        self.assume: dict[str, Expr] = dict(assume or {})
        self.assume_defaults = assume_defaults
        self.calls: list[CallRecord] = []
        self.tries: list[TryRecord] = []
        self.parameters: dict[str, Parameter] = {}
        self.decided_by: set[str] = set()
        """Names that conditions, loops and lookups depended on."""
        self.reads: list[str] = []
        """Files interpreted, the entry first."""
        self.instances: dict[int, list[Instance]] = {}
        """Objects of the project's classes, by the id of the class."""
        self.remembered = Remembered()
        """What hooks and readers keep."""
        self.exhausted = False
        self.steps_left = steps
        self.depth = 0
        self.reached = True
        self.loops = 0
        self.conditions: list[Expr] = []
        self.handlers: list[tuple[str, ...]] = []
        self.contexts: list[CallRecord] = []
        self.stack: list[object] = []
        """Nodes of the functions being interpreted, the outermost first."""
        self.marks: list[int] = []
        """How many path conditions there were when each of them was entered."""
        self.modules: dict[str, ModuleValue] = {}
        self.interpreted: set[int] = set()
        """Ids of the nodes of functions whose body was interpreted."""
        self.skips: list[tuple[str, Expr]] = []
        """Conditional returns, breaks and continues of the function being interpreted, with their full conditions."""
        self._journals: list[list[tuple[dict[Key, Abstract], Key, Abstract]]] = []
        self._sizes: dict[int, int] = {}
        self._kept: list[object] = []
        self.containers: dict[int, Container] = {}
        """Containers that were written to, by the id of their items."""
        self.seen: dict[int, list[CallRecord]] = {}

    # --- running ------------------------------------------------------------------------------------------------

    def run(self, path: str, entry: str = "__main__", *, unreached: bool = True) -> ModuleValue | None:
        """Interpret a file as a script (or call its function `entry`), then what nothing called on its own.

        Returns the module's value; None where it cannot be parsed.
        """
        module = load_module(path, self.project)
        if module is None:
            return None
        value = self.module_value(module, "__main__" if entry == "__main__" else module.name)
        self.guarded(lambda: self.execute_module(value))
        function = value.frame.variables.get(entry)
        if isinstance(function, FunctionValue):
            self.guarded(lambda: self.call(function, ()))
        if unreached:
            self.run_unreached(value)
        return value

    def guarded(self, action: Callable[[], object]) -> None:
        """Run `action`, stopping where the budget or Python's stack ends."""
        saved = (self.depth, self.loops, len(self.conditions), len(self.handlers), len(self.contexts))
        try:
            action()
        except (OutOfSteps, RecursionError):
            self.exhausted = True
            self._journals.clear()
        self.depth, self.loops = saved[0], saved[1]
        for spent in (self.stack, self.marks, self.skips):
            spent.clear()
        for kept, length in zip((self.conditions, self.handlers, self.contexts), saved[2:], strict=True):
            del kept[length:]  # type: ignore[attr-defined]

    def run_unreached(self, entry: ModuleValue) -> None:
        """Interpret functions that nothing called, with unknown parameters, so that their calls are recorded too."""

        self.reached, self.steps_left = False, min(STEPS_UNREACHED, max(self.steps_left, STEPS_UNREACHED // 4))
        for module in [entry, *(m for m in self.modules.values() if m is not entry and m.state == "done")]:
            for function in functions_of(module, self, module is entry):
                if id(function.node) not in self.interpreted and self.steps_left > 0:
                    self.guarded(lambda function=function: self.call(function, (), missing="unknown"))  # type: ignore[misc]

    def step(self, amount: int = 1) -> None:
        """Spend from the budget. Raises OutOfSteps."""
        self.steps_left -= amount
        if self.steps_left < 0:
            raise OutOfSteps

    # --- modules ------------------------------------------------------------------------------------------------

    def module_value(self, module: Module, name: str | None = None) -> ModuleValue:
        """The (one) value of a module; not interpreted yet."""
        if module.path not in self.modules:
            variables: dict[Key, Abstract] = {
                "__name__": Const(name or module.name),
                "__file__": Const(module.path, None),
            }
            frame = Frame(variables, module, globals_=variables)
            self.modules[module.path] = ModuleValue(module, frame)
        return self.modules[module.path]

    def execute_module(self, value: ModuleValue) -> None:
        """Interpret a module's top level once; a cycle sees what is there so far."""
        if value.state != "new":
            return
        value.state = "running"
        self.reads.append(value.module.path)
        conditions, loops, journals, skips = self.conditions, self.loops, self._journals, self.skips
        self.conditions, self.loops, self._journals, self.skips = [], 0, [], []
        try:
            execute(self, value.module.tree.body, value.frame)
        finally:
            self.conditions, self.loops, self._journals, self.skips = conditions, loops, journals, skips
            value.state = "done"

    # --- calling ------------------------------------------------------------------------------------------------

    def call(
        self,
        function: Abstract,
        args: Sequence[Abstract],
        kwargs: Mapping[str, Abstract] | None = None,
        *,
        missing: str = "default",
    ) -> Abstract:
        """Call a function or class of the project; `missing="unknown"`: parameters without an argument are unknown
        where they have no default.
        """
        if isinstance(function, FunctionValue):
            return invoke(self, function, tuple(args), dict(kwargs or {}))
        if isinstance(function, ClassValue):
            return instantiate(self, function, tuple(args), dict(kwargs or {}), None)
        if isinstance(function, Instance) and function.cls is not None:
            method = class_attribute(function.cls, "__call__")
            if isinstance(method, FunctionValue):
                return invoke(self, replace(method, self_value=function), tuple(args), dict(kwargs or {}))
        return unknown("what it calls is not known", cause=Cause.out_of_project)

    # --- values -------------------------------------------------------------------------------------------------

    def lookup_environment(self) -> Environment:
        """What conditions are decided by: `assume`, and the parameters' defaults where asked for."""
        if not self.assume_defaults:
            return self.assume
        return {**{name: p.default for name, p in self.parameters.items()}, **self.assume}

    def value_of(self, expr: Expr) -> Value:
        """An expression's value under `assume`; what it depended on is noted in `decided_by`."""
        if isinstance(expr, Const):
            return expr.value
        if not has_unknown(expr):  # else no value of its names would decide it
            self.decided_by.update(names(expr))
        return evaluate(expr, self.lookup_environment())

    def truth(self, value: Abstract) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        if isinstance(value, Container):
            return True if value.items else (None if value.open else False)
        if isinstance(value, Either):
            then, otherwise = self.truth(value.then), self.truth(value.otherwise)
            return then if then == otherwise else None
        if is_expr(value):
            found = self.value_of(to_expr(value))
            if isinstance(found, Unknown):
                return None
            return bool(found)
        if isinstance(value, Instance):
            return True if is_object(value) else None
        return True if isinstance(value, (FunctionValue, ClassValue)) else None

    def constant_truth(self, value: Abstract) -> bool | None:
        """As `truth`, by what is constant alone."""
        if is_expr(value):
            found = evaluate(to_expr(value))
            return None if isinstance(found, Unknown) else bool(found)
        return self.truth(value)

    def op(self, operator: str, operands: tuple[Expr, ...], origin: Origin | None = None) -> Expr:
        """An operation; unknown where it would grow too large."""
        size = 1 + sum(self._size(operand) for operand in operands)
        made = Op(operator, operands, origin)
        if size > MAX_SIZE:
            value = (
                evaluate(made)
                if all(isinstance(o, Const) for o in operands)
                else Unknown("it grows too large", Cause.budget)
            )
            return Const(value, replace(origin, editable=False) if origin else None)
        if origin is not None and all(is_within(operand, origin) for operand in operands):
            value = evaluate(made)
            if isinstance(value, (bool, int, float)):
                return Const(value, origin)
        self._sizes[id(made)] = size
        self._kept.append(made)
        return made

    def _size(self, expr: Expr) -> int:
        if not isinstance(expr, Op):
            return 1
        if id(expr) not in self._sizes:
            self._sizes[id(expr)] = 1 + sum(self._size(operand) for operand in expr.operands)
            self._kept.append(expr)  # the id stays its own
        return self._sizes[id(expr)]

    def join(self, condition: Expr, then: Abstract, otherwise: Abstract) -> Abstract:
        """What a variable is after an `if` whose condition is not known."""
        if then is otherwise or otherwise is _MISSING:
            return then
        if then is _MISSING:
            return otherwise
        if is_expr(then) and is_expr(otherwise):
            if then == otherwise:
                return then
            return self.op("if", (condition, to_expr(then), to_expr(otherwise)))
        return Either(condition, then, otherwise)

    def iterate(self, value: Abstract) -> list[Abstract] | None:
        """The items of an iterable; None where they are not known."""
        if isinstance(value, Container):
            if value.open:
                return None
            return list(value.items.values()) if value.is_sequence else [from_value(k) for k in value.items]
        if is_expr(value):
            expr = to_expr(value)
            found = self.value_of(expr)
            origin = replace(expr.origin, editable=False) if expr.origin else None
            if isinstance(found, (tuple, str)) and len(found) <= 4096:
                return [from_value(item, origin) for item in found]
            if isinstance(found, Mapping):
                return [Const(key, origin) for key in found]
        return None

    # --- writes, undone and merged around unknown conditions -----------------------------------------------------

    def write(self, scope: dict[Key, Abstract], key: Key, value: Abstract) -> None:
        """Set a variable, attribute or item, so that a branch can be undone."""
        if self._journals:
            self._journals[-1].append((scope, key, scope.get(key, _MISSING)))
        scope[key] = value

    def remove(self, scope: dict[Key, Abstract], key: Key) -> None:
        """Remove a variable, attribute or item."""
        if key in scope:
            if self._journals:
                self._journals[-1].append((scope, key, scope[key]))
            del scope[key]

    def speculate(self, condition: Expr | None, action: Callable[[], str]) -> tuple[str, Changes]:
        """Run `action` under a path condition and undo its writes: how it ended, and what it changed."""
        self._journals.append([])
        start = Container("list").serial
        length = len(self.conditions)
        if condition is not None:
            self.conditions.append(condition)
        flow = action()
        del self.conditions[length:]
        journal = self._journals.pop()
        changes: Changes = {}
        for scope, key, _ in journal:
            known = self.containers.get(id(scope))
            older = known is not None and known.serial < start
            changes[(id(scope), key)] = (scope, key, scope.get(key, _MISSING), older)
        for scope, key, old in reversed(journal):
            if old is _MISSING:
                scope.pop(key, None)
            else:
                scope[key] = old
        return flow, changes

    def merge(self, condition: Expr, then: Changes, otherwise: Changes) -> None:
        """Apply what two branches changed, joined by the condition between them."""
        for place in {**then, **otherwise}:
            scope, key, _, older = then.get(place) or otherwise[place]
            old = scope.get(key, _MISSING)
            one = then[place][2] if place in then else old
            other = otherwise[place][2] if place in otherwise else old
            if older and (one is _MISSING) != (other is _MISSING):
                one, other = self._perhaps(self.containers[id(scope)], one, other)
            joined = self.join(condition, one, other)
            if joined is _MISSING:
                self.remove(scope, key)
            else:
                self.write(scope, key, joined)

    def _perhaps(self, container: Container, one: Abstract, other: Abstract) -> tuple[Abstract, Abstract]:
        if container.is_sequence:
            container.flags["open"] = True
        absent = unknown("it may not be there", cause=Cause.run_time)
        if is_expr(one) and is_expr(other):
            return (absent if one is _MISSING else one), (absent if other is _MISSING else other)
        return one, other

    def apply(self, changes: Changes) -> None:
        """Apply what one branch changed."""
        for scope, key, value, _ in changes.values():
            if value is _MISSING:
                self.remove(scope, key)
            else:
                self.write(scope, key, value)

    # --- parameters ---------------------------------------------------------------------------------------------

    def add_parameter(self, parameter: Parameter) -> None:
        """Note something that the program can be given; a later one of that name replaces the default only."""
        known = self.parameters.get(parameter.name)
        if known is None:
            self.parameters[parameter.name] = parameter
        elif isinstance(known.default, Const) and isinstance(known.default.value, Unknown):
            self.parameters[parameter.name] = replace(known, default=parameter.default)


Changes = dict[tuple[int, Key], tuple[dict[Key, Abstract], Key, Abstract, bool]]
"""Scope, key, value, and whether the scope is a container older than the branch."""


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
