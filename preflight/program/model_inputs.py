"""How many sequences the model gets for each sample of the loader: a loop may join views, repeat the batch, or cut it.

`images = torch.cat([views[0], views[1]])` gives the model two for each sample of the loader's batch.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.program.bindings import fold, is_unknown
from preflight.python.access import comes_from_loader
from preflight.python.objects import (
    Abstract,
    Attribute,
    CallRecord,
    Container,
    Either,
    Instance,
    alternatives,
    has_unknown,
)
from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_JOINS = ("cat", "concat", "concatenate", "hstack", "vstack")
_REPEATS = ("repeat", "repeat_interleave", "tile")
_PARTS = ("chunk.item", "split.item", "tensor_split.item", "unbind.item")
_FOLDS = ("flatten", "view", "reshape", "rearrange")
"""Methods and functions that may fold two dimensions into the first: views or frames into the batch."""
_BATCH = ".item"
"""Within the name of what a loader gives in each round."""
_FIRST = regex(r"\[:\d+\]")
"""The name of the first items of a value."""


_DEEPEST = 6
"""Conditions within each other that are told apart."""


def sequences_of(record: CallRecord) -> Expr | None:
    """The most that a call of a model gets for each sample of the batch; None where it gets the batch as it is."""
    return _most([_either(value) for value in (*record.arguments, *record.keywords.values())])


def _most(counts: Sequence[Expr | None]) -> Expr | None:
    found = [one for one in counts if one is not None]
    unread = next((one for one in found if is_unknown(one)), None)
    if unread is not None or len(found) < 2:
        return unread if unread is not None else next(iter(found), None)
    return fold(Op("max", tuple(found)))


def _either(value: Abstract, depth: int = 0) -> Expr | None:
    """The sequences of a value that a setting chooses (`if args.twice: x = torch.cat((x, x))`): as the setting says."""
    if not isinstance(value, Either) or depth == _DEEPEST or has_unknown(value.condition):
        return _most([_of(one) for one in alternatives(value)])
    then, otherwise = _either(value.then, depth + 1), _either(value.otherwise, depth + 1)
    if then is None and otherwise is None:
        return None
    return fold(Op("if", (value.condition, then or Const(1), otherwise or Const(1))))


def _of(value: Abstract) -> Const | None:
    """The sequences of a tensor for each sample of a batch; None where it is one, or no tensor of a batch."""
    if isinstance(value, Attribute):
        return _cut(value)
    if not isinstance(value, Instance):
        return None
    record = value.record
    if value.made_by.endswith(_PARTS) and _BATCH in value.made_by.removesuffix(_BATCH):
        return Const(Unknown("the model gets a part of the batch at a time", Cause.not_read), value.origin)
    if record is None:
        return None
    if record.method in _JOINS and record.name.startswith("torch."):
        return _joined(record)
    if record.method in _REPEATS and comes_from_loader(record.receiver_object):
        return _repeated(record)
    if record.method in _FOLDS and _folds(record):
        words = f"{record.method}() may put another dimension of the batch into the first"
        return Const(Unknown(words, Cause.not_read), record.origin)
    return None


def _cut(value: Attribute) -> Const | None:
    """`images[:64]` of a tensor that is an item of the batch; the first items of the batch itself may be tensors."""
    holder = value.receiver
    whole = isinstance(holder, Instance) and holder.made_by.endswith(_BATCH)
    if whole or _FIRST.fullmatch(value.name) is None or not comes_from_loader(holder):
        return None
    return Const(Unknown("the model gets the first samples of the batch", Cause.not_read), value.origin)


def _joined(record: CallRecord) -> Const | None:
    """`torch.cat([first, second])` along the first dimension (torch 2.13, `torch.cat`: `dim=0`)."""
    dim, parts = record.argument("dim", 1) or record.kwargs.get("axis"), record.object("tensors", 0)
    along_first = record.method != "hstack" and (dim is None or (isinstance(dim, Const) and dim.value == 0))
    if not along_first or not isinstance(parts, Container):
        return None
    items = list(parts.items.values())
    if parts.open or not all(map(comes_from_loader, items)):
        return Const(Unknown("the model gets more than the batch of the loader", Cause.not_read), record.origin)
    return Const(len(items), record.origin) if len(items) > 1 else None


def _repeated(record: CallRecord) -> Const | None:
    """`x.repeat(4, 1)` and `x.repeat_interleave(4, dim=0)`."""
    times, dim = record.argument("repeats", 0), record.argument("dim", 1)
    if record.method == "repeat_interleave" and not (isinstance(dim, Const) and dim.value == 0):
        return None
    if not isinstance(times, Const) or not isinstance(times.value, int):
        return Const(Unknown("the model gets the batch several times", Cause.not_read), record.origin)
    return Const(times.value, record.origin) if times.value > 1 else None


def _folds(record: CallRecord) -> bool:
    """Whether a change of shape may make the first dimension longer than the batch. `x.view(-1, width)` of pictures is
    one row a sample."""
    if record.method == "rearrange":
        pattern = record.argument("pattern", 1)
        text = pattern.value if isinstance(pattern, Const) else None
        given = record.arguments[0] if record.arguments else None
        return isinstance(text, str) and text.partition("->")[2].strip().startswith("(") and comes_from_loader(given)
    if not comes_from_loader(record.receiver_object):
        return False
    first = record.args[0] if record.args else None
    if record.method == "flatten":
        return isinstance(first, Const) and first.value == 0 and len(record.args) > 1
    if isinstance(first, Op) and first.operator == "*" and has_unknown(first):  # `images.view(b * n, c, h, w)`
        return True
    if not isinstance(first, Const) or first.value != -1:
        return False
    return len(record.args) > 3 or _keeps_last(record.node)


def _keeps_last(node: ast.expr) -> bool:
    """`ids.view(-1, ids.size(-1))`, of several sequences for each sample: one for each choice."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 2:
        return False
    mine = ast.unparse(node.func.value)
    return ast.unparse(node.args[1]) in (f"{mine}.size(-1)", f"{mine}.shape[-1]")
