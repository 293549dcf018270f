"""Base of the static evaluator: the program's state so far, and operations on abstract values.

The parts (expressions, statements, calls, hooks of libraries) import `Evaluator` and call each other through it. Its
subclass `interpreter.Interpreter` puts them together.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.python.journal import MISSING, Changes, Journal
from preflight.python.ledger import Ledger
from preflight.python.module import Module
from preflight.python.objects import (
    ARRAY,
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
    alternatives,
    from_value,
    has_unknown,
    is_expr,
    is_object,
    is_within,
    open_container,
    sides,
    to_expr,
)
from preflight.python.position import Flow, Position, ProgramArguments, ProgramStart, either_way
from preflight.vocabulary.budgets import EXPRESSION_NODES, PROGRAM_STEPS, Budget, OverBudget, keep_time
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

T = TypeVar("T")

CHEAP_PARTS = 16
"""Objects to choose between, and calls to compare with, that take a step."""

"""How a statement or block ends: with the statement after it, or by leaving the block."""

Hook: TypeAlias = "Callable[[CallRecord, Evaluator], Abstract | None]"
"""The return value of a library's function: an abstract value, or None for "an object made by it"."""

LibraryValue: TypeAlias = "Callable[[Evaluator], Abstract]"
"""The value of a library's attribute (`wandb.config`)."""


class Evaluator(ABC):
    """The state of one program's evaluation, and the operations that every part of it needs.

    `hooks` are by qualified name ("argparse.ArgumentParser.add_argument", "@hydra.main" for a decorator, "MAKER:NAME"
    for an attribute of what a call made) and come before those of libraries. `assume` gives values of parameters. They
    decide conditions, and expressions keep the parameters. With `assume_defaults` the parameters' defaults decide too.
    """

    library_hooks: ClassVar[Mapping[str, Hook]]
    library_values: ClassVar[Mapping[str, LibraryValue]]

    def __init__(
        self,
        project: Project,
        hooks: Mapping[str, Hook] | None = None,
        *,
        start: ProgramStart | None = None,
        assume: Environment | None = None,
        assume_defaults: bool = False,
        steps: int = PROGRAM_STEPS,
    ) -> None:
        self.project = project
        self.hooks = {**self.library_hooks, **(hooks or {})}
        self._start = start or ProgramStart()
        self._asked: dict[Hashable, tuple[Callable[[ProgramStart], object], object]] = {}
        """What the program asked about its start: how to ask it of another start, and the answer."""
        self._asked_names: set[str] = set()
        """Names whose values under `assume` it asked for."""
        self.texts: set[str] = set()
        """Files whose text it asked for."""
        self.set_variables: dict[str, Expr] = {}
        """Environment variables that the program itself sets; those of the launch win."""
        self.assume: dict[str, Expr] = dict(assume or {})
        self.assume_defaults = assume_defaults
        self.calls: list[CallRecord] = []
        self.tries: list[TryRecord] = []
        self.parameters: dict[str, Parameter] = {}
        self.decided_by: set[str] = set()
        """Names that conditions, loops and lookups depended on."""
        self.chosen_by: set[str] = set()
        """Names of unknown values by which the program looks up functions, classes and objects."""
        self.reads: list[str] = []
        """Files interpreted, the entry first."""
        self.instances: dict[int, list[Instance]] = {}
        """Objects of the project's classes, by the id of the class."""
        self.import_folders: dict[str, bool] = {}
        """Folders that the program adds to `sys.path`, and whether they come before its own."""
        self.modules: dict[str, ModuleValue] = {}
        self.interpreted: dict[int, dict[int, Frame]] = {}
        """Ids of the nodes of functions whose body was interpreted, with the scopes that the functions were made in."""
        self.yielded: dict[int, list[Abstract]] = {}
        """What each generator yields, by the id of its node."""
        self.calls_of: dict[int, list[CallRecord]] = {}
        """The different calls of each call expression, by the id of its node."""
        self._numbered = 0
        self.remembered = Remembered()  # data of hooks and readers
        self.ledger: Ledger | None = None
        """What a step keeps, while a round of a loop is interpreted for one sample (`steps`)."""
        self.rehearsed: set[int] = set()
        """Ids of the nodes of loops that were."""
        self.steps_of_loaders: dict[int, Expr] = {}
        """What a library's loop over the loader of a call keeps for one sample, by the id of the call's node."""
        self.position = Position()
        self.journal = Journal()
        self.reached = True
        """False while functions that nothing calls are interpreted."""
        self.depth = 0
        self.steps_left = steps
        self.cut_off: Budget | None = None
        """The budget that ended before the program did: see `whole`."""
        self._sizes: dict[int, int] = {}
        self._sized: list[Expr] = []
        """The expressions of `_sizes`, kept so that no other object gets the id of one."""

    def next_number(self) -> int:
        """The number of the next call."""
        self._numbered += 1
        return self._numbered

    def last_number(self) -> int:
        """The number of the last call."""
        return self._numbered

    @contextmanager
    def unrecorded(self, frame: Frame) -> Iterator[None]:
        """What is interpreted inside leaves no calls, returns or decisions behind. `speculate` undoes its writes."""
        kept = self.calls, self.calls_of, self.tries, self.decided_by, self.chosen_by, self.yielded
        position = self.position
        lengths = len(frame.returns), len(position.exits), len(position.conditions)
        self.calls, self.calls_of, self.tries, self.yielded = [], {}, [], dict(self.yielded)
        self.decided_by, self.chosen_by = set(self.decided_by), set(self.chosen_by)
        position.loops += 1
        try:
            yield
        finally:
            position.loops -= 1
            self.calls, self.calls_of, self.tries, self.decided_by, self.chosen_by, self.yielded = kept
            del frame.returns[lengths[0] :], position.exits[lengths[1] :], position.conditions[lengths[2] :]

    def was_interpreted(self, function: FunctionValue) -> bool:
        """Whether its body was interpreted: of a function that another one makes, with the same surrounding values."""
        return id(function.frame) in self.interpreted.get(id(function.node), {})

    # --- what the launch gives ------------------------------------------------------------------------------------

    def variable(self, name: str) -> Expr | None:
        """An environment variable, as the launch or else the program itself sets it; None: nothing sets it."""
        given = self._ask(("variable", name), lambda start: start.environment.get(name))
        return self.set_variables.get(name) if given is None else given

    @property
    def arguments(self) -> ProgramArguments:
        """`sys.argv` behind the program's name."""
        return self._ask("arguments", lambda start: start.arguments)

    def argument(self, index: int) -> Expr | None:
        """`sys.argv[index]`; None for a word that is not known, and for the program's name."""
        return self._ask(("argument", index), lambda start: start.arguments.at(index)) if index else None

    @property
    def number_of_arguments(self) -> int | None:
        """`len(sys.argv)`; None where it is not known."""
        return self._ask("number of arguments", lambda start: start.arguments.number)

    @property
    def directory(self) -> str | None:
        """The current directory in which the program starts, relative to the project's root; None: not known."""
        return self._ask("directory", lambda start: start.directory)

    def _ask(self, key: Hashable, question: Callable[[ProgramStart], T]) -> T:
        answer = question(self._start)
        self._asked[key] = question, answer
        return answer

    def same_with(self, start: ProgramStart, assume: Environment, project: Project) -> bool:
        """Whether the evaluation would have gone the same way with another start, other values of parameters and other
        texts of the project: all that it asked for is equal."""
        if any(self.assume.get(name) != assume.get(name) for name in self._asked_names):
            return False
        if not all(question(start) == answer for question, answer in self._asked.values()):
            return False
        changed = project.changed_from(self.project)
        return changed is not None and self.texts.isdisjoint(changed)

    # --- the parts, which call each other through these ---------------------------------------------------------------

    @abstractmethod
    def evaluate(self, node: ast.expr, frame: Frame) -> Abstract:
        """The abstract value of an expression."""

    @abstractmethod
    def execute(self, body: Sequence[ast.stmt], frame: Frame) -> Flow:
        """Interpret a block."""

    @abstractmethod
    def call(
        self, function: Abstract, args: Sequence[Abstract], kwargs: Mapping[str, Abstract] | None = None
    ) -> Abstract:
        """The return value of a function or class of the project; the call is not recorded."""

    @abstractmethod
    def call_at(self, site: CallSite, callee: Abstract) -> Abstract:
        """The return value of any callee; the call is recorded."""

    def expression(self, node: ast.expr, frame: Frame) -> Expr:
        """The value of an expression as an operation on the program's parameters."""
        return to_expr(self.evaluate(node, frame))

    def step(self, amount: int = 1) -> None:
        """Spend from the budget. Raises OverBudget."""
        before = self.steps_left
        self.steps_left -= amount
        if self.steps_left < 0:
            raise OverBudget(PROGRAM_STEPS)
        if self.steps_left // 64 < before // 64:
            keep_time()

    # --- modules ------------------------------------------------------------------------------------------------------

    def module_value(self, module: Module, name: str | None = None) -> ModuleValue:
        """The (one) value of a module; not interpreted yet."""
        if module.path not in self.modules:
            variables: dict[Key, Abstract] = {"__name__": Const(name or module.name), "__file__": Const(module.path)}
            frame = Frame(variables, module, globals_=variables)
            self.modules[module.path] = ModuleValue(module, frame)
        return self.modules[module.path]

    def execute_module(self, value: ModuleValue) -> None:
        """Interpret a module's top level once; a cyclic import sees the names so far."""
        if value.state != "new":
            return
        value.state = "running"
        self.reads.append(value.module.path)
        position, branches = self.position, self.journal.branches
        self.position, self.journal.branches = replace(position, conditions=[], loops=0, exits=[]), []
        try:
            self.execute(value.module.tree.body, value.frame)
        finally:
            self.position, self.journal.branches = position, branches
            value.state = "done"

    # --- values -------------------------------------------------------------------------------------------------------

    def lookup_environment(self) -> Environment:
        """The values that decide conditions: `assume` and, if asked for, the defaults of parameters."""
        if not self.assume_defaults:
            return self.assume
        return {**{name: p.default for name, p in self.parameters.items()}, **self.assume}

    def value_of(self, expr: Expr) -> Value:
        """An expression's value under `assume`; `decided_by` records the conditions that it depended on."""
        if isinstance(expr, Const):
            return expr.value
        asked = frozenset(names(expr))
        self._asked_names |= asked
        if not has_unknown(expr):  # else no value of its names would decide it
            self.decided_by |= asked
        return evaluate(expr, self.lookup_environment())

    def argument_value(self, record: CallRecord, name: str, position: int | None = None) -> Value:
        """The value of an argument of a call; None without it."""
        given = record.argument(name, position)
        return None if given is None else self.value_of(given)

    def truth(self, value: Abstract) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        if isinstance(value, Container):
            return True if value.items else (None if value.open else False)
        if isinstance(value, Either):
            first, *others = [self.truth(one) for one in alternatives(value)]
            return first if all(one == first for one in others) else None
        if is_expr(value):
            found = self.value_of(to_expr(value))
            return None if isinstance(found, Unknown) else bool(found)
        if isinstance(value, Instance):
            return True if is_object(value) and ARRAY not in value.state else None
        return True if isinstance(value, (FunctionValue, ClassValue)) else None

    def constant_truth(self, value: Abstract) -> bool | None:
        """As `truth`, by constants alone."""
        if is_expr(value):
            found = evaluate(to_expr(value))
            return None if isinstance(found, Unknown) else bool(found)
        return self.truth(value)

    def op(self, operator: str, operands: tuple[Expr, ...], origin: Origin | None = None) -> Expr:
        """An operation; unknown where it would grow too large."""
        size = 1 + sum(self._size(operand) for operand in operands)
        made = Op(operator, operands, origin)
        if size > EXPRESSION_NODES:
            constant = all(isinstance(operand, Const) for operand in operands)
            value = evaluate(made) if constant else Unknown(f"the expression is {EXPRESSION_NODES.over}", Cause.budget)
            return Const(value, replace(origin, editable=False) if origin else None)
        if origin is not None and all(is_within(operand, origin) for operand in operands):
            value = evaluate(made)
            if isinstance(value, (bool, int, float)):
                return Const(value, origin)
        self._sizes[id(made)] = size
        self._sized.append(made)
        return made

    def _size(self, expr: Expr) -> int:
        if not isinstance(expr, Op):
            return 1
        if id(expr) not in self._sizes:
            self._sizes[id(expr)] = 1 + sum(self._size(operand) for operand in expr.operands)
            self._sized.append(expr)
        return self._sizes[id(expr)]

    def join(self, condition: Expr, then: Abstract, otherwise: Abstract) -> Abstract:
        """The value of a variable after an `if` whose condition is not known."""
        if then is otherwise or otherwise is MISSING:
            return then
        if then is MISSING:
            return otherwise
        if is_expr(then) and is_expr(otherwise):
            if then == otherwise:
                return then
            return self.op("if", (condition, to_expr(then), to_expr(otherwise)))
        return Either(condition, then, otherwise)

    def on_both_sides(self, value: Either, action: Callable[[Abstract], Abstract]) -> Abstract:
        """What `action` makes of either object; each of `sides` is looked at once."""
        made: dict[int, Abstract] = {}
        every = sides(value)
        self.step(len(every) // CHEAP_PARTS)
        for side in every:
            if isinstance(side, Either):
                made[id(side)] = self.join(side.condition, made[id(side.then)], made[id(side.otherwise)])
            else:
                made[id(side)] = action(side)
        return made[id(value)]

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

    # --- branches -----------------------------------------------------------------------------------------------------

    def speculate(self, condition: Expr | None, action: Callable[[], Flow]) -> tuple[Flow, Changes]:
        """Run `action` under a path condition and undo its writes; return how it ended, and its changes."""
        start = self.journal.begin()
        conditions = self.position.conditions
        length = len(conditions)
        if condition is not None:
            conditions.append(condition)
        flow = action()
        del conditions[length:]
        return flow, self.journal.undo(start)

    def for_either(self, value: Either, action: Callable[[Abstract], None]) -> None:
        """Do the same with either object, and merge the changes; each of `sides` is looked at once."""
        every = sides(value)
        ways: dict[int, tuple[Expr, ...]] = {id(value): ()}
        for side in reversed(every):  # behind all that choose it
            self.step()
            if isinstance(side, Either):
                for one, condition in ((side.then, side.condition), (side.otherwise, Op("not", (side.condition,)))):
                    way = (*ways[id(side)], condition)
                    ways[id(one)] = either_way(ways[id(one)], way) if id(one) in ways else way

        def alone(one: Abstract) -> Flow:
            self.position.conditions += ways[id(one)]
            action(one)
            return "next"

        made: dict[int, Changes] = {}
        for side in every:
            if isinstance(side, Either):
                made[id(side)] = self._merged(side.condition, made[id(side.then)], made[id(side.otherwise)])
            else:
                _, made[id(side)] = self.speculate(None, lambda side=side: alone(side))  # type: ignore[misc]
        self.journal.apply(made[id(value)])

    def merge(self, condition: Expr, then: Changes, otherwise: Changes) -> None:
        """Apply the changes of two branches, joined by the condition between them."""
        self.journal.apply(self._merged(condition, then, otherwise))

    def _merged(self, condition: Expr, then: Changes, otherwise: Changes) -> Changes:
        made: Changes = {}
        for place in {**then, **otherwise}:
            scope, key, _, older = then.get(place) or otherwise[place]
            old = scope.get(key, MISSING)
            one = then[place][2] if place in then else old
            other = otherwise[place][2] if place in otherwise else old
            if older and (one is MISSING) != (other is MISSING):
                one, other = self._perhaps(self.journal.containers[id(scope)], one, other)
            made[place] = scope, key, self.join(condition, one, other), older
        return made

    def _perhaps(self, container: Container, one: Abstract, other: Abstract) -> tuple[Abstract, Abstract]:
        if container.is_sequence:
            container.flags["open"] = True
        absent = unknown("it may not be there", cause=Cause.run_time)
        if is_expr(one) and is_expr(other):
            return (absent if one is MISSING else one), (absent if other is MISSING else other)
        return one, other

    def add_parameter(self, parameter: Parameter) -> None:
        """Note something that the program can be given; a later one of that name replaces the default only."""
        known = self.parameters.get(parameter.name)
        if known is None:
            self.parameters[parameter.name] = parameter
        elif isinstance(known.default, Const) and isinstance(known.default.value, Unknown):
            self.parameters[parameter.name] = replace(known, default=parameter.default)


class CallSite(Struct, frozen=True):
    """A call expression with its arguments."""

    ev: Evaluator
    args: tuple[Abstract, ...]
    kwargs: dict[str, Abstract]
    node: ast.Call
    frame: Frame
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """The places of the keyword arguments."""
    complete: bool = True
    """False: further arguments come from `*args` or `**kwargs` that are not known."""
    more: bool = False
    """A mapping is spread that may have any key: what is not given may be in it."""
    spread: tuple[Abstract, ...] = ()

    @property
    def origin(self) -> Origin:
        return self.frame.module.origin(self.node)

    @property
    def derived(self) -> Origin:
        """The place of a result that no edit of the call can change."""
        return self.frame.module.origin(self.node, editable=False)

    def unknown(self, words: str, cause: Cause = Cause.not_read) -> Const:
        """A result that cannot be known, and why."""
        return unknown(words, self.origin, cause)

    def open_container(self, kind: str = "list") -> Container:
        """A result whose items are not known."""
        return open_container(kind, self.origin)

    def constant(self, index: int) -> Value:
        """The value of an argument; None without such an argument."""
        return self.ev.value_of(to_expr(self.args[index])) if index < len(self.args) else None

    def items(self, index: int) -> list[Abstract] | None:
        """The items of an argument; None where they are not known, or without such an argument."""
        return self.ev.iterate(self.args[index]) if index < len(self.args) else None

    def call(self, function: Abstract, *args: Abstract) -> Abstract:
        """The return value of a function that is an argument."""
        return self.ev.call_at(CallSite(self.ev, args, {}, self.node, self.frame), function)
