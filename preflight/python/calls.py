"""Calls. Each is recorded. A hook gives the return value, or a function or class of the project is followed."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.arrays import array_of, noted
from preflight.python.builtins import call_builtin
from preflight.python.classes import instantiate, itself, super_object
from preflight.python.evaluator import CHEAP_PARTS, CallSite, Evaluator
from preflight.python.functions import invoke
from preflight.python.ledger import Ledger
from preflight.python.methods import call_method, same_object
from preflight.python.objects import (
    BASE,
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
    alternatives,
    made_by,
    to_expr,
)
from preflight.python.position import either_way
from preflight.python.settings_objects import library_object, note_training
from preflight.python.spread import copy_items, may_hold_more
from preflight.python.unknown_names import set_by_method
from preflight.vocabulary.budgets import CALLED_OBJECTS
from preflight.vocabulary.values import Cause, Origin


def evaluate_call(ev: Evaluator, node: ast.Call, frame: Frame) -> Abstract:
    """The value of a call expression."""
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return super_object(frame)
    callee = ev.evaluate(node.func, frame)  # before its arguments
    return call_at(ev, _site(ev, node, frame), callee)


def _site(ev: Evaluator, node: ast.Call, frame: Frame) -> CallSite:
    """The call with its arguments."""
    args: list[Abstract] = []
    spread: list[Abstract] = []
    complete = True
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            given = ev.evaluate(argument.value, frame)
            items = ev.iterate(given)
            complete = complete and items is not None
            args += items or []
            spread += [given] if items is None else []
        else:
            args.append(ev.evaluate(argument, frame))
    kwargs: dict[str, Abstract] = {}
    more = False
    origins: dict[str, Origin] = {}
    for keyword in node.keywords:
        value = ev.evaluate(keyword.value, frame)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
            origins[keyword.arg] = frame.module.origin(keyword.value)
            continue
        unpacked: dict[Key, Abstract] = {}
        complete = copy_items(value, unpacked) and complete
        more = more or may_hold_more(value)
        kwargs.update({key: item for key, item in unpacked.items() if isinstance(key, str)})
    return CallSite(ev, tuple(args), kwargs, node, frame, origins, complete, more, tuple(spread))


def call_at(ev: Evaluator, site: CallSite, callee: Abstract) -> Abstract:
    """The return value of any callee; the call is recorded."""
    if isinstance(callee, Either):
        if len(list(alternatives(callee))) > CALLED_OBJECTS:
            _record(site, callee)
            return site.unknown(f"what it calls is {CALLED_OBJECTS.over}", Cause.budget)
        results: dict[int, Abstract] = {}

        def called(one: Abstract) -> None:
            results[id(one)] = call_at(ev, site, one)

        ev.for_either(callee, called)
        return ev.on_both_sides(callee, lambda one: results[id(one)])
    given: Abstract | None = None
    if isinstance(callee, External) and "." not in callee.name:
        given = call_builtin(site, callee.name)
        if callee.name == "range" and given is not None:  # the rounds of a loop
            _record(site, callee).value = given
    elif isinstance(callee, External) and callee.name == "object.__setattr__":
        given = call_builtin(site, "setattr")
    elif isinstance(callee, Attribute) and callee.name == "__setattr__":
        given = call_builtin(replace(site, args=(itself(callee.receiver), *site.args)), "setattr")
    elif isinstance(callee, Attribute):
        given = call_method(site, callee)
    if given is not None:
        return given
    record = _record(site, callee)
    record.value = _result(site, callee, record)
    if ev.ledger is not None:
        _count(ev.ledger, record, ev)
    return record.value


MOST_CONDITIONS = 8
"""Conditions of one call that are kept: a call of an unrolled loop has others in each round."""

_KEEPS_NOTHING = frozenset({"mean", "sum", "detach", "float", "to", "item", "add", "sub", "cat", "stack", "permute"})


def _count(ledger: Ledger, record: CallRecord, ev: Evaluator) -> None:
    """What a call keeps for the backward pass: a function of arrays, if its derivative is not a constant, its input."""
    given = [array_of(one) for one in (record.receiver_object, *record.arguments)]
    if array_of(record.value) is not None:
        noted(ev, record.value, given, keeps=record.method not in _KEEPS_NOTHING)
    elif isinstance(record.callee, Instance) and record.callee.cls is None and any(given[1:]):
        ledger.unknown = True  # a library's model


_BACKWARD = ("backward", "manual_backward")


def _seen(frame: Frame) -> Mapping[Key, Abstract]:
    """The names that a function sees, with their values now."""
    found: dict[Key, Abstract] = dict(frame.globals_)
    within = [frame]
    while within[-1].parent is not None:
        within.append(within[-1].parent)
    for one in reversed(within):
        found.update(one.variables)
    return found


def _record(site: CallSite, callee: Abstract) -> CallRecord:
    name, receiver, method, holder = _names(callee, site.node)
    ev, position = site.ev, site.ev.position
    record = CallRecord(
        name=name,
        receiver=receiver,
        method=method,
        args=tuple(to_expr(a) for a in site.args),
        kwargs={key: to_expr(value) for key, value in site.kwargs.items()},
        keyword_origins=site.origins,
        path=site.frame.module.path,
        node=site.node,
        origin=site.origin,
        function=site.frame.function,
        caller=position.callers[-1] if position.callers else None,
        number=ev.next_number(),
        conditions=tuple(position.conditions),
        in_loop=position.loops > 0,
        in_try=tuple(name for names in position.handlers for name in names),
        contexts=tuple(position.contexts),
        reached=ev.reached,
        complete=site.complete,
        more=site.more,
        arguments=site.args,
        keywords=site.kwargs,
        spread=site.spread,
        receiver_object=holder,
        callee=callee,
        scope=_seen(site.frame) if method in _BACKWARD else {},
    )
    same = ev.calls_of.setdefault(id(site.node), [])
    ev.step(len(same) // CHEAP_PARTS)
    known = next((one for one in same if one.says_the_same(record)), None)  # an unrolled loop repeats its calls
    if known is not None:
        if record.conditions not in (known.conditions, *known.conditions_again):
            known.conditions_again[MOST_CONDITIONS:] = [record.conditions]
        known.conditions = either_way(known.conditions, record.conditions)
        if record.caller is not None:
            known.callers_again.setdefault(id(record.caller), (record.caller, record.number))
    else:
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
    """The callee as written in the source, without calls and subscripts: "self.model.generate"."""
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


def _result(site: CallSite, callee: Abstract, record: CallRecord) -> Abstract:
    ev = site.ev
    note_training(record)
    for name in _hook_names(callee, record):
        hook = ev.hooks.get(name)
        given = hook(record, ev) if hook is not None else None
        if given is not None:
            return given
    same = same_object(callee)
    if same is not None:
        return same
    if isinstance(callee, FunctionValue):
        return invoke(ev, callee, site.args, site.kwargs, record, site.more)
    if isinstance(callee, ClassValue):
        return instantiate(ev, callee, site.args, site.kwargs, record, site.more)
    if isinstance(callee, Instance) and callee.cls is not None:
        for name in ("__call__", "forward"):
            method = class_attribute(callee.cls, name)
            if isinstance(method, FunctionValue):
                return invoke(ev, replace(method, self_value=callee), site.args, site.kwargs, record)
    if record.method == "__init__" and isinstance(made := itself(record.receiver_object or callee), Instance):
        made.state[BASE] = None if BASE in made.state else record  # `super().__init__(...)` of a library's class
    # functions given to a library are called by it: torch.multiprocessing.spawn(main), executor.submit(run), ...
    for value in (*site.args, *site.kwargs.values()):
        if isinstance(value, FunctionValue) and not ev.was_interpreted(value) and record.reached:
            invoke(ev, value, (), {}, record)
    set_by_method(ev, record.receiver_object, record.method, record.origin)
    return library_object(record)


def _hook_names(callee: Abstract, record: CallRecord) -> list[str]:
    """The names of hooks for a call: its own, and those of the library's classes that its class extends."""
    found = [record.qualified]
    if isinstance(callee, ClassValue):
        found += callee.external_bases
    elif isinstance(callee, Attribute) and isinstance(callee.receiver, Instance) and callee.receiver.cls is not None:
        found += [f"{base}.{record.method}" for base in callee.receiver.cls.external_bases]
    return [*found, f"*.{record.method}"]


_SPAWNER = "torch.multiprocessing"


def spawned_rank() -> Attribute:
    """The number that `torch.multiprocessing.spawn` gives a function first."""
    return Attribute(Instance(_SPAWNER), "rank")


def is_rank(value: Abstract) -> bool:
    """Whether it is the number that `spawn` gives."""
    holder = value.receiver if isinstance(value, Attribute) and value.name == "rank" else None
    return isinstance(holder, Instance) and holder.made_by == _SPAWNER
