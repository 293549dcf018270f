"""Calls: of the project's functions, and of what the tables of `allowed` name."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import nn

from . import builtins_, libraries
from .attributes import attribute, of_class
from .classes import make_object
from .limits import checked, pieces
from .stopped import DEPTH, Stopped
from .values import Bound, Frame, Function, Library, Machine, Native, Object, OwnClass, Partial, Super

__all__ = ["builtin", "call", "item", "parent_of"]

builtin = builtins_.builtin


def call(reader: Machine, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call. Raises Stopped for what no table names. `args` is empty afterwards: like Python, a caller
    does not keep what it gave."""
    reader.budget.step()
    if isinstance(callee, Bound):
        args.insert(0, callee.holder)
        return _function(reader, callee.function, args, kwargs)
    if isinstance(callee, Function):
        return _function(reader, callee, args, kwargs)
    if isinstance(callee, OwnClass):
        return make_object(reader, callee, args, kwargs)
    if isinstance(callee, nn.Module):
        return checked_all(callee(*args, **kwargs))
    if isinstance(callee, Native):
        return _native(reader, callee, args, kwargs)
    if isinstance(callee, Partial):
        return call(reader, callee.inner, [*callee.args, *args], {**callee.kwargs, **kwargs})
    if isinstance(callee, Library):
        if callee.name.startswith("builtins."):
            return builtins_.call(reader, callee.name[9:], args, kwargs)
        return checked_all(libraries.call(reader, callee.name, args, kwargs))
    if isinstance(callee, Object) and callee.cls is not None:
        method = of_class(reader, callee.cls, "__call__", callee)
        if isinstance(method, Bound):
            return call(reader, method, args, kwargs)
    raise Stopped("what is called is not known")


def checked_all(value: Any) -> Any:
    for one in value if isinstance(value, (tuple, list)) else (value,):
        checked(one)
    return value


def _function(reader: Machine, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
    budget, node = reader.budget, function.node
    if budget.depth >= DEPTH:
        raise Stopped(f"calls are more than {DEPTH} deep")
    frame = Frame(function.scope, function.parent, function.owner)
    _bind(function, args, kwargs, frame)
    args.clear()
    kwargs.clear()
    if isinstance(node, ast.FunctionDef) and _is_generator(node):
        raise Stopped("a generator of the project is not read", function.scope.path, node.lineno)
    budget.depth += 1
    try:
        if isinstance(node, ast.Lambda):
            return reader.evaluate(node.body, frame)
        if function.without_gradients:
            with torch.no_grad():
                return reader.run(node.body, frame)[1]
        return reader.run(node.body, frame)[1]
    finally:
        budget.depth -= 1
        frame.given = {}
        frame.left()


def _is_generator(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)) for one in ast.walk(node))


def _bind(function: Function, args: list[Any], kwargs: dict[str, Any], frame: Frame) -> None:
    """Arguments to parameters, as Python does it."""
    a = function.node.args
    named = [*a.posonlyargs, *a.args]
    into, left = frame.variables, dict(kwargs)
    for parameter, value in zip(named, args):  # noqa: B905 - Python 3.9
        into[parameter.arg] = value
        if parameter.arg in left:
            raise Stopped(f"{parameter.arg} is given twice")
    if a.vararg is not None:
        into[a.vararg.arg] = tuple(args[len(named) :])
    elif len(args) > len(named):
        raise Stopped("a function gets too many arguments")
    defaults, named_defaults = function.defaults
    behind = len(named) - len(defaults)
    for at, parameter in enumerate(named[len(args) :], len(args)):
        if parameter.arg in left:
            into[parameter.arg] = left.pop(parameter.arg)
        elif at >= behind:
            into[parameter.arg] = defaults[at - behind]
        else:
            raise Stopped(f"a function gets no {parameter.arg}")
    for parameter, default, node in zip(a.kwonlyargs, named_defaults, a.kw_defaults):  # noqa: B905 - Python 3.9
        if parameter.arg in left:
            into[parameter.arg] = left.pop(parameter.arg)
        elif node is not None:
            into[parameter.arg] = default
        else:
            raise Stopped(f"a function gets no {parameter.arg}")
    if a.kwarg is not None:
        into[a.kwarg.arg] = left
    elif left:
        raise Stopped(f"a function gets {next(iter(left))}, which it does not have")
    if named and (named[0].arg == "self" or function.owner is not None):
        frame.self_value = into.get(named[0].arg)
    if isinstance(function.node, ast.FunctionDef) and function.node.name == "__init__":
        frame.given = {k: v for k, v in into.items() if k != named[0].arg}


def parent_of(reader: Machine, node: ast.Call, frame: Frame) -> Super:
    """`super()` and `super(Net, self)`."""
    if node.args:
        owner, holder = (reader.evaluate(one, frame) for one in node.args[:2])
    else:
        owner, holder = frame.owner, frame.self_value
    if not isinstance(owner, OwnClass) or not isinstance(holder, (nn.Module, Object)):
        raise Stopped("what super() stands for is not known")
    return Super(owner, holder)


def _native(reader: Machine, callee: Native, args: list[Any], kwargs: dict[str, Any]) -> Any:
    kind, _, name = callee.name.partition(".")
    if kind == "str" and name == "join":
        return checked(callee.function([one for one in args[0] if isinstance(one, str)]))
    if not callee.keeps:
        args[:] = [libraries.real(reader, one) for one in args]
        kwargs = {key: libraries.real(reader, one) for key, one in kwargs.items()}
    if name in ("cuda", "cpu") and kind == "module":
        return callee.function.__self__
    if name == "to":
        return _moved(callee, args, kwargs)
    if kind == "tensor":
        if name in ("split", "chunk", "unbind"):
            dim = kwargs.get(
                "dim", args[1] if len(args) > 1 and name != "unbind" else args[0] if name == "unbind" and args else 0
            )
            many = args[0] if args and name != "unbind" else kwargs.get("split_size", kwargs.get("chunks", 1))
            pieces(callee.function.__self__, 1 if name == "unbind" else many, dim, name != "chunk")
        if name == "type" or (name == "any" and not args and not kwargs):
            kwargs.pop("non_blocking", None)
        kwargs = libraries.on_meta(kwargs)
    found = callee.function(*args, **kwargs)
    return checked_all(found) if isinstance(found, (tuple, list)) else checked(found)


def _moved(callee: Native, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`x.to(device)` of what is on the device already, `x.to(dtype)`, `x.to(other)`."""
    given = [*args, *kwargs.values()]
    holder = callee.function.__self__
    dtype = next((one for one in given if isinstance(one, torch.dtype)), None)
    other = next((one for one in given if isinstance(one, torch.Tensor)), None)
    kinds = (torch.dtype, torch.Tensor, torch.device, torch.memory_format, str, bool, int, type(None))
    if not all(isinstance(one, kinds) for one in given):
        raise Stopped("what .to() gets is not known")
    if isinstance(holder, nn.Module) and dtype is not None:
        raise Stopped("a module is cast within the program")
    if other is not None:
        dtype = other.dtype
    return holder if dtype is None or isinstance(holder, nn.Module) else callee.function(dtype)


def item(reader: Machine, holder: Any, key: Any) -> Any:
    """`holder[key]`."""
    if isinstance(holder, torch.Tensor):
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8):
                raise Stopped("which items are taken depends on the numbers in a tensor")
            if not isinstance(one, (int, slice, torch.Tensor, type(None), type(Ellipsis), list, range)):
                raise Stopped("which items are taken is not known")
        return holder[key]
    if isinstance(key, torch.Tensor):
        raise Stopped("which item is taken depends on the numbers in a tensor")
    if isinstance(holder, (list, tuple, dict, str, range)):
        return holder[key]
    if isinstance(holder, (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList)):
        if not isinstance(key, (int, str, slice)):
            raise Stopped("which item is taken is not known")
        return holder[key]
    if isinstance(holder, Library) and holder.name.startswith(
        ("typing.", "builtins.", "torch.Tensor", "collections.abc")
    ):
        return holder  # Optional[int], list[int]
    if isinstance(holder, Object) and holder.cls is None and isinstance(key, str):
        return attribute(reader, holder, key)
    raise Stopped("the items of this object are not known")
