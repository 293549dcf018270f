"""One round of a loop over a loader, interpreted for a batch of one sample: what it keeps for its backward pass.

The round leaves no trace: its writes are undone, and its calls are recorded nowhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from preflight.python.arrays import Array, array_of, derived
from preflight.python.evaluator import Evaluator
from preflight.python.ledger import Ledger
from preflight.python.objects import Abstract, Container, Frame, Instance, is_expr, sequence
from preflight.python.position import Flow
from preflight.vocabulary.values import Cause, Const, Expr, unknown

SAMPLE = "sample"
"""The key of a loader's state for one sample as its data set gives it."""
COLLATE = "collate"
"""The key for the function of the program's own that makes batches of samples."""
STEP = "step"
"""The key for the bytes that a round of the program's loop keeps for one sample."""


def rehearse(
    ev: Evaluator, node: ast.For | ast.AsyncFor, over: Abstract, frame: Frame, body: Callable[[Abstract], Flow]
) -> None:
    """Interpret the body of a loop over an object for one sample, if that is a loader whose samples are known, and the
    loop trains. Programs that speak of CUDA are left alone: what they take of a GPU needs a law of the whole model."""
    if ev.ledger is not None or id(node) in ev.rehearsed or "cuda" in frame.module.source.text or not _trains(node):
        return
    ev.rehearsed.add(id(node))
    loaders = list[Instance]()

    def first() -> Abstract | None:
        return _of(over, ev, loaders) if _is_loader(over) else _item(ev, node.iter, frame, loaders)

    size = _kept_by(ev, frame, first, body)
    for loader in loaders[:1] if size is not None else ():
        loader.state[STEP] = size


def rehearse_step(
    ev: Evaluator, frame: Frame, loader: Callable[[], Abstract | None], step: Callable[[Abstract], Abstract]
) -> None:
    """The same for a training whose loop is a library's: `loader` makes what it loops over, `step` gives the loss of a
    batch. What they interpret counts as not interpreted: the program's own calls of it are still to come."""
    loaders = list[Instance]()
    interpreted = {node: dict(frames) for node, frames in ev.interpreted.items()}
    instances = {node: list(made) for node, made in ev.instances.items()}

    def first() -> Abstract | None:
        made = loader()
        return _of(made, ev, loaders) if made is not None else None

    def body(item: Abstract) -> Flow:
        step(item)
        if ev.ledger is not None:
            ev.ledger.backward()
        return "next"

    size = _kept_by(ev, frame, first, body)
    ev.interpreted, ev.instances = interpreted, instances
    for made in loaders[:1] if size is not None else ():
        made.state[STEP] = size
        if made.record is not None and size is not None:
            ev.steps_of_loaders[id(made.record.node)] = size


def _kept_by(
    ev: Evaluator, frame: Frame, first: Callable[[], Abstract | None], body: Callable[[Abstract], Flow]
) -> Expr | None:
    """The bytes that a step keeps of the sample that `first` gives; its writes are undone."""
    ledger = Ledger()

    def run() -> Flow:
        item = first()
        if item is not None:
            ledger.given.update(array.storage for array in _arrays(item))
            ledger.alive.append(item)
            return body(item)
        return "next"

    with ev.unrecorded(frame):
        ev.ledger = ledger
        try:
            ev.speculate(None, run)
        finally:
            ev.ledger = None
    return ledger.bytes_of_step()


def step_of(loader: Instance) -> Expr | None:
    """The bytes that a round of the loop over a loader keeps for one sample; None: not known."""
    found = loader.state.get(STEP)
    return found if is_expr(found) else None  # type: ignore[arg-type,return-value]


def _trains(node: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop has a backward pass, and no loop inside it has one."""
    inner = [one for one in ast.walk(node) if isinstance(one, (ast.For, ast.AsyncFor)) and one is not node]
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    backward = any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in calls)
    return backward and not any(_trains(one) for one in inner)


def _item(ev: Evaluator, node: ast.expr, frame: Frame, loaders: list[Instance]) -> Abstract | None:
    """What a loop over `loader`, `enumerate(loader)`, `zip(a, b)` or `tqdm(loader)` gets."""
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and node.args:
        inner = [_item(ev, one, frame, loaders) for one in node.args]
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "enumerate" and inner[0] is not None:
            return sequence([unknown("the round of a loop", cause=Cause.run_time), inner[0]], "tuple")
        if name == "zip":
            found = [one for one in inner if one is not None]
            return sequence(found, "tuple") if len(found) == len(inner) else None
        if inner[0] is not None:
            return inner[0]
    return _of(ev.evaluate(node, frame), ev, loaders)


def _is_loader(value: Abstract) -> bool:
    return isinstance(value, Instance) and SAMPLE in value.state


def sample_of(loader: Abstract | None) -> Abstract | None:
    """One sample of a loader; None where it is not known."""
    return loader.state.get(SAMPLE) if isinstance(loader, Instance) else None  # type: ignore[return-value]


def _of(value: Abstract, ev: Evaluator, loaders: list[Instance]) -> Abstract | None:
    """A batch of one sample of a loader; None for anything else."""
    if not isinstance(value, Instance) or SAMPLE not in value.state:
        return None
    loaders.append(value)
    sample, own = value.state[SAMPLE], value.state.get(COLLATE)
    return ev.call(own, (sequence([sample]),)) if own is not None else _batch(sample)  # type: ignore[arg-type,list-item]


def _batch(sample: Abstract, depth: int = 0) -> Abstract:
    """A batch of one sample, as the default collate function makes it."""
    array = array_of(sample)
    if array is not None:
        return derived(sample, Array((Const(1), *array.shape), array.dtype))
    if isinstance(sample, Container) and not sample.open and depth < 8:
        items = {key: _batch(value, depth + 1) for key, value in sample.items.items()}
        return Container(sample.kind, items, sample.origin)
    text = isinstance(sample, Const) and isinstance(sample.value, str)
    return sample if text or not is_expr(sample) else derived(sample, Array((Const(1),), "int64"))


def _arrays(value: Abstract, depth: int = 0) -> list[Array]:
    array = array_of(value)
    if array is not None:
        return [array]
    items = list(value.items.values()) if isinstance(value, Container) and depth < 8 else []
    return [one for item in items for one in _arrays(item, depth + 1)]
