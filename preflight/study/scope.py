"""The values of names: a scope for each file, with the values that its caller gives.

Between files an axis has a marked name. So a program's parameter `batch_size` and the sweep's axis `batch_size` are
never confused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from preflight.vocabulary.budgets import JOINED_DEPTH, JOINED_NODES
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, evaluate, names, unknown

MARK = "\0"
"""The first character of an axis's name in expressions over several files."""


class Scope(Struct):
    """The names of one file: its own `axes`; `given` by callers, over marked axes; `local`, not yet resolved."""

    axes: frozenset[str] = frozenset()
    given: Mapping[str, Expr] = field(default_factory=dict)
    local: Mapping[str, Expr] = field(default_factory=dict)
    _done: dict[str, Expr] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def lookup(self, ref: Ref) -> Expr:
        """The value of a name, over marked axes alone; the name itself if it has none."""
        name = ref.name
        if name.startswith(MARK):
            return ref
        if name in self.axes:
            return Ref(MARK + name, ref.origin)
        if name in self.given:
            return self.given[name]
        if name not in self.local:
            return ref
        if name not in self._done:
            if name in self._open or len(self._open) >= JOINED_DEPTH:
                why = (
                    "refers to itself" if name in self._open else f"is defined through over {JOINED_DEPTH} other names"
                )
                return unknown(f"{name} {why}", ref.origin, Cause.budget)
            self._open.add(name)
            self._done[name] = self.resolve(self.local[name])
            self._open.discard(name)
        return self._done[name]

    def resolve(self, expr: Expr) -> Expr:
        """`expr` with each name replaced by its value; operations are not evaluated."""
        if isinstance(expr, Op) and _too_large(expr):  # it can be a value that doubles itself: there is no end to it
            return unknown(f"the expression is {JOINED_NODES.over}", expr.origin, Cause.budget)
        found = self._resolve(expr)
        if isinstance(found, Op) and _too_large(found):
            return unknown(f"the expression is {JOINED_NODES.over}", expr.origin, Cause.budget)
        return found

    def _resolve(self, expr: Expr) -> Expr:
        if isinstance(expr, Ref):
            return self.lookup(expr)
        if isinstance(expr, Op):
            return Op(expr.operator, tuple(self._resolve(operand) for operand in expr.operands), expr.origin)
        return expr


def _too_large(expr: Expr) -> bool:
    """Whether an expression has more nodes or levels than people write."""
    count, stack = 0, [(expr, 1)]
    while stack:
        top, depth = stack.pop()
        count += 1
        if count > JOINED_NODES or depth > JOINED_DEPTH:
            return True
        if isinstance(top, Op):
            stack += [(operand, depth + 1) for operand in top.operands]
    return False


def unmark(expr: Expr) -> Expr:
    """A resolved expression for the study: axes have their own names again, other names are unknown."""
    if isinstance(expr, Ref):
        if expr.name.startswith(MARK):
            return Ref(expr.name[len(MARK) :], expr.origin)
        return Const(Unknown(f"{expr.name} is not set in the files read", Cause.not_set), expr.origin)
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(unmark(operand) for operand in expr.operands), expr.origin)
    return expr


def fix_axes(expr: Expr, values: Mapping[str, Const]) -> Expr:
    """`expr` with the values of some axes; `values` has their own names, the expression the marked ones."""
    if isinstance(expr, Ref):
        return values.get(expr.name[len(MARK) :], expr) if expr.name.startswith(MARK) else expr
    if isinstance(expr, Op):
        found = Op(expr.operator, tuple(fix_axes(operand, values) for operand in expr.operands), expr.origin)
        return _decided(found) if expr.operator == "if" else found
    return expr


def _decided(expr: Op) -> Expr:
    """The chosen side of an `if` whose condition has no names any more."""
    if any(True for _ in names(expr.operands[0])):
        return expr
    test = evaluate(expr.operands[0])
    if isinstance(test, Unknown):
        return expr
    return expr.operands[1] if test else expr.operands[2]


def references(exprs: Iterable[Expr], local: Mapping[str, Expr]) -> Iterator[str]:
    """Every name that the expressions use, directly or through the definitions in `local`."""
    stack, seen = list(exprs), set[str]()
    while stack:
        expr = stack.pop()
        if isinstance(expr, Op):
            stack += expr.operands
        elif isinstance(expr, Ref) and expr.name not in seen:
            seen.add(expr.name)
            yield expr.name
            if expr.name in local:
                stack.append(local[expr.name])
