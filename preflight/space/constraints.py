"""The user's constraints: inequalities over settings of the project, read with `ast` and never run as code."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from preflight.space.monotone import Ranges, direction, ranges
from preflight.vocabulary.errors import SettingsError
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Const, Expr, Op, Origin, Ref, Unknown, Value, evaluate, names, substitute

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in",
}  # fmt: skip
_CALLS = frozenset({"min", "max", "abs", "int", "float", "round", "ceil", "floor", "len", "sum"})

LARGEST = 2**62
"""No setting is larger: the search for a bound ends here."""


class ConstraintError(SettingsError):
    """A constraint in the settings that cannot be read; the message tells the user why."""


class Constraint(Struct, frozen=True):
    """A named inequality over settings, axes or Job fields."""

    name: str
    text: str
    expr: Expr


def parse(name: str, text: str) -> Constraint:
    """Reads a constraint. Raises ConstraintError."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        expr = _expr(tree.body)
    except (SyntaxError, RecursionError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConstraintError(f"the constraint {name} = {text!r} cannot be read: {reason}") from None
    return Constraint(name, text, expr)


def parse_all(texts: Mapping[str, str]) -> tuple[Constraint, ...]:
    """All constraints of the settings. Raises ConstraintError for the first that cannot be read."""
    return tuple(parse(name, text) for name, text in texts.items())


def _expr(node: ast.expr) -> Expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
        return Const(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return Ref(_dotted(node))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return Op(_BINARY[type(node.op)], (_expr(node.left), _expr(node.right)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd, ast.Not)):
        inner = _expr(node.operand)
        if isinstance(node.op, ast.UAdd):
            return inner
        return Op("neg" if isinstance(node.op, ast.USub) else "not", (inner,))
    if isinstance(node, ast.BoolOp):
        return Op("and" if isinstance(node.op, ast.And) else "or", tuple(_expr(value) for value in node.values))
    if isinstance(node, ast.Compare):
        return _comparison(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return Op(node.func.id, tuple(_expr(argument) for argument in node.args))
    if isinstance(node, (ast.Tuple, ast.List)):
        return Op("tuple", tuple(_expr(item) for item in node.elts))
    raise ValueError(f"{ast.unparse(node)!r} is not a number, a setting, arithmetic or a comparison")


def _comparison(node: ast.Compare) -> Expr:
    sides = [_expr(side) for side in (node.left, *node.comparators)]
    pairs: list[Expr] = []
    for index, operator in enumerate(node.ops):
        if type(operator) not in _COMPARE:
            raise ValueError(f"{ast.unparse(node)!r} has a comparison that is not supported")
        pairs.append(Op(_COMPARE[type(operator)], (sides[index], sides[index + 1])))
    return pairs[0] if len(pairs) == 1 else Op("and", tuple(pairs))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError(f"{ast.unparse(node)!r} is not the name of a setting")


# --- in a box -----------------------------------------------------------------------------------------------------


def in_box(constraint: Constraint, box: Box, free: str | None = None) -> Expr:
    """The constraint over the box's axes (and `free`, a setting that stays a name)."""
    known: dict[str, Expr] = {}
    axes = {axis.name for axis in box.axes}
    for name in names(constraint.expr):
        if name == free or name in axes:
            continue
        if name in box.fixed:
            known[name] = Const(box.fixed[name])
        elif name in box.constants:
            known[name] = box.constants[name]
        elif name in box.fields:
            known[name] = box.fields[name].expr
    return _one_level(constraint.expr, known)


def _one_level(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """An expression with its names replaced once. The replacements are over axes, which may have the same names."""
    if isinstance(expr, Ref):
        return known.get(expr.name, expr)
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(_one_level(operand, known) for operand in expr.operands), expr.origin)
    return expr


def holds(expr: Expr, assignment: Mapping[str, Value]) -> bool | None:
    """Whether a constraint (over axes) holds at a point; None if that is unknown."""
    value = evaluate(expr, {name: Const(value) for name, value in assignment.items()})
    return None if isinstance(value, Unknown) else bool(value)


def truth_direction(expr: Expr, axis: str, known: Ranges) -> int | None:
    """+1: larger values of the axis keep it true. -1: smaller ones do. 0: it does not depend on it. None: unknown."""
    if axis not in names(expr):
        return 0
    if not isinstance(expr, Op):
        return None
    if expr.operator in ("and", "or"):
        found = {truth_direction(operand, axis, known) for operand in expr.operands} - {0}
        return found.pop() if len(found) == 1 else 0 if not found else None
    if expr.operator == "not":
        inner = truth_direction(expr.operands[0], axis, known)
        return None if inner is None else -inner
    if expr.operator in (">=", ">", "<=", "<"):
        difference = Op("-", expr.operands)
        way = direction(difference, axis, known)
        return way if way is None or expr.operator in (">=", ">") else -way
    return None


def worst_corner(expr: Expr, box: Box, except_for: str = "") -> dict[str, Value] | None:
    """The values of the axes, except for one, at which a constraint is hardest to meet; None if they are unknown."""
    known = ranges(box.axes)
    corner: dict[str, Value] = {}
    for axis in box.axes:
        if axis.name == except_for:
            continue
        way = truth_direction(expr, axis.name, known)
        if way == 0:
            continue
        if way is None or axis.name not in known:
            return None
        low, high = known[axis.name]
        corner[axis.name] = low if way > 0 else high
    return corner


class Limits(Struct, frozen=True):
    """The values that the constraints allow of one setting, both ends included; `by`: the constraints' texts."""

    low: int | None = None
    high: int | None = None
    by: tuple[str, ...] = ()


def limits(constraints: tuple[Constraint, ...], box: Box, field: str) -> Limits:
    """The limits of a Job field by the constraints, in every combination of a box; other settings do not change."""
    found = Limits()
    for constraint in constraints:
        for name in settings_of(box, field):
            if name not in set(names(constraint.expr)):
                continue
            expr = in_box(constraint, box, free=name)
            corner = worst_corner(expr, box, except_for=name)
            if corner is None:
                continue
            env: dict[str, Expr] = {axis: Const(value) for axis, value in corner.items()}
            low, high = _solve(substitute(expr, env), name)
            found = _tighter(found, low, high, constraint.text)
    return found


def settings_of(box: Box, field: str) -> Iterator[str]:
    """The names that a constraint may use for a Job field: its own, and those of the settings that it comes from."""
    yield field
    bound = box.fields.get(field)
    if bound is None:
        return
    if isinstance(bound.expr, Ref):
        yield bound.expr.name
    for name, expr in box.constants.items():
        if name != field and (expr == bound.expr or _same_place(expr, bound.origin)):
            yield name


def _same_place(expr: Expr, origin: Origin | None) -> bool:
    if origin is None or not isinstance(expr, Const) or expr.origin is None:
        return False
    return (expr.origin.path, expr.origin.span) == (origin.path, origin.span)


def _solve(expr: Expr, name: str) -> tuple[int | None, int | None]:
    """The smallest and the largest whole number for which the inequality holds; None for an end without limit."""

    def fine(value: int) -> bool:
        return holds(expr, {name: value}) is True

    way = truth_direction(expr, name, {name: (0, LARGEST)})
    if way == 1 and fine(LARGEST):
        return (None if fine(0) else _first(fine)), None
    if way == -1 and fine(0):
        return None, (None if fine(LARGEST) else _first(lambda value: not fine(value)) - 1)
    return None, None


def _first(test: Callable[[int], bool]) -> int:
    """The first whole number from 0 for which a test holds. It holds for all larger ones."""
    return bisect_left(range(LARGEST), True, key=test)


def _tighter(found: Limits, low: int | None, high: int | None, text: str) -> Limits:
    if low is None and high is None:
        return found
    lows = [value for value in (found.low, low) if value is not None]
    highs = [value for value in (found.high, high) if value is not None]
    return Limits(max(lows, default=None), min(highs, default=None), (*found.by, text))


class Violation(Struct, frozen=True):
    """A constraint that combinations of a box break (`everywhere`: all of them), and the values of one of these."""

    constraint: Constraint
    assignment: Mapping[str, Value]
    everywhere: bool
    values: Mapping[str, Value]
    """The values of the constraint's names there."""


def violations(constraints: tuple[Constraint, ...], box: Box) -> Iterator[Violation]:
    """Constraints that do not hold where they are hardest to meet."""
    known = ranges(box.axes)
    for constraint in constraints:
        expr = in_box(constraint, box)
        corner = worst_corner(expr, box)
        if corner is None or holds(expr, corner) is not False:
            continue
        opposite = {axis: next((end for end in known[axis] if end != value), value) for axis, value in corner.items()}
        env = {axis: Const(value) for axis, value in corner.items()}
        values = {name: evaluate(in_box(Constraint("", "", Ref(name)), box), env) for name in names(constraint.expr)}
        yield Violation(constraint, corner, holds(expr, opposite) is False, values)
