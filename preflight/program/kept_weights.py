"""Copies of a model's weights that a program keeps, of its best epoch say -> train.copies.ema: they stay on the GPU.

`copy.deepcopy(model.state_dict())` and `{k: v.clone() for k, v in model.state_dict().items()}` keep every tensor where
it is. `.cpu()` in the same statement brings them to the host. A copy that is made once, outside of every loop, may be
older than the model's way to the GPU: it is unknown. A loop that gives each copy a place of its own keeps any number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from preflight.program.bindings import bind
from preflight.program.call_site import around, is_module, loops_around, targets, words
from preflight.program.checkpoints import makes_model
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Op, Unknown

FIELD = "train.copies.ema"
_WEIGHTS = ("state_dict", "named_parameters", "parameters")
_AS_THEY_ARE = Const(Unknown("copies of weights are kept, and how many are on the GPU is not known", Cause.run_time))
_ADDING = ("append", "appendleft", "insert", "add", "extend", "update", "setdefault", "put")
"""Methods that put what they are given beside what is there."""
_LISTED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Copy(Struct, frozen=True):
    """A call that copies weights. `place`: what holds the copy until the next one; None: each has a place of its own.
    `sure`: it is on the GPU."""

    record: CallRecord
    place: tuple[str, ...] | None
    sure: bool


def kept_weights(records: Sequence[CallRecord], known: Sequence[Binding], project: Project) -> list[Binding]:
    """One copy if a loop keeps it in one place. One or none if it may be on the host. Else any number."""
    found = [copied for one in records if one.reached for copied in _copies(one, project)]
    if not found:
        return []
    origin = found[0].record.origin
    alone = len({one.place for one in found}) == 1 and found[0].place is not None
    if not alone or any(one.field == FIELD for one in known):
        return [Binding(FIELD, Const(_AS_THEY_ARE.value, origin), Rank.literal, origin)]
    if any(one.sure for one in found):
        return [bind(FIELD, Const(1, origin), Rank.read)]
    return [Binding(FIELD, Op("if", (_AS_THEY_ARE, Const(1, origin), Const(0)), origin), Rank.literal, origin)]


def _copies(record: CallRecord, project: Project) -> Iterator[_Copy]:
    """The copy of weights, or of a model that may go to another place, if a call makes one that is kept."""
    if record.name == "copy.deepcopy":
        given = [one for value in record.arguments[:1] for one in alternatives(value) if isinstance(one, Instance)]
        model = any(is_module(one.cls) or (one.record is not None and makes_model(one.record)) for one in given)
        weights = any(one.record is not None and one.record.method == "state_dict" for one in given)
        weights = (weights or model) and _of_state(record)
    else:
        weights, model = record.method == "clone" and _each_weight(record, project), False
    if model and not weights and _is_new_layer(record, project):
        return
    if (weights or model) and not _goes_to_the_host(record, project):
        place = _place(record, project, weights)
        if place != ():
            yield _Copy(record, place, weights and _repeats(record, project))


def _is_new_layer(record: CallRecord, project: Project) -> bool:
    """Whether a module makes one more of its layers by the call: `self.layers.append(copy.deepcopy(layer))` in its
    `__init__`. A copy that its name calls one is none."""
    inside = list(around(record, project))
    found = ((one, owner) for one, owner in pairwise(inside) if isinstance(one, ast.FunctionDef))
    method, owner = next(found, (None, None))
    if method is None or method.name != "__init__" or not isinstance(owner, ast.ClassDef):
        return False
    statement = next(node for node in inside if isinstance(node, ast.stmt))
    module = any(ast.unparse(base).endswith(("Module", "PreTrainedModel")) for base in owner.bases)
    return module and not words(ast.unparse(statement)) & _COPIES


_COPIES = frozenset({"ema", "teacher", "target", "momentum", "average", "averaged", "shadow", "old", "ref", "reference",
                     "best", "k", "key"})  # fmt: skip
"""Words in the names of copies that are no layers of what is trained."""


def _place(record: CallRecord, project: Project, weights: bool) -> tuple[str, ...] | None:
    """What holds the copy: the target that it is assigned to, of a name with its function. Empty if nothing does; None
    if each round of a loop, or each caller, may keep its own."""
    own = record.method == "clone"  # the comprehension that copies each weight
    for node in around(record, project):
        if isinstance(node, _LISTED) and weights and not own:
            return None
        own = own and not isinstance(node, _LISTED)
        if isinstance(node, (ast.Return, ast.AugAssign)) and weights:
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            return None
        if isinstance(node, ast.Assign) and _repeats(record, project) and any(map(_is_numbered, node.targets)):
            return None
        if isinstance(node, ast.stmt):
            break
    names = targets(record, project)
    local = all(name.isidentifier() for name in names)
    return (record.path, *((record.function or "",) if local else ()), *names) if names else ()


def _is_numbered(target: ast.expr) -> bool:
    """`states[epoch]`: a target that may be another one the next time."""
    return isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant)


def _repeats(record: CallRecord, project: Project) -> bool:
    return record.in_loop or bool(loops_around(record, project))


def _of_state(record: CallRecord) -> bool:
    """Whether the argument of a call is `something.state_dict()`."""
    given = record.node.args[0] if isinstance(record.node, ast.Call) and record.node.args else None
    return isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "state_dict"


def _each_weight(record: CallRecord, project: Project) -> bool:
    """Whether a comprehension over the weights of a model has the call."""
    for node in around(record, project):
        if isinstance(node, (ast.DictComp, ast.ListComp)):
            inner = [one for each in node.generators for one in ast.walk(each.iter)]
            return any(isinstance(one, ast.Attribute) and one.attr in _WEIGHTS for one in inner)
        if isinstance(node, ast.stmt):
            return False
    return False


def _goes_to_the_host(record: CallRecord, project: Project) -> bool:
    """Whether the statement around brings what it copies to the host."""
    statement = next((node for node in around(record, project) if isinstance(node, ast.stmt)), record.node)
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr in ("cpu", "numpy"):
            return True
        if isinstance(node, ast.Constant) and node.value == "cpu":
            return True
    return False
