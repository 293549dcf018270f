"""Functions of the project: definitions, calls with abstract arguments, and return values."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from preflight.python.access import is_class_method
from preflight.python.evaluator import Evaluator
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    Container,
    External,
    Frame,
    FunctionValue,
    Instance,
    is_expr,
    made_by,
    open_container,
    openness,
    sequence,
    to_expr,
)
from preflight.python.spread import laid_over
from preflight.vocabulary.budgets import NESTED_CALLS, OverBudget
from preflight.vocabulary.values import Cause, Const, unknown

_OF_PROPERTY = ("setter", "deleter")
"""Decorators of a property that make the same property with one more function."""
MAX_RECURSION = 2
"""How many calls of one function may be nested."""


def parameter_defaults(ev: Evaluator, arguments: ast.arguments, frame: Frame) -> dict[str, Abstract]:
    """Default values, evaluated where the function is defined."""
    positional = [*arguments.posonlyargs, *arguments.args]
    made = {
        parameter.arg: ev.evaluate(default, frame)
        for parameter, default in zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        )
    }
    for parameter, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            made[parameter.arg] = ev.evaluate(keyword_default, frame)
    return made


def make_function(ev: Evaluator, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> Abstract:
    """The value of a `def`. Unknown decorators do not change the function."""
    decorators = tuple(ev.evaluate(decorator, frame) for decorator in node.decorator_list)
    name = f"{frame.owner.name}.{node.name}" if frame.owner is not None else node.name
    closure = frame.parent if frame.owner is not None and frame.parent is not None else frame
    made = FunctionValue(
        name, node, frame.module, closure, parameter_defaults(ev, node.args, frame), decorators, frame.owner
    )
    for decorator in decorators:
        own = decorator.receiver if isinstance(decorator, Attribute) else None
        if isinstance(decorator, Attribute) and isinstance(own, FunctionValue) and decorator.name in _OF_PROPERTY:
            return replace(own, setter=made) if decorator.name == "setter" else own
    for decorator in reversed(decorators):
        if isinstance(decorator, FunctionValue) and id(decorator.node) not in ev.position.functions:
            wrapped = invoke(ev, decorator, (made,), {})
            if isinstance(wrapped, FunctionValue) and wrapped.node is not node:
                return wrapped
    return made


def invoke(
    ev: Evaluator,
    function: FunctionValue,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    record: CallRecord | None = None,
    more: bool = False,
) -> Abstract:
    """The return value of a function of the project for these arguments. `more`: other arguments than these may be
    given, so no parameter surely has its default."""
    for decorator in function.decorators:
        name = made_by(decorator)
        hook = ev.hooks.get(f"@{name}") if name else None
        if hook is not None:
            call = record or _unwritten_call(function, args, kwargs, ev)
            given = hook(replace(call, callee=function, receiver_object=decorator), ev)
            if isinstance(given, Container):  # the arguments that the decorator calls it with
                args = tuple(given.items[key] for key in given.items if isinstance(key, int))
                kwargs = {key: value for key, value in given.items.items() if isinstance(key, str)}
    args, kwargs = (*function.bound_args, *args), {**function.bound_kwargs, **kwargs}
    if function.self_value is not None and not _is_static(function):
        args = (_first_argument(function, function.self_value), *args)
    if len(ev.position.functions) > NESTED_CALLS:
        raise OverBudget(NESTED_CALLS)
    if ev.position.functions.count(id(function.node)) >= MAX_RECURSION:
        return unknown("the function calls itself", cause=Cause.budget)
    frame = Frame({}, function.module, function.frame, function.name, [], function.frame.globals_)
    frame.owner, frame.self_value = None, function.self_value or (args[0] if args else None)
    frame.owner_class = function.owner
    bind_parameters(function, args, kwargs, frame, more)
    return _run_body(ev, function, frame, record)


def _unwritten_call(
    function: FunctionValue, args: tuple[Abstract, ...], kwargs: dict[str, Abstract], ev: Evaluator
) -> CallRecord:
    """A record of a call that the program's text does not make."""
    node = ast.copy_location(ast.Name(function.name), function.node)
    return CallRecord(
        name=f"{function.module.name}.{function.name}",
        receiver=None,
        method=function.name,
        args=tuple(to_expr(a) for a in args),
        kwargs={k: to_expr(v) for k, v in kwargs.items()},
        keyword_origins={},
        path=function.module.path,
        node=node,
        origin=function.module.origin(function.node, editable=False),
        reached=ev.reached,
        arguments=args,
        keywords=kwargs,
    )


def _run_body(ev: Evaluator, function: FunctionValue, frame: Frame, caller: CallRecord | None) -> Abstract:
    position = ev.position
    ev.interpreted.setdefault(id(function.node), {})[id(function.frame)] = function.frame
    position.functions.append(id(function.node))
    position.callers.append(caller)
    position.entered_with.append(len(position.conditions))
    contexts, exits = len(position.contexts), position.exits
    position.exits = []
    position.contexts += [d.record for d in function.decorators if isinstance(d, Instance) and d.record is not None]
    try:
        if isinstance(function.node, ast.Lambda):
            return ev.evaluate(function.node.body, frame)
        flow = ev.execute(function.node.body, frame)
    finally:
        position.functions.pop()
        position.callers.pop()
        del position.conditions[position.entered_with.pop() :]
        del position.contexts[contexts:]
        position.exits = exits
    if function.module.is_generator(function.node):
        return open_container()
    return _returned(ev, frame, flow)


def _returned(ev: Evaluator, frame: Frame, flow: str) -> Abstract:
    returns = list(frame.returns)
    if flow == "next":
        returns.append((None, Const(None)))
    if not returns:
        return unknown("the function does not return", cause=Cause.run_time)
    final = next((i for i, (condition, _) in enumerate(returns) if condition is None), len(returns) - 1)
    value = returns[final][1]
    for condition, other in reversed(returns[:final]):
        value = ev.join(condition if condition is not None else unknown("the condition is not known"), other, value)
    return value


def _first_argument(function: FunctionValue, itself: Abstract) -> Abstract:
    """`self`, or the class for a class method."""
    if is_class_method(function) and isinstance(itself, Instance) and itself.cls is not None:
        return itself.cls
    return itself


def _is_static(function: FunctionValue) -> bool:
    return any(isinstance(d, External) and d.name == "staticmethod" for d in function.decorators)


def bind_parameters(
    function: FunctionValue,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    frame: Frame,
    more: bool = False,
) -> None:
    """Parameters -> arguments, defaults, or unknown."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    left = dict(kwargs)
    for index, parameter in enumerate([*positional, *arguments.kwonlyargs]):
        name = parameter.arg
        if index < len(args) and index < len(positional):
            frame.variables[name] = args[index]
            left.pop(name, None)
        elif name in left:
            frame.variables[name] = left.pop(name)
        elif name in function.defaults:
            default = function.defaults[name]
            frame.variables[name] = laid_over(to_expr(default).origin) if more and is_expr(default) else default
        else:
            origin = function.module.origin(parameter, editable=False)
            frame.variables[name] = unknown(f"the argument {name} of {function.name}() is not known", origin)
    if arguments.vararg is not None:
        frame.variables[arguments.vararg.arg] = sequence(list(args[len(positional) :]), "tuple")
    if arguments.kwarg is not None:
        frame.variables[arguments.kwarg.arg] = Container("dict", dict(left.items()), None, openness(more))
