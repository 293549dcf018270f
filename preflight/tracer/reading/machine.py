"""What the parts of a reading ask of each other. `reader.Reader` puts them together."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from .stopped import Budget
from .values import Frame, Function, OwnClass, Value


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
