"""Interpretation of expressions."""

from __future__ import annotations

import ast
import builtins as python_builtins
from collections.abc import Callable

from preflight.python.access import assign, attribute, item
from preflight.python.arrays import array_of, noted, operation, subscript
from preflight.python.calls import evaluate_call, is_rank
from preflight.python.comprehensions import comprehension
from preflight.python.evaluator import Evaluator
from preflight.python.files import join_path
from preflight.python.functions import parameter_defaults
from preflight.python.imports import resolve
from preflight.python.known_kinds import of_file_names
from preflight.python.objects import (
    Abstract,
    Attribute,
    ClassValue,
    Container,
    Either,
    External,
    Frame,
    FunctionValue,
    Instance,
    Key,
    Lazy,
    ModuleValue,
    alternatives,
    from_value,
    is_expr,
    is_object,
    is_plain_key,
    open_container,
    openness,
    sequence,
    to_expr,
)
from preflight.python.spread import copy_items, lay_over, may_hold_more
from preflight.python.tables import computed
from preflight.vocabulary.budgets import MADE_ITEMS, PROGRAM_DEPTH, OverBudget
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, unknown

BUILTINS = frozenset(dir(python_builtins))


def evaluate(ev: Evaluator, node: ast.expr, frame: Frame) -> Abstract:
    """The abstract value of an expression."""
    ev.step()
    handler = _HANDLERS.get(type(node))
    if handler is None or ev.depth > PROGRAM_DEPTH:
        if handler is not None and any(isinstance(one, ast.Call) for one in ast.walk(node)):
            raise OverBudget(PROGRAM_DEPTH)  # what it calls may set anything
        return unknown("this expression is not evaluated statically", frame.module.origin(node))
    ev.depth += 1
    value = handler(ev, node, frame)
    ev.depth -= 1
    return value


# --- leaves -----------------------------------------------------------------------------------------------------------


def _constant(ev: Evaluator, node: ast.Constant, frame: Frame) -> Abstract:
    value = node.value
    origin = frame.module.origin(node)
    if value is None or isinstance(value, (bool, int, float, str)):
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
            return unknown("the number has more than 256 bits", origin, Cause.budget)
        return Const(value, origin)
    return unknown("no setting is a constant of this type", origin)


def _name(ev: Evaluator, node: ast.Name, frame: Frame) -> Abstract:
    name = node.id
    if name in frame.redirected:
        found = frame.redirected[name].get(name)
        if found is not None:
            return resolve(ev, found)
    scope: Frame | None = frame
    while scope is not None:
        if name in scope.variables:
            value = scope.variables[name]
            return resolve(ev, value) if isinstance(value, (Lazy, Either)) else value
        scope = scope.parent
    if name in frame.globals_:
        return resolve(ev, frame.globals_[name])
    if name in BUILTINS:
        return External(name, frame.module.origin(node))
    star = frame.globals_.get("*")
    if isinstance(star, External):
        return External(f"{star.name}.{name}", frame.module.origin(node))
    return unknown(f"{name} is not defined in the files read", frame.module.origin(node), Cause.out_of_project)


# --- attributes and items ---------------------------------------------------------------------------------------------


def _attribute(ev: Evaluator, node: ast.Attribute, frame: Frame) -> Abstract:
    return attribute(ev, ev.evaluate(node.value, frame), node.attr, node, frame)


def _subscript(ev: Evaluator, node: ast.Subscript, frame: Frame) -> Abstract:
    value = ev.evaluate(node.value, frame)
    array = array_of(value)
    if array is None and isinstance(value, Either) and all(array_of(one) is not None for one in alternatives(value)):
        return ev.on_both_sides(value, lambda one: _part(ev, one, node, frame))  # of different sizes
    if array is not None:
        return _part(ev, value, node, frame)
    if isinstance(node.slice, ast.Slice):
        return _slice(ev, value, node.slice, frame)
    return item(ev, value, ev.evaluate(node.slice, frame), node, frame)


def _part(ev: Evaluator, value: Abstract, node: ast.Subscript, frame: Frame) -> Abstract:
    """A part of an array."""
    array = array_of(value)
    part = subscript(ev, value, array, node, frame) if array is not None else None
    return part if part is not None else Attribute(value, "[]", frame.module.origin(node))


def _slice(ev: Evaluator, value: Abstract, node: ast.Slice, frame: Frame) -> Abstract:
    bounds: list[int | None] = []
    for part in (node.lower, node.upper, node.step):
        found = None if part is None else ev.value_of(ev.expression(part, frame))
        if part is not None and found is not None and (not isinstance(found, int) or isinstance(found, bool)):
            place = node.lower or node.upper or part
            if of_file_names(value):
                return value
            return unknown("the bounds of the slice are not known", frame.module.origin(place))
        bounds.append(found if isinstance(found, int) else None)
    if bounds[2] == 0:
        return unknown("the step of the slice is 0", cause=Cause.invalid)
    cut = slice(*bounds)
    if isinstance(value, Container) and value.is_sequence and not value.open:
        return sequence(list(value.items.values())[cut], value.kind, value.origin)
    if is_expr(value):
        whole = ev.value_of(to_expr(value))
        if isinstance(whole, (str, tuple)):
            return from_value(whole[cut], to_expr(value).origin)
    if node.upper is not None and bounds[0] is None and bounds[2] is None and (bounds[1] or 0) != 0:
        return Attribute(value, f"[:{bounds[1]}]", frame.module.origin(node.upper))
    return Attribute(value, "[:]")


# --- operations -------------------------------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


def _binary(ev: Evaluator, node: ast.BinOp, frame: Frame) -> Abstract:
    left, right = ev.evaluate(node.left, frame), ev.evaluate(node.right, frame)
    return binary(ev, node, left, right, frame)


def binary(ev: Evaluator, node: ast.BinOp, left: Abstract, right: Abstract, frame: Frame) -> Abstract:
    """An arithmetic operation on any values."""
    origin = frame.module.origin(node)
    made = operation(node, left, right, origin) or computed(left, right)
    if made is not None:
        noted(ev, made, (array_of(left), array_of(right)), keeps=not isinstance(node.op, (ast.Add, ast.Sub)))
        return made
    if isinstance(left, Container) and isinstance(right, Container):
        if isinstance(node.op, ast.Add) and left.is_sequence and right.is_sequence:
            both = [*left.items.values(), *right.items.values()]
            if len(both) > MADE_ITEMS:
                return open_container(left.kind, origin)
            return sequence(both, left.kind, origin, left.open or right.open)
        if isinstance(node.op, ast.BitOr):
            before = lay_over(left.items, origin) if may_hold_more(right) else left.items
            return Container(left.kind, {**before, **right.items}, origin, openness(left.open or right.open))
    if isinstance(node.op, ast.Mult) and isinstance(left, Container) and is_expr(right):
        times = ev.value_of(to_expr(right))
        if isinstance(times, int) and 0 <= times * len(left.items) <= MADE_ITEMS:
            return sequence(list(left.items.values()) * times, left.kind, origin)
        return open_container(left.kind, origin)
    if isinstance(node.op, ast.Div) and isinstance(left, Instance) and left.made_by == "pathlib.Path":
        return join_path(ev, left, right)
    operator = _BINARY.get(type(node.op))
    if operator is None:
        return unknown("this operation is not evaluated statically", origin)
    if operator == "%" and isinstance(left, Const) and isinstance(left.value, str):
        return unknown("formatted text is not evaluated statically", origin)
    return ev.op(operator, (to_expr(left), to_expr(right)), origin)


def _unary(ev: Evaluator, node: ast.UnaryOp, frame: Frame) -> Abstract:
    value = ev.evaluate(node.operand, frame)
    origin = frame.module.origin(node)
    if isinstance(node.op, ast.Not):
        known = ev.constant_truth(value)
        return ev.op("not", (to_expr(value),), origin) if known is None else Const(not known, origin)
    if isinstance(node.op, ast.USub):
        return ev.op("neg", (to_expr(value),), origin)
    return (
        value if isinstance(node.op, ast.UAdd) else unknown("operations on bits are not evaluated statically", origin)
    )


def _boolean(ev: Evaluator, node: ast.BoolOp, frame: Frame) -> Abstract:
    operator = "and" if isinstance(node.op, ast.And) else "or"
    values: list[Abstract] = []
    for operand in node.values:
        value = ev.evaluate(operand, frame)
        known = ev.constant_truth(value)
        values.append(value)
        if known is not None and known == (operator == "or"):
            break  # short circuit: what follows is not evaluated
    undecided = [v for v in values[:-1] if ev.constant_truth(v) is None]
    if not undecided:
        return values[-1]
    return ev.op(operator, tuple(to_expr(v) for v in (*undecided, values[-1])), frame.module.origin(node))


def _compare(ev: Evaluator, node: ast.Compare, frame: Frame) -> Abstract:
    origin = frame.module.origin(node)
    left = ev.evaluate(node.left, frame)
    parts: list[Expr] = []
    for operator, right_node in zip(node.ops, node.comparators, strict=True):
        right = ev.evaluate(right_node, frame)
        if len(node.ops) == 1 and (made := operation(node, left, right, origin)) is not None:
            return made
        parts.append(_comparison(ev, _COMPARE[type(operator)], left, right, frame, node))
        left = right
    return parts[0] if len(parts) == 1 else ev.op("and", tuple(parts), origin)


def _comparison(ev: Evaluator, operator: str, left: Abstract, right: Abstract, frame: Frame, node: ast.Compare) -> Expr:
    origin = frame.module.origin(node)
    if operator in ("is", "is not", "==", "!=") and isinstance(right, Const) and right.value is None:
        certain = (Container, FunctionValue, ClassValue, ModuleValue)
        if isinstance(left, certain) or (isinstance(left, Instance) and is_object(left)) or is_rank(left):
            return Const(operator in ("is not", "!="), origin)  # an object is not None
        if isinstance(left, (External, Attribute, Instance)):
            return unknown("whether a library returns None is not known", origin, Cause.out_of_project)
    if operator in ("in", "not in") and isinstance(right, Container) and not right.is_sequence and not right.open:
        key = to_expr(left)
        return ev.op(operator, (key, Op("tuple", tuple(Const(_plain(k)) for k in right.items))), origin)
    if operator in ("in", "not in") and isinstance(right, External):
        return unknown("the items of a library's object are not known", origin, Cause.out_of_project)
    return ev.op(operator, (to_expr(left), to_expr(right)), origin)


def _plain(key: Key) -> str | int | float | bool | None:
    return str(key) if isinstance(key, tuple) else key


def _conditional(ev: Evaluator, node: ast.IfExp, frame: Frame) -> Abstract:
    condition = ev.evaluate(node.test, frame)
    plain = not any(isinstance(n, ast.Call) for side in (node.body, node.orelse) for n in ast.walk(side))
    known = ev.constant_truth(condition) if plain else ev.truth(condition)  # plain values keep their condition
    if known is not None:
        return ev.evaluate(node.body if known else node.orelse, frame)
    test = to_expr(condition)
    ev.position.conditions.append(test)
    then = ev.evaluate(node.body, frame)
    ev.position.conditions[-1] = Op("not", (test,))
    otherwise = ev.evaluate(node.orelse, frame)
    ev.position.conditions.pop()
    return ev.join(test, then, otherwise)


# --- displays and comprehensions --------------------------------------------------------------------------------------


def _sequence(ev: Evaluator, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Abstract:
    kind = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}[type(node)]
    made: list[Abstract] = []
    open_ = False
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items = ev.iterate(ev.evaluate(element.value, frame))
            open_ = open_ or items is None
            made += items or []
        else:
            made.append(ev.evaluate(element, frame))
    return sequence(made, kind, frame.module.origin(node), open_)


def _dict(ev: Evaluator, node: ast.Dict, frame: Frame) -> Abstract:
    items: dict[Key, Abstract] = {}
    open_ = False
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        value = ev.evaluate(value_node, frame)
        if key_node is None:
            if may_hold_more(value):
                items = lay_over(items, frame.module.origin(value_node))
            open_ = not copy_items(value, items) or open_
            continue
        key = ev.value_of(ev.expression(key_node, frame))
        if is_plain_key(key):
            items[key] = value
        else:
            open_ = True
    return Container("dict", items, frame.module.origin(node), openness(open_))


def _joined(ev: Evaluator, node: ast.JoinedStr, frame: Frame) -> Abstract:
    parts: list[Expr] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            expr = ev.expression(part.value, frame)
            formatted = part.format_spec is not None or part.conversion != -1
            parts.append(unknown("formatted text is not evaluated statically") if formatted else expr)
        else:
            parts.append(ev.expression(part, frame))
    origin = frame.module.origin(node, editable=False)
    values = [ev.value_of(part) for part in parts]
    if all(isinstance(part, Const) for part in parts) and not any(isinstance(v, Unknown) for v in values):
        return Const("".join(str(v) for v in values), origin)
    return ev.op("concat", tuple(parts), origin)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _lambda(ev: Evaluator, node: ast.Lambda, frame: Frame) -> Abstract:
    return FunctionValue("<lambda>", node, frame.module, frame, parameter_defaults(ev, node.args, frame))


def _walrus(ev: Evaluator, node: ast.NamedExpr, frame: Frame) -> Abstract:
    value = ev.evaluate(node.value, frame)
    assign(ev, node.target, value, frame)
    return value


def _inner(ev: Evaluator, node: ast.Await | ast.YieldFrom | ast.Starred, frame: Frame) -> Abstract:
    return ev.evaluate(node.value, frame)


def _yield(ev: Evaluator, node: ast.Yield, frame: Frame) -> Abstract:
    if node.value is not None:
        ev.yielded.setdefault(ev.position.functions[-1] if ev.position.functions else 0, []).append(
            ev.evaluate(node.value, frame)
        )
    return unknown("what is sent to the generator is not known", frame.module.origin(node), Cause.run_time)


_HANDLERS: dict[type[ast.expr], Callable[..., Abstract]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript,
    ast.Call: evaluate_call, ast.BinOp: _binary, ast.UnaryOp: _unary, ast.BoolOp: _boolean, ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.List: _sequence, ast.Tuple: _sequence, ast.Set: _sequence, ast.Dict: _dict, ast.ListComp: comprehension,
    ast.SetComp: comprehension, ast.GeneratorExp: comprehension, ast.DictComp: comprehension,
    ast.JoinedStr: _joined, ast.Lambda: _lambda, ast.NamedExpr: _walrus, ast.Await: _inner, ast.Starred: _inner,
    ast.YieldFrom: _inner, ast.Yield: _yield,
}  # fmt: skip
