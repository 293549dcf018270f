"""Comprehensions, run item by item where the items are known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.python.expressions import as_expr, assign, evaluate
from preflight.python.objects import Abstract, Container, Frame
from preflight.values import unknown

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator


def comprehension(
    ev: Evaluator, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, frame: Frame
) -> Abstract:
    inner = Frame({}, frame.module, frame, frame.function, [], frame.globals_)
    kind = {ast.SetComp: "set", ast.DictComp: "dict"}.get(type(node), "list")
    made = Container(kind, {}, frame.module.origin(node))
    for complete in _generate(ev, node.generators, inner):
        if not complete:
            made.flags["open"] = True
        if isinstance(node, ast.DictComp):
            key = ev.value_of(as_expr(ev, node.key, inner))
            value = evaluate(ev, node.value, inner)
            if isinstance(key, (str, int, float, bool)):
                made.items[key] = value
            else:
                made.flags["open"] = True
        else:
            made.items[len(made.items)] = evaluate(ev, node.elt, inner)
    return made


def _generate(ev: Evaluator, generators: list[ast.comprehension], frame: Frame) -> Iterator[bool]:
    """Runs of a comprehension's element; False where what runs is not exactly known."""
    if not generators:
        yield True
        return
    first, rest = generators[0], generators[1:]
    source = evaluate(ev, first.iter, frame)
    items = ev.iterate(source)
    known = items is not None and len(items) <= 256
    if not known:
        ev.loops += 1
    for value in items if items is not None and known else [unknown("it changes in a loop")]:
        assign(ev, first.target, value, frame)
        passes: list[bool | None] = []
        for condition in first.ifs:
            passes.append(ev.truth(evaluate(ev, condition, frame)))
            if passes[-1] is False:
                break
        if False in passes:
            continue
        for complete in _generate(ev, rest, frame):
            yield complete and known and None not in passes
    if not known:
        ev.loops -= 1
