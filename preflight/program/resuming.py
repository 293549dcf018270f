"""Runs that resume from a checkpoint: whether weights and optimizer states pass through the GPU, and stay there.

-> train.resumes. In a hand-written program `torch.load` without `map_location` brings every storage back to the device
that it was saved from, and a name that is still bound when training runs keeps the weights there a second time.
transformers' Trainer loads the optimizer's states on every GPU where several train, and through the host on one
(trainer.py, _load_optimizer_and_scheduler). Lightning loads a checkpoint on the host (fabric/plugins/io/torch_io.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, constant, fold, is_constant, under, when
from preflight.program.call_site import around, enclosing_function, scope_of, words
from preflight.program.loops import backwards, bound_again
from preflight.python.objects import CallRecord
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding
from preflight.vocabulary.values import Const, Expr, Op, Unknown

FIELD = "train.resumes"
_STARTS = {"train": ("resume_from_checkpoint", "trainer"), "fit": ("ckpt_path", "host")}
"""The method of a trainer -> its argument for a checkpoint, and the way that one takes."""
_OPTIMIZERS = frozenset({"optimizer", "optim", "opt", "optimizers"})


def resume_bindings(calls: Sequence[CallRecord], project: Project) -> Iterator[Binding]:
    """train.resumes of the first checkpoint that is given to an optimizer; of a trainer's argument."""
    for record in calls:
        argument, way = _STARTS.get(record.method, ("", ""))
        asked = record.kwargs.get(argument)
        if asked is not None and record.complete:
            given = fold(Op("not", (fold(Op("in", (asked, Const((None, False, ""))))),)))
            yield bind(FIELD, when(given, Const(way), Const("no")), origin=record.origin)
            return
    restored = [record for record in calls if _restores(record)]
    for record in calls:
        if record.name != "torch.load" or not record.complete or not all(map(_decided, record.conditions)):
            continue
        if not any(_scope(one, project) is _scope(record, project) for one in restored):
            continue
        how = _how(record, calls, project)
        if how is not None:
            yield from under(record.conditions, [bind(FIELD, Const(how, record.origin))])
            return


def _decided(condition: Expr) -> bool:
    """Whether a condition depends on the program's parameters alone."""
    return not isinstance(constant(condition), Unknown) or not is_constant(condition)


def _restores(record: CallRecord) -> bool:
    return record.method == "load_state_dict" and bool(words(record.name) & _OPTIMIZERS)


def _scope(record: CallRecord, project: Project) -> ast.AST | None:
    return scope_of(record, project)


def _how(record: CallRecord, calls: Sequence[CallRecord], project: Project) -> str | None:
    """host, device or kept; None if it is not known."""
    where = record.argument("map_location", 1)
    place = "cuda" if where is None else constant(where)
    if not isinstance(place, str):
        return None
    if not place.startswith("cuda"):
        return "host" if place.startswith("cpu") else None
    scope = scope_of(record, project)
    name, assignment = _bound(record, project)
    if name is None or assignment is None or scope is None:
        return "device"
    freed = any(line > assignment.lineno for line in bound_again(scope, name, assignment))
    own = enclosing_function(record, project)
    trains = own is None or any(enclosing_function(one, project) is own for one in backwards(calls))
    return "kept" if trains and not freed else "device"


def _bound(record: CallRecord, project: Project) -> tuple[str | None, ast.Assign | None]:
    """The name that the call's value is assigned to, and the assignment."""
    node = next(around(record, project), None)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node
    return None, None
