"""Copies of a model's weights that a program keeps, of its best epoch say -> train.copies.ema: they stay on the GPU.

`copy.deepcopy(model.state_dict())` and `{k: v.clone() for k, v in model.state_dict().items()}` keep every tensor where
it is. `.cpu()` in the same statement brings them to the host. A copy that is made once, outside of every loop, may be
older than the model's way to the GPU: it is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind
from preflight.program.call_site import around, is_module, loops_around, targets
from preflight.program.checkpoints import makes_model
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Unknown

FIELD = "train.copies.ema"
_WEIGHTS = ("state_dict", "named_parameters", "parameters")
_AS_THEY_ARE = "copies of weights are kept, and how many are on the GPU is not known"


def kept_weights(records: Sequence[CallRecord], known: Sequence[Binding], project: Project) -> list[Binding]:
    """One copy if a loop keeps it; unknown if it may be on the host, or if there are other copies."""
    found = [(one, is_weights) for one in records if one.reached for is_weights in _copies(one, project)]
    if not found:
        return []
    record = found[0][0]
    sure = all(is_weights and (one.in_loop or loops_around(one, project)) for one, is_weights in found)
    if sure and not any(one.field == FIELD for one in known):
        return [bind(FIELD, Const(1, record.origin), Rank.read)]
    return [Binding(FIELD, Const(Unknown(_AS_THEY_ARE, Cause.run_time), record.origin), Rank.literal, record.origin)]


def _copies(record: CallRecord, project: Project) -> Iterator[bool]:
    """Whether a call copies weights where they are (True), or a model that may go to another place."""
    if record.name == "copy.deepcopy":
        given = [one for value in record.arguments[:1] for one in alternatives(value) if isinstance(one, Instance)]
        model = any(is_module(one.cls) or (one.record is not None and makes_model(one.record)) for one in given)
        weights = any(one.record is not None and one.record.method == "state_dict" for one in given)
        weights = (weights or model) and _of_state(record)
    else:
        weights, model = record.method == "clone" and _each_weight(record, project), False
    if (weights or model) and targets(record, project) and not _goes_to_the_host(record, project):
        yield weights


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
