"""What the evaluator hands on: the calls that a program makes, and the exceptions it is ready for."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from preflight.python.objects import Abstract
from preflight.records import dataclass, field
from preflight.values import Expr, Origin


@dataclass(eq=False, slots=True)
class CallRecord:
    """One call that the program makes, with arguments as expressions over its parameters.

    `name` is qualified through imports ("torch.utils.data.DataLoader", "transformers.TrainingArguments"); a method of
    an object is written as in the text ("model.generate"), `receiver` is then what the object was made by, where that
    is known ("torch.optim.AdamW"), and `method` its last name. For calls to the project's own code the name is
    "module.function".
    """

    name: str
    receiver: str | None
    method: str
    args: tuple[Expr, ...]
    kwargs: Mapping[str, Expr]
    keyword_origins: Mapping[str, Origin]
    """The place of each keyword argument's own text in the call (its value's origin may be elsewhere)."""
    path: str
    node: ast.expr
    origin: Origin
    function: str | None = None
    """The enclosing function, "Class.method" for methods; None at the module's top level."""
    conditions: tuple[Expr, ...] = ()
    in_loop: bool = False
    in_try: tuple[str, ...] = ()
    """Names of the exceptions that an enclosing `except` catches ("*" for a bare one)."""
    contexts: tuple[CallRecord, ...] = ()
    """Calls whose `with` block (or decorator) this call is in, outermost first."""
    reached: bool = True
    """False: only seen when functions that nothing calls were read on their own, with unknown parameters."""
    complete: bool = True
    """False: further arguments come from `*args` or `**kwargs` that are not known."""
    arguments: tuple[Abstract, ...] = ()
    keywords: Mapping[str, Abstract] = field(default_factory=dict)
    """The arguments as objects, where an expression says too little (a model, an optimizer)."""
    receiver_object: Abstract | None = None
    callee: Abstract | None = None
    value: Abstract | None = None
    result: Expr | None = None
    """What the call gives, as an object and as an expression; None until it returned."""

    @property
    def qualified(self) -> str:
        """`name`, or what the receiver was made by and the method: "torch.optim.AdamW.step"."""
        return f"{self.receiver}.{self.method}" if self.receiver else self.name

    def argument(self, name: str, position: int | None = None) -> Expr | None:
        """An argument by keyword or by position (0-based); None where it is not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None

    def object(self, name: str, position: int | None = None) -> Abstract | None:
        """As `argument`, as an object."""
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.arguments):
            return self.arguments[position]
        return None


@dataclass(eq=False, slots=True)
class TryRecord:
    """A `try` that was entered: `calls` are those made in its body, functions called from it included."""

    node: ast.Try
    path: str
    function: str | None
    handlers: tuple[tuple[tuple[str, ...], ast.ExceptHandler], ...]
    calls: tuple[CallRecord, ...] = ()
    reached: bool = True
