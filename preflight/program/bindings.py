"""Making bindings of Job fields from expressions: ranks, folding, values under conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeGuard

from msgspec.structs import replace

from preflight.python.objects import has_unknown
from preflight.vocabulary.budgets import FIELD_NODES, keep_time
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import (
    Cause,
    Const,
    Expr,
    Op,
    Origin,
    Ref,
    Unknown,
    Value,
    evaluate,
    has_more_parts,
    names,
    origins,
    substitute,
    unknown,
)

_OTHERWISE = "\0otherwise"
"""Name of "the field's value without this call"; `settled` replaces it."""


def is_constant(expr: Expr) -> bool:
    """Whether the expression holds no name."""
    return not any(True for _ in names(expr))


def constant(expr: Expr | None) -> Value:
    """The value of a constant expression; Unknown if it depends on a name, or is not given."""
    if expr is None:
        return Unknown("it is not given", Cause.not_set)
    return evaluate(expr) if is_constant(expr) else Unknown("it is set elsewhere", Cause.not_read)


def is_unknown(expr: Expr) -> bool:
    """Whether it is unknown, and no setting elsewhere could change that."""
    return is_constant(expr) and isinstance(evaluate(expr), Unknown)


def first_origin(*exprs: Expr | None) -> Origin | None:
    """The first place that any of the expressions was written at."""
    return next((origin for expr in exprs if expr is not None for origin in origins(expr)), None)


def fold(expr: Expr, origin: Origin | None = None) -> Expr:
    """The expression as a constant if its value is known, at `origin` or the first place among its operands."""
    if isinstance(expr, Op) and is_constant(expr):
        return Const(evaluate(expr), origin or first_origin(expr))
    return expr


def when(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`yes if condition else no`. If the condition is known, the branch that is taken, with the condition's place."""
    value = constant(condition)
    if isinstance(value, Unknown):
        return Op("if", (condition, yes, no), condition.origin)
    taken = yes if value else no
    if isinstance(taken, Const) and taken.origin is None and value:
        return Const(taken.value, first_origin(condition))
    return taken


def unless_unset(expr: Expr, given: Expr, unset: tuple[Value, ...] = (None,)) -> Expr:
    """`given`, or None if `expr` is set elsewhere to one of the values for "not set"."""
    if is_constant(expr):
        return given
    return Op("if", (Op("in", (expr, Const(unset))), Const(None), given), given.origin)


def either(*conditions: Expr) -> Expr:
    """Whether any of the conditions holds."""
    return fold(Op("or", tuple(conditions))) if len(conditions) > 1 else conditions[0]


def bind(field: str, expr: Expr, rank: Rank | None = None, origin: Origin | None = None) -> Binding:
    """A Binding whose rank follows from the expression: literal, read from the text, or unknown."""
    if rank is None:
        rank = Rank.not_followed if is_unknown(expr) else Rank.literal if isinstance(expr, Const) else Rank.read
    return Binding(field, expr, rank, origin or first_origin(expr))


def under(conditions: Sequence[Expr], bindings: Iterable[Binding]) -> Iterator[Binding]:
    """Bindings of a call that is made only where its path conditions hold.

    Conditions on the program's parameters are kept. So are those on what only running tells (a file that is there, the
    environment), which `settled` takes to hold if nothing else gives the field another value.
    """
    kept: list[Expr] | None = None  # most calls say nothing, and their conditions need not be looked at
    for binding in bindings:
        if kept is None:
            kept = [condition for condition in conditions if isinstance(constant(condition), Unknown)]
        expr = binding.expr
        for condition in reversed(kept):
            expr = Op("if", (condition, expr, Ref(_OTHERWISE)), expr.origin)
        yield replace(binding, expr=expr) if kept else binding


def decides(condition: Expr) -> bool:
    """Whether the program's parameters decide a condition."""
    return not is_constant(condition) and not has_unknown(condition)


def settled(bindings: Sequence[Binding]) -> list[Binding]:
    """Bindings of one program with every "otherwise" replaced by the binding that would win without the call."""
    found: list[Binding] = []
    for field in dict.fromkeys(binding.field for binding in bindings):
        keep_time()
        winner: Expr = Const(None)
        doubtful = False
        rivals: _Rivals = []
        for binding in sorted((b for b in bindings if b.field == field), key=lambda b: b.rank):
            open_, expr = _opened(_within_budget(binding.expr))
            alone = expr
            if open_ and binding.rank > Rank.default:
                expr = _contested(expr, open_, rivals)
                binding = replace(binding, perhaps=True)
            if binding.rank > Rank.default:
                rivals = [*rivals, (open_, alone)] if open_ else [(open_, alone)]
            binding = replace(binding, expr=_within_budget(expr))
            if _OTHERWISE in names(binding.expr):
                whole = _within_budget(pruned(substitute(binding.expr, {_OTHERWISE: winner})))
                binding = replace(binding, expr=whole, perhaps=binding.perhaps or doubtful)
                if found and found[-1].field == field and found[-1].rank == binding.rank:
                    found.pop()  # it lives on inside this one
            winner, doubtful = binding.expr, binding.perhaps
            found.append(binding)
    return found


def _within_budget(expr: Expr) -> Expr:
    """The expression, or unknown if it is too large: whatever walks through it would take as long."""
    if not has_more_parts(expr, FIELD_NODES):
        return expr
    return unknown(f"its value is {FIELD_NODES.over}", expr.origin, Cause.budget)


_Rivals: TypeAlias = "list[tuple[tuple[Expr, ...], Expr]]"


def _opened(expr: Expr) -> tuple[tuple[Expr, ...], Expr]:
    """The path conditions that only running tells, and the expression under the others, which become one condition.

    One condition has one "otherwise". Nested ones would each get a copy of what wins without the call, and a program
    with many such calls would need exponentially many.
    """
    unsure: list[Expr] = []
    sure: list[Expr] = []
    inner, origin = expr, expr.origin
    while isinstance(inner, Op) and inner.operator == "if" and inner.operands[2] == Ref(_OTHERWISE):
        condition = inner.operands[0]
        (sure if decides(condition) else unsure).append(condition)
        inner = inner.operands[1]
    if not sure:
        return tuple(unsure), inner
    test = sure[0] if len(sure) == 1 else Op("and", tuple(sure))
    return tuple(unsure), Op("if", (test, inner, Ref(_OTHERWISE)), origin)


def _contested(expr: Expr, conditions: Sequence[Expr], rivals: _Rivals) -> Expr:
    """The value of a call under conditions that only running tells: unknown if another value is used where they do not
    hold. A call that is made only if this one is made as well says nothing of that case."""
    for others, value in rivals:
        if all(any(_is(one, other) for other in others) for one in conditions) or _agree(value, expr):
            continue
        words = "a condition that only running the program decides chooses between two values"
        return _chosen(Const(Unknown(words, Cause.run_time)), expr, value)
    return expr


def _agree(one: Expr, other: Expr) -> bool:
    """Whether two opened expressions cannot give a field different values: they say the same, or the program's
    parameters decide which of the two calls is made (`if args.curriculum: ...` and the call after it)."""
    if same(_inner(one), _inner(other)):
        return True
    if not (_has_otherwise(one) and _has_otherwise(other)):
        return False
    rivals = _conjuncts(other.operands[0])
    return any(_opposite(part, rival) for part in _conjuncts(one.operands[0]) for rival in rivals)


def _inner(expr: Expr) -> Expr:
    return expr.operands[1] if _has_otherwise(expr) else expr


def _is(one: Expr, other: Expr) -> bool:
    """Whether two conditions are one, or are made in one way of conditions that are."""
    if one is other:
        return True
    if not (isinstance(one, Op) and isinstance(other, Op)) or one.operator not in ("or", "and", "not"):
        return False
    alike = one.operator == other.operator and len(one.operands) == len(other.operands)
    return alike and all(map(_is, one.operands, other.operands))


def _conjuncts(condition: Expr) -> tuple[Expr, ...]:
    return condition.operands if isinstance(condition, Op) and condition.operator == "and" else (condition,)


def _chosen(undecided: Expr, one: Expr, other: Expr) -> Expr:
    """Either of two values, with one "otherwise" at the most: two would each get a copy of what wins without the calls,
    and a program with many such calls would need exponentially many."""
    if not (_has_otherwise(one) and _has_otherwise(other)):
        return Op("if", (undecided, one, other), one.origin)
    (holds, value, _), (holds_too, rival, _) = one.operands, other.operands
    if same(holds, holds_too):
        return Op("if", (holds, Op("if", (undecided, value, rival), one.origin), Ref(_OTHERWISE)), one.origin)
    values = [
        Op("if", (condition, given, undecided), given.origin)
        for condition, given in ((holds, value), (holds_too, rival))
    ]
    any_holds = Op("or", (holds, holds_too))
    return Op("if", (any_holds, Op("if", (undecided, *values), one.origin), Ref(_OTHERWISE)), one.origin)


def _has_otherwise(expr: Expr) -> TypeGuard[Op]:
    """Whether an opened expression has conditions that the program's parameters decide."""
    return isinstance(expr, Op) and expr.operator == "if" and expr.operands[2] == Ref(_OTHERWISE)


_Known: TypeAlias = "tuple[tuple[Expr, bool], ...]"
"""Conditions that a path has decided, and how."""


def pruned(expr: Expr, known: _Known = ()) -> Expr:
    """The expression without branches that no path reaches: under `if c`, another `c` is true. Calls under the same few
    conditions would each double what the calls before them say."""
    if not (isinstance(expr, Op) and expr.operator == "if"):
        return expr
    condition, yes, no = expr.operands
    decided = _decided(condition, known)
    if decided is not None:
        return pruned(yes if decided else no, known)
    found = tuple(pruned(part, (*known, *_told(condition, holds))) for part, holds in ((yes, True), (no, False)))
    if all(new is old for new, old in zip(found, (yes, no), strict=True)):
        return simplified(expr)
    return simplified(Op("if", (condition, *found), expr.origin))


def _decided(condition: Expr, known: _Known) -> bool | None:
    """Whether a condition holds where others are known to hold or not; None if they do not say."""
    plain, holds = _plain(condition)
    whole = next((truth for one, truth in known if same(one, plain)), None)
    if whole is None and isinstance(plain, Op) and plain.operator in ("and", "or"):
        parts = [_decided(part, known) for part in plain.operands]
        ends = plain.operator == "or"
        whole = ends if ends in parts else None if None in parts else not ends
    return None if whole is None else whole == holds


def _told(condition: Expr, holds: bool) -> _Known:
    """What is known where a condition holds, or does not."""
    plain, positive = _plain(condition)
    truth = positive == holds
    if isinstance(plain, Op) and plain.operator == ("and" if truth else "or"):
        return ((plain, truth), *(one for part in plain.operands for one in _told(part, truth)))
    return ((plain, truth),)


def _plain(condition: Expr) -> tuple[Expr, bool]:
    """A condition without its negations, and whether it stands for itself: `x is not None` is `not (x is None)`."""
    holds = True
    while isinstance(condition, Op) and condition.operator in _NEGATED:
        whole = _NEGATED[condition.operator]
        condition = Op(whole, condition.operands, condition.origin) if whole else condition.operands[0]
        holds = not holds
    return condition, holds


_NEGATED = {"not": "", "is not": "is", "not in": "in", "!=": "=="}
"""Operators that negate another one, or their operand."""


def simplified(expr: Expr) -> Expr:
    """`x if not c else (y if c else z)` is `y if c else x`, and `x if c else x` is x."""
    if not (isinstance(expr, Op) and expr.operator == "if"):
        return expr
    condition, yes, no = expr.operands
    if isinstance(no, Op) and no.operator == "if" and _opposite(condition, no.operands[0]):
        return simplified(Op("if", (no.operands[0], no.operands[1], yes), expr.origin))
    return yes if same(yes, no) else expr


def _opposite(left: Expr, right: Expr) -> bool:
    """Whether one is the other's negation."""
    pairs = ((left, right), (right, left))
    return any(isinstance(one, Op) and one.operator == "not" and same(one.operands[0], other) for one, other in pairs)


def same(left: Expr, right: Expr, _compared: set[tuple[int, int]] | None = None) -> bool:
    """Whether two expressions say the same, wherever they are written. Two parts that stand in several places are
    compared once: the first pair that differs ends all."""
    if left is right:
        return True
    if isinstance(left, Op) and isinstance(right, Op):
        compared = set() if _compared is None else _compared
        if (id(left), id(right)) in compared:
            return True
        compared.add((id(left), id(right)))
        alike = left.operator == right.operator and len(left.operands) == len(right.operands)
        return alike and all(same(a, b, compared) for a, b in zip(left.operands, right.operands, strict=True))
    if isinstance(left, Const) and isinstance(right, Const):
        return type(left.value) is type(right.value) and left.value == right.value
    return isinstance(left, Ref) and isinstance(right, Ref) and left.name == right.name
