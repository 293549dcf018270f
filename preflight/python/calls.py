"""Calls: recorded, answered by hooks, or followed into the project's functions and classes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from preflight.python.access import class_attribute
from preflight.python.builtins import call_builtin
from preflight.python.classes import instantiate, super_object
from preflight.python.expressions import evaluate
from preflight.python.functions import invoke
from preflight.python.methods import call_method, same_object
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    ClassValue,
    Either,
    External,
    Frame,
    FunctionValue,
    Instance,
    Key,
    made_by,
    spread,
    to_expr,
)
from preflight.vocabulary.values import Op, Origin

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator


# --- a call expression ------------------------------------------------------------------------------------------------


def evaluate_call(ev: Evaluator, node: ast.Call, frame: Frame) -> Abstract:
    """A call: its callee and arguments, then what it gives."""
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return super_object(frame)
    callee = evaluate(ev, node.func, frame)
    args, kwargs, origins, complete = _arguments(ev, node, frame)
    return call_value(ev, callee, args, kwargs, node, frame, origins, complete)


def _arguments(
    ev: Evaluator, node: ast.Call, frame: Frame
) -> tuple[tuple[Abstract, ...], dict[str, Abstract], dict[str, Origin], bool]:
    args: list[Abstract] = []
    complete = True
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            items = ev.iterate(evaluate(ev, argument.value, frame))
            complete = complete and items is not None
            args += items or []
        else:
            args.append(evaluate(ev, argument, frame))
    kwargs: dict[str, Abstract] = {}
    origins: dict[str, Origin] = {}
    for keyword in node.keywords:
        value = evaluate(ev, keyword.value, frame)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
            origins[keyword.arg] = frame.module.origin(keyword.value)
            continue
        items_: dict[Key, Abstract] = {}
        complete = spread(value, items_) and complete
        kwargs.update({key: item for key, item in items_.items() if isinstance(key, str)})
    return tuple(args), kwargs, origins, complete


def call_value(
    ev: Evaluator,
    callee: Abstract,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    node: ast.Call,
    frame: Frame,
    origins: dict[str, Origin] | None = None,
    complete: bool = True,
    _depth: int = 0,
) -> Abstract:
    """What calling `callee` gives; the call is recorded."""
    if isinstance(callee, Either) and _depth < 6:
        results: list[Abstract] = []

        def side(one: Abstract) -> str:
            results.append(call_value(ev, one, args, kwargs, node, frame, origins, complete, _depth + 1))
            return "next"

        _, then = ev.speculate(callee.condition, lambda: side(callee.then))
        _, otherwise = ev.speculate(Op("not", (callee.condition,)), lambda: side(callee.otherwise))
        ev.merge(callee.condition, then, otherwise)
        return ev.join(callee.condition, results[0], results[1])
    if isinstance(callee, External) and "." not in callee.name:
        given = call_builtin(ev, callee.name, args, kwargs, node, frame, complete)
        if given is not None:
            return given
    if isinstance(callee, Attribute):
        given = call_method(ev, callee, args, kwargs, node, frame)
        if given is not None:
            return given
    record = _record(ev, callee, args, kwargs, node, frame, origins or {}, complete)
    record.value = _result(ev, callee, record, args, kwargs)
    record.result = to_expr(record.value)
    return record.value


def _record(
    ev: Evaluator,
    callee: Abstract,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    node: ast.Call,
    frame: Frame,
    origins: dict[str, Origin],
    complete: bool,
) -> CallRecord:
    name, receiver, method, holder = _names(callee, node)
    record = CallRecord(
        name=name,
        receiver=receiver,
        method=method,
        args=tuple(to_expr(a) for a in args),
        kwargs={key: to_expr(value) for key, value in kwargs.items()},
        keyword_origins=origins,
        path=frame.module.path,
        node=node,
        origin=frame.module.origin(node),
        function=frame.function,
        conditions=tuple(ev.conditions),
        in_loop=ev.loops > 0,
        in_try=tuple(name for names in ev.handlers for name in names),
        contexts=tuple(ev.contexts),
        reached=ev.reached,
        complete=complete,
        arguments=args,
        keywords=kwargs,
        receiver_object=holder,
        callee=callee,
    )
    same = ev.seen.setdefault(id(node), [])
    for known in same:  # an unrolled loop says the same thing once
        if (
            known.name == name
            and known.args == record.args
            and known.kwargs == record.kwargs
            and known.arguments == args
        ):
            return record
    same.append(record)
    ev.calls.append(record)
    return record


def _names(callee: Abstract, node: ast.Call) -> tuple[str, str | None, str, Abstract | None]:
    """Name, receiver, method and the receiver's object of a call."""
    if isinstance(callee, External):
        return callee.name, None, callee.name.rpartition(".")[2], None
    if isinstance(callee, FunctionValue):
        owner = callee.owner.name + "." if callee.owner and not callee.name.startswith(callee.owner.name) else ""
        return f"{callee.module.name}.{owner}{callee.name}", None, callee.name.rpartition(".")[2], callee.self_value
    if isinstance(callee, ClassValue):
        return f"{callee.module.name}.{callee.name}", None, callee.name, None
    written = dotted(node.func)
    if isinstance(callee, Attribute):
        return written, made_by(callee.receiver), callee.name, callee.receiver
    return written, made_by(callee), "__call__" if isinstance(callee, Instance) else written.rpartition(".")[2], callee


def dotted(node: ast.expr) -> str:
    """The callee as it is written, calls and subscripts left out: "self.model.generate"."""
    parts: list[str] = []
    for _ in range(50):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            parts[-1:] = [f"().{parts[-1]}"] if parts else ["()"]
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts)).replace(".()", "()")


def _result(
    ev: Evaluator, callee: Abstract, record: CallRecord, args: tuple[Abstract, ...], kwargs: dict[str, Abstract]
) -> Abstract:
    for name in _hook_names(callee, record):
        hook = ev.hooks.get(name)
        given = hook(record, ev) if hook is not None else None
        if given is not None:
            return given
    same = same_object(callee)
    if same is not None:
        return same
    if isinstance(callee, FunctionValue):
        return invoke(ev, callee, args, kwargs, record)
    if isinstance(callee, ClassValue):
        return instantiate(ev, callee, args, kwargs, record)
    if isinstance(callee, Instance) and callee.cls is not None:
        for name in ("__call__", "forward"):
            method = class_attribute(callee.cls, name)
            if isinstance(method, FunctionValue):
                return invoke(ev, replace(method, self_value=callee), args, kwargs, record)
    # functions given to a library are called by it: torch.multiprocessing.spawn(main), executor.submit(run), ...
    for value in (*args, *kwargs.values()):
        if isinstance(value, FunctionValue) and id(value.node) not in ev.interpreted and record.reached:
            invoke(ev, value, (), {}, record)
    return Instance(record.qualified, record=record, origin=record.origin)


def _hook_names(callee: Abstract, record: CallRecord) -> list[str]:
    """Under which names a hook may answer: its own, and those of the library's classes that its class extends."""
    found = [record.qualified]
    if isinstance(callee, ClassValue):
        found += callee.external_bases
    elif isinstance(callee, Attribute) and isinstance(callee.receiver, Instance) and callee.receiver.cls is not None:
        found += [f"{base}.{record.method}" for base in callee.receiver.cls.external_bases]
    return [*found, f"*.{record.method}"]


# --- functions --------------------------------------------------------------------------------------------------------


# --- classes ----------------------------------------------------------------------------------------------------------
