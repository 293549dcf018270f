"""Comprehensions: evaluated item by item where the items are known."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from preflight.python.access import assign
from preflight.python.evaluator import Evaluator
from preflight.python.files import FILTERED
from preflight.python.known_kinds import of_file_names
from preflight.python.objects import Abstract, Container, Frame, Instance, counted_in_loop
from preflight.python.texts import line_of, lines_of, path_of_lines
from preflight.vocabulary.values import Const, Expr, Op, Ref


def comprehension(
    ev: Evaluator, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, frame: Frame
) -> Abstract:
    inner = Frame({}, frame.module, frame, frame.function, [], frame.globals_)
    sources: list[Abstract] = []
    kind = {ast.SetComp: "set", ast.DictComp: "dict"}.get(type(node), "list")
    made = Container(kind, {}, frame.module.origin(node))
    for complete in _generate(ev, node.generators, inner, sources):
        if complete != "yes":
            made.flags["superset" if complete == "perhaps" else "open"] = True
        if isinstance(node, ast.DictComp):
            key = ev.value_of(ev.expression(node.key, inner))
            value = ev.evaluate(node.value, inner)
            if isinstance(key, (str, int, float, bool)):
                made.items[key] = value
            else:
                made.flags["open"] = True
        else:
            made.items[len(made.items)] = ev.evaluate(node.elt, inner)
    if len(sources) == 1 and isinstance(sources[0], Instance) and of_file_names(sources[0]) and _keeps_items(node):
        some = {FILTERED: True} if node.generators[0].ifs else {}
        return replace(sources[0], state={**sources[0].state, **some})
    if len(sources) == 1 and not node.generators[0].ifs and made.open:
        made.count = count_of(ev, sources[0])
        made.repeats = made.count if isinstance(made.count, (Ref, Op)) and not isinstance(node, ast.DictComp) else None
    return made


def _keeps_items(node: ast.AST) -> bool:
    """`[f for f in files if ...]`, `[join(folder, f) for f in files]`: a part of what is iterated."""
    item = node.elt if isinstance(node, ast.ListComp) else None
    if (
        isinstance(item, ast.Call)
        and item.args
        and ast.unparse(item.func).rpartition(".")[2] in ("join", "str", "Path")
    ):
        item = item.args[-1]
    return (
        item is not None
        and isinstance(node, ast.ListComp)
        and (ast.unparse(item) == ast.unparse(node.generators[0].target))
    )


def _in_loop(source: Abstract) -> Abstract:
    """An item of what is iterated: any of a list whose items are alike."""
    alike = isinstance(source, Container) and source.is_sequence and source.count is not None and 0 in source.items
    return source.items[0] if alike and isinstance(source, Container) else counted_in_loop(source)


def count_of(ev: Evaluator, value: Abstract) -> Expr | None:
    """How many items an iterable has whose items are not known; None if that is not known."""
    path = path_of_lines(ev, value)
    if path is not None:
        lines = lines_of(ev, path)
        return Const(lines.count) if lines is not None else None
    if isinstance(value, Container):
        return value.count if value.open else Const(len(value.items))
    found = value.state.get("length") if isinstance(value, Instance) and value.made_by == "range" else None
    return found if isinstance(found, (Const, Ref, Op)) else None


def _generate(
    ev: Evaluator, generators: list[ast.comprehension], frame: Frame, sources: list[Abstract]
) -> Iterator[str]:
    """Set the variables for one item after the other; yields whether the item is in the result.

    yes, perhaps (a filter decides), or unknown (the items are not known)
    """
    if not generators:
        yield "yes"
        return
    first, rest = generators[0], generators[1:]
    source = ev.evaluate(first.iter, frame)
    sources.append(source)
    items = ev.iterate(source)
    known = items is not None and len(items) <= 256
    if not known:
        ev.position.loops += 1
    for value in items if items is not None and known else [line_of(ev, source) or _in_loop(source)]:
        assign(ev, first.target, value, frame)
        passes: list[bool | None] = []
        for condition in first.ifs:
            passes.append(ev.truth(ev.evaluate(condition, frame)))
            if passes[-1] is False:
                break
        if False in passes:
            continue
        for complete in _generate(ev, rest, frame, sources):
            if not known or complete == "unknown":
                yield "unknown"
            else:
                yield "perhaps" if None in passes or complete == "perhaps" else "yes"
    if not known:
        ev.position.loops -= 1
