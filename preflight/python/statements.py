"""Interpretation of statements. Each function returns how its statement ends (`Flow`)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from preflight.python.access import assign, mark_changed, note_part, remove_attribute, update_items
from preflight.python.arrays import array_of, derived, view
from preflight.python.classes import make_class
from preflight.python.comprehensions import count_of
from preflight.python.evaluator import Evaluator
from preflight.python.functions import make_function
from preflight.python.imports import import_from, import_modules
from preflight.python.objects import (
    Abstract,
    Attribute,
    Container,
    Frame,
    Instance,
    Key,
    TryRecord,
    changes_in_loop,
    counted_in_loop,
    is_expr,
    to_expr,
)
from preflight.python.position import Flow
from preflight.python.steps import rehearse
from preflight.python.texts import line_of
from preflight.vocabulary.budgets import PROGRAM_DEPTH, OverBudget
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, unknown

UNROLL = 64
"""Iterations of a loop over known items that are interpreted one by one."""
UNROLL_STEPS = 2_000
"""Steps that the further iterations of one loop may take; above, they are interpreted once, with an unknown item."""


def execute(ev: Evaluator, body: Sequence[ast.stmt], frame: Frame) -> Flow:
    """Interpret a block."""
    exits = ev.position.exits
    for index, statement in enumerate(body):
        before = len(exits)
        flow = _execute(ev, statement, frame)
        if flow == "next" and len(exits) > before and index + 1 < len(body):
            return _after_exits(ev, before, lambda rest=body[index + 1 :]: ev.execute(rest, frame))  # type: ignore[misc]
        if flow != "next":
            return flow
    return "next"


def _after_exits(ev: Evaluator, before: int, rest: Callable[[], Flow]) -> Flow:
    """Interpret the statements after a conditional return, break or continue, if none of them happened."""
    exits = ev.position.exits[before:]
    kinds = {kind for kind, _ in exits}
    skipped = _any_of(ev, [condition for _, condition in exits])
    stays = ev.op("not", (skipped,))
    flow, changes = ev.speculate(stays, rest)
    ev.merge(skipped, {}, changes)
    if flow == "next" or kinds == {flow}:
        return flow
    if flow == "raise":
        return "return" if kinds == {"return"} else "continue"
    _note_exit(ev, flow, stays)
    return "continue"


def _any_of(ev: Evaluator, conditions: Sequence[Expr]) -> Expr:
    return conditions[0] if len(conditions) == 1 else ev.op("or", tuple(conditions))


def _note_exit(ev: Evaluator, kind: Flow, condition: Expr) -> None:
    """Note that a block is left under a condition (and those of the path to it)."""
    met = (*ev.position.in_function, condition)
    ev.position.exits.append((kind, met[0] if len(met) == 1 else ev.op("and", met)))


def _execute(ev: Evaluator, node: ast.stmt, frame: Frame) -> Flow:
    ev.step()
    handler = _HANDLERS.get(type(node))
    if handler is None:
        return "next"
    if ev.depth > PROGRAM_DEPTH:
        raise OverBudget(PROGRAM_DEPTH)
    ev.depth += 1
    flow = handler(ev, node, frame)
    ev.depth -= 1
    return flow


def _expression(ev: Evaluator, node: ast.Expr, frame: Frame) -> Flow:
    if not isinstance(node.value, ast.Constant):
        ev.evaluate(node.value, frame)
        value = node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("sys.exit", "exit", "quit", "os._exit"):
            return "raise"
    return "next"


def _assign(ev: Evaluator, node: ast.Assign, frame: Frame) -> Flow:
    value = ev.evaluate(node.value, frame)
    for target in node.targets:
        assign(ev, target, value, frame)
    return "next"


def _annotated(ev: Evaluator, node: ast.AnnAssign, frame: Frame) -> Flow:
    if node.value is not None:
        assign(ev, node.target, ev.evaluate(node.value, frame), frame)
    return "next"


def _augmented(ev: Evaluator, node: ast.AugAssign, frame: Frame) -> Flow:
    if isinstance(node.op, ast.BitOr):
        holder = ev.evaluate(node.target, frame)
        if isinstance(holder, Container) and not holder.is_sequence:  # a dict: changed for all who hold it
            update_items(ev, holder, (ev.evaluate(node.value, frame),), frame.module.origin(node))
            return "next"
    binary = ast.BinOp(node.target, node.op, node.value)
    ast.copy_location(binary, node)
    value = ev.evaluate(binary, frame)
    if ev.position.loops and is_expr(value):
        value = changes_in_loop(frame.module.origin(node))
    assign(ev, node.target, value, frame)
    return "next"


def _if(ev: Evaluator, node: ast.If, frame: Frame) -> Flow:
    condition = ev.evaluate(node.test, frame)
    known = ev.truth(condition)
    if known is not None:
        return ev.execute(node.body if known else node.orelse, frame)
    return branch(ev, to_expr(condition), lambda: ev.execute(node.body, frame), lambda: ev.execute(node.orelse, frame))


def branch(ev: Evaluator, condition: Expr, then: Callable[[], Flow], otherwise: Callable[[], Flow]) -> Flow:
    """Interpret both sides of an unknown condition, and merge their changes."""
    negated = Op("not", (condition,), condition.origin)
    flow, changes = ev.speculate(condition, then)
    other_flow, other_changes = ev.speculate(negated, otherwise)
    if flow == "raise" and other_flow == "raise":
        return "raise"
    if "raise" in (flow, other_flow):  # the program ends there: what follows is the other side's
        ev.position.conditions.append(negated if flow == "raise" else condition)
        ev.journal.apply(other_changes if flow == "raise" else changes)
        return other_flow if flow == "raise" else flow
    ev.merge(condition, changes, other_changes)
    if flow == other_flow:
        return flow
    for one, under in ((flow, condition), (other_flow, negated)):
        if one != "next":
            _note_exit(ev, one, under)
    return "next" if "next" in (flow, other_flow) else "continue"


def _for(ev: Evaluator, node: ast.For | ast.AsyncFor, frame: Frame) -> Flow:
    iterable = ev.evaluate(node.iter, frame)
    items = ev.iterate(iterable)
    if items is None or len(items) > UNROLL:
        item = line_of(ev, iterable) or _any_item(iterable)
        count = iterable.state.get("count") if isinstance(iterable, Instance) else None
        if count is None:
            count = count_of(ev, iterable)
        rehearse(ev, node, iterable, frame, lambda sample: _round(ev, node, frame, sample))
        return _repeated(ev, node, frame, item, count if isinstance(count, (Ref, Op, Const)) else None)
    exits = ev.position.exits
    before = len(exits)
    flow = _unrolled(ev, node, frame, items, 0)
    exits[before:] = [(kind, condition) for kind, condition in exits[before:] if kind == "return"]
    return flow


def _round(ev: Evaluator, node: ast.For | ast.AsyncFor, frame: Frame, item: Abstract) -> Flow:
    assign(ev, node.target, item, frame)
    return ev.execute(node.body, frame)


def _unrolled(ev: Evaluator, node: ast.For | ast.AsyncFor, frame: Frame, items: list[Abstract], depth: int) -> Flow:
    """Interpret the iterations one by one; after a conditional break, the others run on its opposite."""
    conditions, exits = ev.position.conditions, ev.position.exits
    length = len(conditions)
    for index, item in enumerate(items):
        steps, before = ev.steps_left, len(exits)
        assign(ev, node.target, item, frame)
        flow = ev.execute(node.body, frame)
        if flow in ("return", "raise", "break"):
            return "next" if flow == "break" else flow
        del conditions[length:]
        more = len(items) - index - 1
        if depth > 8 or (steps - ev.steps_left) * more > UNROLL_STEPS:
            ends = any(kind != "continue" for kind, _ in exits[before:])
            return _repeated(ev, node, frame, changes_in_loop(), None if ends or depth else Const(more))
        left = [condition for kind, condition in exits[before:] if kind != "continue"]
        if left:
            rest = items[index + 1 :]
            stays, skipped = ev.op("not", (_any_of(ev, left),)), _any_of(ev, left)
            flow, changes = ev.speculate(stays, lambda rest=rest: _unrolled(ev, node, frame, rest, depth + 1))  # type: ignore[misc]
            ev.merge(skipped, {}, changes)
            if flow == "return":
                _note_exit(ev, "return", stays)
            return "next"
    return ev.execute(node.orelse, frame)


def _repeated(ev: Evaluator, node: ast.For | ast.AsyncFor, frame: Frame, item: Abstract, count: Expr | None) -> Flow:
    """Interpret one iteration that stands for `count` ones."""
    if count is not None and not ev.position.loops:
        ev.position.turns = count, len(ev.position.conditions), len(ev.position.functions)
    flow = _loop_once(ev, node, frame, lambda: assign(ev, node.target, item, frame))
    ev.position.turns = ev.position.turns if ev.position.loops else None
    return flow


def _any_item(iterable: Abstract) -> Abstract:
    """The loop variable of a loop that is not unrolled."""
    known = list(iterable.items.values()) if isinstance(iterable, Container) and iterable.is_sequence else []
    if known and not is_expr(known[0]):
        return known[0]
    if isinstance(iterable, Instance) and iterable.made_by == "range":
        return counted_in_loop(iterable)
    if isinstance(iterable, Instance):
        array = array_of(iterable)
        if array is not None and array.shape:
            return derived(iterable, view(array, array.shape[1:], whole=False))
        return Instance(f"{iterable.made_by}.item", origin=iterable.origin)
    if isinstance(iterable, Attribute):
        return Attribute(iterable, "[*]", iterable.origin)  # a layer of `model.model.layers`: any of them
    return changes_in_loop()


def _while(ev: Evaluator, node: ast.While, frame: Frame) -> Flow:
    if ev.truth(ev.evaluate(node.test, frame)) is False:
        return ev.execute(node.orelse, frame)
    return _loop_once(ev, node, frame, lambda: None)


def _loop_once(
    ev: Evaluator, node: ast.For | ast.AsyncFor | ast.While, frame: Frame, start: Callable[[], None]
) -> Flow:
    """Interpret the body once for all iterations: variables that it changes are unknown at its start."""
    _forget_changes(ev, node, frame)
    position = ev.position
    returns, length, before = len(frame.returns), len(position.conditions), len(position.exits)
    position.loops += 1
    position.loops_after.append(ev.last_number())

    def body() -> Flow:
        start()
        return ev.execute(node.body, frame)

    flow, changes = ev.speculate(None, body)
    position.loops -= 1
    position.loops_after.pop()
    del position.conditions[length:]
    ev.merge(unknown("whether the loop runs is not known", cause=Cause.run_time), changes, {})
    runs = unknown("whether the loop ends early is not known", cause=Cause.run_time)
    for index in range(returns, len(frame.returns)):
        condition, value = frame.returns[index]
        frame.returns[index] = (runs if condition is None else ev.op("and", (condition, runs)), value)
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and flow in ("return", "raise"):
        return flow
    left = any(kind == "return" for kind, _ in position.exits[before:])
    del position.exits[before:]
    if left or flow == "return":
        _note_exit(ev, "return", runs)
    return ev.execute(node.orelse, frame)


def _forget_changes(ev: Evaluator, node: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
    """Make the variables unknown that the body of a loop changes."""
    for inner in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(inner, ast.AugAssign):
            targets = [inner.target]
        elif isinstance(inner, ast.Assign):
            targets = [t for t in inner.targets if isinstance(t, ast.Name)]
        for target in targets:
            if isinstance(target, ast.Name):
                current = frame.variables.get(target.id)
                if current is not None and is_expr(current):
                    ev.journal.write(frame.variables, target.id, changes_in_loop(to_expr(current).origin))
            elif isinstance(target, (ast.Attribute, ast.Subscript)) and isinstance(target.value, ast.Name):
                assign(ev, target, changes_in_loop(frame.module.origin(target)), frame)


def _with(ev: Evaluator, node: ast.With | ast.AsyncWith, frame: Frame) -> Flow:
    contexts = ev.position.contexts
    depth = len(contexts)
    for item in node.items:
        before = len(ev.calls)
        value = ev.evaluate(item.context_expr, frame)
        made = ev.calls[before:]
        if isinstance(item.context_expr, ast.Call) and made:
            contexts.append(made[-1])
        elif isinstance(value, Instance) and value.record is not None:
            contexts.append(value.record)
        if item.optional_vars is not None:
            assign(ev, item.optional_vars, value, frame)
    flow = ev.execute(node.body, frame)
    del contexts[depth:]
    return flow


def _try(ev: Evaluator, node: ast.Try, frame: Frame) -> Flow:
    handlers = tuple((_exceptions(handler), handler) for handler in node.handlers)
    caught = tuple(name for names, _ in handlers for name in names)
    before = len(ev.calls)
    if caught:
        ev.position.handlers.append(caught)
    flow = ev.execute(node.body, frame)
    returns = len(frame.returns)
    if caught:
        ev.position.handlers.pop()
        calls = tuple(ev.calls[before:])
        ev.tries.append(TryRecord(node, frame.module.path, frame.function, handlers, calls, ev.reached))
    exits = ev.position.exits
    failed, length = unknown("whether an exception is raised is not known", cause=Cause.run_time), len(exits)
    for handler in node.handlers:
        # No exception is what usually happens: the calls of a handler are recorded, its writes are undone.
        ev.speculate(failed, lambda handler=handler: _handler(ev, handler, frame))  # type: ignore[misc]
    del exits[length:]
    if flow != "raise":
        del frame.returns[returns:]
    elif node.handlers:
        flow = "next"
    if flow == "next":
        flow = ev.execute(node.orelse, frame)
    final = ev.execute(node.finalbody, frame)
    return final if final != "next" else flow


def _handler(ev: Evaluator, handler: ast.ExceptHandler, frame: Frame) -> Flow:
    if handler.name:
        ev.journal.write(frame.variables, handler.name, unknown("the exception is not known", cause=Cause.run_time))
    return ev.execute(handler.body, frame)


def _exceptions(handler: ast.ExceptHandler) -> tuple[str, ...]:
    if handler.type is None:
        return ("*",)
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return tuple(ast.unparse(part) for part in parts)


def _return(ev: Evaluator, node: ast.Return, frame: Frame) -> Flow:
    value: Abstract = Const(None) if node.value is None else ev.evaluate(node.value, frame)
    frame.returns.append((_path_condition(ev), value))
    return "return"


def _path_condition(ev: Evaluator) -> Expr | None:
    """The conditions met since the function was entered, as one; None where there are none."""
    met = tuple(ev.position.in_function)
    if not met:
        return None
    return met[0] if len(met) == 1 else Op("and", met)


def _raise(ev: Evaluator, node: ast.Raise, frame: Frame) -> Flow:
    if node.exc is not None:
        ev.evaluate(node.exc, frame)
    return "raise"


def _function(ev: Evaluator, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> Flow:
    ev.journal.write(frame.variables, node.name, make_function(ev, node, frame))
    return "next"


def _class(ev: Evaluator, node: ast.ClassDef, frame: Frame) -> Flow:
    ev.journal.write(frame.variables, node.name, make_class(ev, node, frame))
    return "next"


def _global(ev: Evaluator, node: ast.Global | ast.Nonlocal, frame: Frame) -> Flow:
    for name in node.names:
        scope: dict[Key, Abstract] = frame.globals_
        if isinstance(node, ast.Nonlocal):
            outer = frame.parent
            while outer is not None and name not in outer.variables:
                outer = outer.parent
            scope = outer.variables if outer is not None else scope
        frame.redirected[name] = scope
    return "next"


def _delete(ev: Evaluator, node: ast.Delete, frame: Frame) -> Flow:
    for target in node.targets:
        if isinstance(target, ast.Name):
            ev.journal.remove(frame.variables, target.id)
        elif isinstance(target, ast.Subscript):
            holder, key = ev.evaluate(target.value, frame), to_expr(ev.evaluate(target.slice, frame))
            if isinstance(holder, Container) and isinstance(key, Const) and isinstance(key.value, (str, int)):
                ev.journal.remove(holder.items, key.value)
            elif isinstance(holder, Instance) and isinstance(key, Const) and isinstance(key.value, str):
                remove_attribute(ev, holder, key.value)
            else:
                if isinstance(holder, Attribute):
                    note_part(holder.receiver, holder.name, None)
                mark_changed(holder)
        elif isinstance(target, ast.Attribute):
            remove_attribute(ev, ev.evaluate(target.value, frame), target.attr)
    return "next"


def _match(ev: Evaluator, node: ast.Match, frame: Frame) -> Flow:
    subject = ev.evaluate(node.subject, frame)

    def cases(rest: list[ast.match_case]) -> Flow:
        if not rest:
            return "next"
        condition = _pattern(ev, rest[0].pattern, subject, frame)
        if rest[0].guard is not None:
            condition = ev.op("and", (condition, to_expr(ev.evaluate(rest[0].guard, frame))))
        known = ev.truth(condition)
        if known is not None:
            return ev.execute(rest[0].body, frame) if known else cases(rest[1:])
        return branch(ev, condition, lambda: ev.execute(rest[0].body, frame), lambda: cases(rest[1:]))

    return cases(node.cases)


def _pattern(ev: Evaluator, pattern: ast.pattern, subject: Abstract, frame: Frame) -> Expr:
    if isinstance(pattern, ast.MatchValue):
        return ev.op("==", (to_expr(subject), to_expr(ev.evaluate(pattern.value, frame))))
    if isinstance(pattern, ast.MatchSingleton):
        return ev.op("is", (to_expr(subject), Const(pattern.value)))
    if isinstance(pattern, ast.MatchOr):
        return ev.op("or", tuple(_pattern(ev, p, subject, frame) for p in pattern.patterns))
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        if pattern.name:
            ev.journal.write(frame.variables, pattern.name, subject)
        return Const(True)
    return unknown("this pattern is not evaluated statically")


def _import(ev: Evaluator, node: ast.Import | ast.ImportFrom, frame: Frame) -> Flow:
    if isinstance(node, ast.Import):
        import_modules(ev, node, frame)
    else:
        import_from(ev, node, frame)
    return "next"


_HANDLERS: dict[type[ast.stmt], Callable[..., Flow]] = {
    ast.Expr: _expression, ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.If: _if,
    ast.For: _for, ast.AsyncFor: _for, ast.While: _while, ast.With: _with, ast.AsyncWith: _with, ast.Try: _try,
    ast.Return: _return, ast.Raise: _raise, ast.FunctionDef: _function, ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class, ast.Global: _global, ast.Nonlocal: _global, ast.Delete: _delete, ast.Match: _match,
    ast.Import: _import, ast.ImportFrom: _import, ast.Break: lambda *_: "break", ast.Continue: lambda *_: "continue",
}  # fmt: skip
