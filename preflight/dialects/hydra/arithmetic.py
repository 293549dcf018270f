"""Resolvers that only compute, as expressions: `${eval:'${a} // 2'}`, and the custom ones that many projects register.

An `eval` resolver may have any Python code. Only arithmetic is read, and nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from preflight.vocabulary.budgets import ARITHMETIC_CHARACTERS
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, unknown

EXPRESSIONS = frozenset({"eval", "calc", "expr", "math", "arith", "calculate", "compute"})
"""Names under which projects register Python's `eval` for arithmetic."""

_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_CALLS = frozenset({"int", "float", "round", "min", "max", "abs", "len", "sum", "str", "bool", "ceil", "floor"})
_HOLE = "_hole_{}_"


def arithmetic(arguments: Sequence[Expr], origin: Origin | None) -> Expr:
    """The expression of an `eval` resolver's text, with resolved interpolations."""
    holes: dict[str, Expr] = {}
    text = ",".join(_written(argument, holes) for argument in arguments)
    if len(text) > ARITHMETIC_CHARACTERS:
        return unknown("the expression is too long", origin, Cause.budget)
    for hole in holes.values():
        if isinstance(hole, Const) and isinstance(hole.value, Unknown):
            return hole
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unknown(f"{text[:60]!r} is not arithmetic", origin)
    found = _expression(tree.body, holes, origin)
    return found if found is not None else unknown("its expression is Python code, which is not evaluated", origin)


def _written(expr: Expr, holes: dict[str, Expr]) -> str:
    """The text of an argument. Anything that is not a constant becomes a name in it."""
    if isinstance(expr, Op) and expr.operator == "concat":
        return "".join(_written(operand, holes) for operand in expr.operands)
    if isinstance(expr, Const) and isinstance(expr.value, str):
        return expr.value
    if isinstance(expr, Const) and isinstance(expr.value, (bool, int, float)):
        return f"({expr.value!r})" if not isinstance(expr.value, bool) and expr.value < 0 else repr(expr.value)
    name = _HOLE.format(len(holes))
    holes[name] = expr
    return name


def _expression(node: ast.expr, holes: Mapping[str, Expr], origin: Origin | None) -> Expr | None:
    """A syntax tree of arithmetic as an expression, None if it has anything else."""

    def inner(*nodes: ast.expr) -> tuple[Expr, ...] | None:
        found = [_expression(one, holes, origin) for one in nodes]
        return None if None in found else tuple(one for one in found if one is not None)

    operator, operands = "", None
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return Const(node.value, origin)
    if isinstance(node, ast.Name):
        return holes.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        operator, operands = _BINARY[type(node.op)], inner(node.left, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        operator, operands = ("neg" if isinstance(node.op, ast.USub) else "+"), inner(node.operand)
        if operator == "+" and operands is not None:
            return operands[0]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        operator, operands = _COMPARE[type(node.ops[0])], inner(node.left, node.comparators[0])
    elif isinstance(node, ast.IfExp):
        operator, operands = "if", inner(node.test, node.body, node.orelse)
    elif isinstance(node, ast.Call) and not node.keywords:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        module = getattr(node.func, "value", None)
        if name in _CALLS and (module is None or (isinstance(module, ast.Name) and module.id in ("math", "np"))):
            operator, operands = name, inner(*node.args)
    elif isinstance(node, (ast.List, ast.Tuple)):
        operator, operands = "tuple", inner(*node.elts)
    return Op(operator, operands, origin) if operands is not None and operator else None


def _operation(operator: str, count: int | None = None) -> Callable[[Sequence[Expr], Origin | None], Expr]:
    def make(arguments: Sequence[Expr], origin: Origin | None) -> Expr:
        if count is not None and len(arguments) != count:
            return unknown(f"a resolver is called with {len(arguments)} arguments", origin, Cause.invalid)
        if count is None and operator in ("+", "*"):
            total = arguments[0]
            for argument in arguments[1:]:
                total = Op(operator, (total, argument), origin)
            return total
        return Op(operator, tuple(arguments), origin)

    return make


def _div_up(arguments: Sequence[Expr], origin: Origin | None) -> Expr:
    """Division rounded up: -(-a // b)."""
    if len(arguments) != 2:
        return unknown("div_up takes two numbers", origin, Cause.invalid)
    return Op("neg", (Op("//", (Op("neg", (arguments[0],)), arguments[1])),), origin)


FUNCTIONS: Mapping[str, Callable[[Sequence[Expr], Origin | None], Expr]] = {
    "div_up": _div_up, "ceil_div": _div_up, "cdiv": _div_up,
    "add": _operation("+"), "plus": _operation("+"), "mul": _operation("*"), "mult": _operation("*"),
    "multiply": _operation("*"), "prod": _operation("*"), "times": _operation("*"),
    "sub": _operation("-", 2), "subtract": _operation("-", 2), "minus": _operation("-", 2),
    "div": _operation("/", 2), "divide": _operation("/", 2), "truediv": _operation("/", 2),
    "floordiv": _operation("//", 2), "floor_div": _operation("//", 2), "int_div": _operation("//", 2),
    "idiv": _operation("//", 2), "mod": _operation("%", 2), "pow": _operation("**", 2),
    "min": _operation("min"), "max": _operation("max"), "len": _operation("len", 1), "int": _operation("int", 1),
    "float": _operation("float", 1), "str": _operation("str", 1), "round": _operation("round", 1),
    "eq": _operation("==", 2), "equal": _operation("==", 2), "not": _operation("not", 1),
    "if": _operation("if", 3), "ifelse": _operation("if", 3), "if_else": _operation("if", 3),
}  # fmt: skip
"""Custom resolvers whose names are unambiguous."""
