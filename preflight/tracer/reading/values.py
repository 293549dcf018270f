"""What a reading has beside numbers, texts, tensors and torch's layers: functions, classes and modules of the project,
and names of libraries. None of them gives access to an object of Python's own.

`Machine` is the evaluator, as its parts see it.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

import torch

from .stopped import Budget, Stopped


class Value:
    """Of the reading's own; it is itself in a copy of a layer."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Frame:
    """The names of a function that runs. `given`: the arguments that it got."""

    __slots__ = ("closures", "given", "owner", "parent", "scope", "self_value", "variables")

    def __init__(self, scope: Any, parent: Frame | None = None, owner: OwnClass | None = None) -> None:
        self.variables: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        self.scope, self.parent, self.owner = scope, parent, owner
        self.self_value: Any = None
        self.closures: list[Function] = []

    def left(self) -> None:
        """The function has returned: what no function that it made asks for is dropped, as Python does."""
        if not self.closures:
            self.variables.clear()
            return
        asked = {node.id for one in self.closures for node in ast.walk(one.node) if isinstance(node, ast.Name)}
        for name in [one for one in self.variables if one not in asked]:
            del self.variables[name]


class Function(Value):
    """A function or lambda of the project, with the values of its defaults."""

    def __init__(
        self, node: Any, scope: Any, parent: Frame | None, defaults: tuple[list[Any], list[Any]], owner: Any = None
    ) -> None:
        self.node, self.scope, self.parent, self.defaults, self.owner = node, scope, parent, defaults, owner
        self.without_gradients = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Called by torch: `checkpoint(function, x)`."""
        return self.scope.reader.call(self, list(args), kwargs)


class Bound(Value):
    """A method with its object."""

    def __init__(self, function: Function, holder: Any) -> None:
        self.function, self.holder = function, holder

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function.scope.reader.call(self, list(args), kwargs)


class Partial(Value):
    """functools.partial."""

    def __init__(self, reader: Any, inner: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.reader, self.inner, self.args, self.kwargs = reader, inner, args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.reader.call(self.inner, [*self.args, *args], {**self.kwargs, **kwargs})


class Native(Value):
    """A method that a table allows, with its object."""

    def __init__(self, name: str, function: Any, keeps: bool = False) -> None:
        self.name, self.function = name, function
        self.keeps = keeps
        """Whether it takes the reading's own values as they are."""


class Library(Value):
    """A library's name: torch.nn.Linear, builtins.len."""

    def __init__(self, name: str, reader: Any = None) -> None:
        self.name, self.reader = name, reader

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Library) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class OwnClass(Value):
    """A class of the project. `lineage`: itself and its bases in the order of their attributes; a base of torch.nn is a
    Library."""

    def __init__(self, node: ast.ClassDef, scope: Any, bases: list[Any]) -> None:
        self.node, self.scope = node, scope
        self.lineage: list[Any] = [
            self,
            *_merged([[*one.lineage] for one in bases if isinstance(one, OwnClass)], bases),
        ]
        self.members: dict[str, ast.stmt] = {}
        self.values: dict[str, Any] = {}
        self.dataclass = False
        self.real: type | None = None
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._add(statement.name, statement)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if not isinstance(target, ast.Name):
                        raise Stopped("the body of a class assigns to more than a name", scope.path, statement.lineno)
                    self._add(target.id, statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self._add(statement.target.id, statement)
            elif not (isinstance(statement, ast.Pass) or is_text(statement)):
                raise Stopped("the body of a class computes something", scope.path, statement.lineno)

    def _add(self, name: str, statement: ast.stmt) -> None:
        if name in self.members:
            raise Stopped(f"{self.node.name}.{name} is defined twice", self.scope.path, statement.lineno)
        self.members[name] = statement

    @property
    def name(self) -> str:
        return self.node.name

    def own(self) -> list[OwnClass]:
        return [one for one in self.lineage if isinstance(one, OwnClass)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.scope.reader.call(self, list(args), kwargs)


def _merged(lineages: list[list[Any]], bases: list[Any]) -> list[Any]:
    """Python's order of the bases of several classes (C3)."""
    left = [one for one in [*lineages, list(bases)] if one]
    found: list[Any] = []
    while left:
        first = next((one[0] for one in left if not any(one[0] in other[1:] for other in left)), None)
        if first is None:
            raise Stopped("the bases of a class have no order")
        found.append(first)
        left = [rest for one in left if (rest := [item for item in one if item != first])]
    return found


class Object(Value):
    """An object of a class of the project that is no module."""

    def __init__(self, cls: OwnClass | None) -> None:
        self.cls = cls
        self.attributes: dict[str, Any] = {}


class Super(Value):
    """`super()` in a method of a class."""

    def __init__(self, owner: OwnClass, holder: Any) -> None:
        self.owner, self.holder = owner, holder


class Unread(Value):
    """A name of the training loop whose value is not known."""

    def __init__(self, why: str) -> None:
        self.why = why


def is_text(statement: ast.stmt) -> bool:
    """A docstring, or `...`."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def truth(value: Any) -> bool:
    """Whether a value is true; a tensor's truth depends on its numbers."""
    if isinstance(value, torch.Tensor):
        raise Stopped("a condition depends on the numbers in a tensor")
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict, set, range, torch.nn.Module)):
        return bool(value)
    own = value.cls.own() if isinstance(value, Object) and value.cls is not None else []
    if any(name in one.members for one in own for name in ("__len__", "__bool__")):
        raise Stopped("whether this object is true is not known")
    if isinstance(value, Value) and not isinstance(value, Unread):
        return True
    raise Stopped("a condition is not known")


class Context(Value):
    """What a `with` enters: torch.no_grad(), autocast."""

    def __init__(self, make: Any) -> None:
        self.make = make


class Machine(ABC):
    """The evaluator, as its parts see it."""

    budget: Budget
    again: Any
    """What a recomputation under checkpointing runs in; None before the step is traced."""

    @abstractmethod
    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression. Raises Stopped, with the place, for what is not known."""

    @abstractmethod
    def call(self, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a call. Raises Stopped for what no table names."""

    @abstractmethod
    def run(self, body: list[ast.stmt], frame: Frame) -> tuple[str, Any]:
        """Follow statements: how they end, and the value of a `return`."""

    @abstractmethod
    def scope(self, path: str) -> Value:
        """A file of the project."""

    @abstractmethod
    def defined(self, node: ast.stmt, frame: Frame) -> Any:
        """The value of a `def` or `class` statement."""

    @abstractmethod
    def function(self, node: Any, frame: Frame, owner: OwnClass | None) -> Function:
        """A function or lambda, its defaults evaluated."""

    @abstractmethod
    def operate(self, in_place: bool, op: ast.operator, operands: list[Any]) -> Any:
        """`left + right`, `left += right`; it lets go of the operands."""

    @abstractmethod
    def named(self, name: str) -> Any:
        """A name of a library: a constant, or what may be called."""

    @abstractmethod
    def is_listed(self, name: str) -> bool:
        """Whether a table names it."""
