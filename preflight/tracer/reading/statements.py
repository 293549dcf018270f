"""Statements of a function of the project."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .attributes import set_attribute
from .limits import checked, iterate
from .stopped import Stopped
from .values import Context, Frame, Machine, Value, truth

NEXT, BREAK, CONTINUE, RETURN = "next", "break", "continue", "return"


def run(reader: Machine, body: list[ast.stmt], frame: Frame) -> tuple[str, Any]:
    """Follow statements. Returns how they end, and the value of a `return`."""
    for statement in body:
        how, value = execute(reader, statement, frame)
        if how != NEXT:
            return how, value
    return NEXT, None


def execute(reader: Machine, node: ast.stmt, frame: Frame) -> tuple[str, Any]:
    reader.budget.step()
    method = _STATEMENTS.get(type(node))
    try:
        if method is None:
            raise Stopped(f"{type(node).__name__} is not read")
        found = method(reader, node, frame)
    except Stopped as stopped:
        raise stopped.at(frame.scope.path, node.lineno) from None
    except RecursionError:
        raise Stopped("it is nested too deeply", frame.scope.path, node.lineno) from None
    except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        words = " ".join(str(error).split())[:160]
        raise Stopped(f"{type(error).__name__}: {words}", frame.scope.path, node.lineno) from None
    return found if isinstance(found, tuple) else (NEXT, None)


def assign(reader: Machine, target: ast.expr, value: Any, frame: Frame) -> None:
    """Give a value to a name, an attribute, an item or several of them."""
    if isinstance(target, ast.Name):
        frame.variables[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(reader, target, value, frame)
    elif isinstance(target, ast.Attribute):
        set_attribute(reader, reader.evaluate(target.value, frame), target.attr, value)
    elif isinstance(target, ast.Subscript):
        holder, key = reader.evaluate(target.value, frame), reader.evaluate(target.slice, frame)
        set_item(holder, key, value)
    else:
        raise Stopped("this assignment is not read")


def _unpack(reader: Machine, target: Any, value: Any, frame: Frame) -> None:
    items = list(iterate(value, reader.budget))
    starred = next((at for at, one in enumerate(target.elts) if isinstance(one, ast.Starred)), None)
    if starred is not None:
        behind = len(target.elts) - starred - 1
        if len(items) < len(target.elts) - 1:
            raise Stopped("there are too few items to unpack")
        items[starred : len(items) - behind] = [items[starred : len(items) - behind]]
    if len(items) != len(target.elts):
        raise Stopped(f"{len(target.elts)} names get {len(items)} items")
    for one, item in zip(target.elts, items):  # noqa: B905 - Python 3.9
        assign(reader, one.value if isinstance(one, ast.Starred) else one, item, frame)


def set_item(holder: Any, key: Any, value: Any) -> None:
    """`holder[key] = value`."""
    if isinstance(holder, torch.Tensor):
        if isinstance(key, torch.Tensor) and key.dtype is torch.bool:
            raise Stopped("which items are set depends on the numbers in a tensor")
        holder[key] = value
    elif isinstance(holder, (list, dict, torch.nn.ModuleDict, torch.nn.ModuleList)):
        if isinstance(key, (Value, torch.Tensor)) and not isinstance(holder, dict):
            raise Stopped("which item is set is not known")
        holder[key] = value
        checked(holder)
    else:
        raise Stopped("what has its item set is not known")


def _assign(reader: Machine, node: ast.Assign, frame: Frame) -> None:
    value = reader.evaluate(node.value, frame)
    for target in node.targets:
        assign(reader, target, value, frame)


def _annotated(reader: Machine, node: ast.AnnAssign, frame: Frame) -> None:
    if node.value is not None:
        assign(reader, node.target, reader.evaluate(node.value, frame), frame)


def _augmented(reader: Machine, node: ast.AugAssign, frame: Frame) -> None:
    load = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
    for one in ast.walk(load):
        ast.copy_location(one, node)
    operands = [reader.evaluate(load, frame)]
    operands.append(reader.evaluate(node.value, frame))
    if isinstance(operands[0], list) and isinstance(node.op, ast.Add):
        operands[0].extend(iterate(operands[1], reader.budget))
        made: Any = checked(operands[0])
    else:
        made = reader.operate(True, node.op, operands)
    operands.clear()
    assign(reader, node.target, made, frame)


def _expression(reader: Machine, node: ast.Expr, frame: Frame) -> None:
    if not isinstance(node.value, ast.Constant):
        reader.evaluate(node.value, frame)


def _return(reader: Machine, node: ast.Return, frame: Frame) -> tuple[str, Any]:
    return RETURN, None if node.value is None else reader.evaluate(node.value, frame)


def _if(reader: Machine, node: ast.If, frame: Frame) -> tuple[str, Any]:
    return run(reader, node.body if truth(reader.evaluate(node.test, frame)) else node.orelse, frame)


def _for(reader: Machine, node: ast.For, frame: Frame) -> tuple[str, Any]:
    for item in iterate(reader.evaluate(node.iter, frame), reader.budget):
        assign(reader, node.target, item, frame)
        del item
        how, value = run(reader, node.body, frame)
        if how == BREAK:
            return NEXT, None
        if how == RETURN:
            return how, value
    return run(reader, node.orelse, frame)


def _while(reader: Machine, node: ast.While, frame: Frame) -> tuple[str, Any]:
    while truth(reader.evaluate(node.test, frame)):
        reader.budget.step()
        how, value = run(reader, node.body, frame)
        if how == BREAK:
            return NEXT, None
        if how == RETURN:
            return how, value
    return run(reader, node.orelse, frame)


def _assert(reader: Machine, node: ast.Assert, frame: Frame) -> None:
    if not truth(reader.evaluate(node.test, frame)):
        raise Stopped("the assertion fails")


def _raise(reader: Machine, node: ast.Raise, frame: Frame) -> None:
    raise Stopped("the program raises an error here")


def _delete(reader: Machine, node: ast.Delete, frame: Frame) -> None:
    for one in node.targets:
        if not isinstance(one, ast.Name) or one.id not in frame.variables:
            raise Stopped("what is deleted is not known")
        del frame.variables[one.id]


def _define(reader: Machine, node: ast.FunctionDef, frame: Frame) -> None:
    frame.variables[node.name] = reader.defined(node, frame)


def _import(reader: Machine, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
    frame.variables.update(frame.scope.imported(node))


def _with(reader: Machine, node: ast.With, frame: Frame) -> tuple[str, Any]:
    with entered(reader, node, frame):
        return run(reader, node.body, frame)


@contextlib.contextmanager
def entered(reader: Machine, node: ast.With, frame: Frame) -> Iterator[None]:
    """What a `with` enters is on."""
    with contextlib.ExitStack() as stack:
        for one in node.items:
            made = reader.evaluate(one.context_expr, frame)
            if not isinstance(made, Context):
                raise Stopped("this `with` is not known")
            stack.enter_context(made.make())
            if one.optional_vars is not None:
                assign(reader, one.optional_vars, None, frame)
        yield


def _nothing(reader: Machine, node: ast.stmt, frame: Frame) -> None:
    return None


_STATEMENTS: dict[type, Any] = {
    ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.Expr: _expression,
    ast.Return: _return, ast.If: _if, ast.For: _for, ast.While: _while, ast.Assert: _assert, ast.Raise: _raise,
    ast.Delete: _delete, ast.FunctionDef: _define, ast.Import: _import, ast.ImportFrom: _import, ast.With: _with,
    ast.Pass: _nothing, ast.Break: lambda *_: (BREAK, None), ast.Continue: lambda *_: (CONTINUE, None),
}  # fmt: skip
