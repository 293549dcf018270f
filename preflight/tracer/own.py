"""Models of the project's own classes, and the step of its training loop, both read and not executed (`reading`).

`model`: {"sources": {path: text}, "imports": {path: {"level:name": path}}, "model": template, "step": {"path", "line",
"column" (the loop), "batch": template, "names": {name: template}} or {"method": "training_step", ...}, "given": {key:
value}}. A template describes a value: {"const": value}, {"given": key}, {"list"|"tuple": [...]}, {"dict": [[key,
template]]}, {"own": [path, name]}, {"library": name}, {"new": {"of", "args", "kwargs"}},
{"tensor": {"shape", "dtype"}}, {"model": true}, {"unread": why}.
"""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any

import torch
from torch import nn

from . import building
from .building import Output
from .cuda import without_autocast
from .reading.attributes import attribute
from .reading.limits import checked
from .reading.reader import Reader
from .reading.statements import NEXT, assign, entered, execute
from .reading.stopped import Stopped
from .reading.values import Frame, Unread, truth

FRAMES = 12_000
"""Frames of Python's own that a reading may take: some 40 for each call of the project's within another."""
_BATCH, _NAMES = "batch", "names"


class Step(nn.Module):
    """A model with a step of its training loop: from the batch to the loss that `backward` is called on."""

    def __init__(self, inner: nn.Module, reader: Reader, model: dict[str, Any]) -> None:
        super().__init__()
        self.inner = inner
        self._read = reader
        self._model = model
        self._names = {name: self._named(template) for name, template in model["step"].get(_NAMES, {}).items()}

    def _named(self, template: Any) -> Any:
        """The value of a name that the loop uses; it was there before the loop."""
        try:
            found = self._value(template)
        except Stopped as stopped:
            return Unread(str(stopped))
        if isinstance(found, nn.Module) and found is not self.inner and any(True for _ in found.parameters()):
            return Unread("a loss has parameters of its own")
        return found

    def before(self) -> list[torch.Tensor]:
        """Tensors that were there before the step, beside the model's: weights of classes."""
        held = [one for one in self._names.values() if isinstance(one, torch.Tensor)]
        modules = [one for one in self._names.values() if isinstance(one, nn.Module) and one is not self.inner]
        return [*held, *(buffer for one in modules for buffer in one.buffers())]

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own names, as its program has them."""
        return self.inner.named_modules(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.named_buffers(*args, **kwargs)

    def checkpoints_in(self, again: Any) -> None:
        """What `torch.utils.checkpoint` computes again in, where the program calls it."""
        self._read.again = again

    def forward(self, **batch: Any) -> Any:
        step = self._model["step"]
        outside = any("autocast(" in text for text in self._read.sources.values())
        with torch.device("meta"):
            if outside:
                with without_autocast():
                    return self._step(step, batch)
            return self._step(step, batch)

    def _step(self, step: dict[str, Any], batch: dict[str, Any]) -> Any:
        if "method" in step:
            return self._method(step, batch)
        scope = self._read.scope(step["path"])
        loop = next(
            (
                node
                for node in ast.walk(scope.tree)
                if isinstance(node, (ast.For, ast.While))
                and (node.lineno, node.col_offset) == (step["line"], step["column"])
            ),
            None,
        )
        if loop is None:
            raise Stopped("the loop that trains is not found", step["path"], step["line"])
        frame = Frame(scope)
        frame.variables.update(self._names)
        taken = {one.untyped_storage()._cdata for one in batch.values()}
        if isinstance(loop, ast.For):
            assign(self._read, loop.target, self._taken(step[_BATCH], batch), frame)
        batch.clear()
        loss = _until_backward(self._read, loop.body, frame)
        if loss is None:
            raise Stopped("no backward pass is found in the loop", step["path"], step["line"])
        kept = {
            str(name): one
            for name, one in frame.variables.items()
            if isinstance(one, torch.Tensor) and one is not loss and one.untyped_storage()._cdata not in taken
        }
        frame.variables.clear()
        return Output(loss, **kept)

    def _method(self, step: dict[str, Any], batch: dict[str, Any]) -> Any:
        """`training_step(self, batch, batch_idx)` of a LightningModule."""
        method = attribute(self._read, self.inner, step["method"])
        taken = [self._taken(step[_BATCH], batch)]
        batch.clear()
        if len(method.function.node.args.args) > 2:
            taken.append(0)
        found = self._read.call(method, taken, {})
        loss = found.get("loss") if isinstance(found, dict) else found
        if not isinstance(loss, torch.Tensor) or loss.dim():
            raise Stopped("training_step() returns no loss")
        return Output(loss)

    def _taken(self, template: Any, batch: dict[str, Any]) -> Any:
        """The item of the loop: its tensors are those of the batch, in order."""
        tensors = iter(list(batch.values()))

        def made(part: Any) -> Any:
            return next(tensors) if isinstance(part, dict) and "tensor" in part else None

        return value_of(self._read, template, self._model.get("given", {}), made)

    def _value(self, template: Any) -> Any:
        def made(part: Any) -> Any:
            return self.inner if isinstance(part, dict) and "model" in part else None

        return value_of(self._read, template, self._model.get("given", {}), made)


def _until_backward(reader: Reader, body: list[ast.stmt], frame: Frame) -> torch.Tensor | None:
    """Follow the statements of a round up to its backward pass; the loss.

    A statement that is not known leaves the names that it gives values to unknown. It ends the reading if it runs the
    model, or gives a tensor to what may be another one.
    """
    for statement in body:
        ends = _backward_in(statement)
        if ends is not None and isinstance(statement, ast.Expr):
            loss = reader.evaluate(ends, frame)
            if not isinstance(loss, torch.Tensor) or loss.dim():
                raise Stopped("what backward() is called on is no loss", frame.scope.path, statement.lineno)
            return loss
        if ends is not None and isinstance(statement, (ast.With, ast.If, ast.Try)):
            inner = _inside(reader, statement, frame)
            if inner is not None:
                return inner
            continue
        if ends is not None:
            raise Stopped("how backward() is reached is not read", frame.scope.path, statement.lineno)
        try:
            how, _ = execute(reader, statement, frame)
        except Stopped as stopped:
            if _runs_model(statement, frame) or _takes_tensor(statement, frame):
                raise
            why = str(stopped)
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    frame.variables[node.id] = Unread(why)
            continue
        if how != NEXT:
            raise Stopped("the round ends before a backward pass", frame.scope.path, statement.lineno)
    return None


def _inside(reader: Reader, statement: Any, frame: Frame) -> torch.Tensor | None:
    """The same for the statements of a `with`, an `if` or a `try` that has the backward pass."""
    if isinstance(statement, ast.If):
        body = statement.body if truth(reader.evaluate(statement.test, frame)) else statement.orelse
        return _until_backward(reader, body, frame)
    if isinstance(statement, ast.Try):
        return _until_backward(reader, statement.body, frame)
    with entered(reader, statement, frame):
        return _until_backward(reader, statement.body, frame)


def _backward_in(statement: ast.stmt) -> ast.expr | None:
    """What backward is called on in a statement: `loss.backward()`, `scaler.scale(loss).backward()`,
    `accelerator.backward(loss)`."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ("backward", "manual_backward"):
            if node.args:
                return node.args[0]
            holder = node.func.value
            if isinstance(holder, ast.Call) and ast.unparse(holder.func).endswith(".scale") and len(holder.args) == 1:
                return holder.args[0]
            return holder
    return None


def _runs_model(statement: ast.stmt, frame: Frame) -> bool:
    """Whether a statement names a module: it may run it."""
    return any(
        isinstance(node, ast.Name) and isinstance(frame.variables.get(node.id), nn.Module)
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for node in ast.walk(call)
    )


_OF_TENSORS = frozenset({"size", "shape", "item", "numel", "dim", "ndim", "device", "dtype"})
"""Attributes that are no tensors: `meter.update(loss.item(), x.size(0))` gives numbers to a meter."""


def _takes_tensor(statement: ast.stmt, frame: Frame) -> bool:
    """Whether a call of a statement gets a tensor: a teacher, say, whose weights and activations nobody counted."""

    def names_tensor(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS:
            return False
        if isinstance(node, ast.Name):
            return isinstance(frame.variables.get(node.id), torch.Tensor)
        return any(map(names_tensor, ast.iter_child_nodes(node)))

    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(names_tensor(one) for call in calls for one in (*call.args, *call.keywords))


def value_of(reader: Reader, template: Any, given: dict[str, Any], special: Any = None) -> Any:
    """The value that a template describes. Raises Stopped."""
    found = special(template) if special is not None else None
    if found is not None:
        return found
    kind, inner = next(iter(template.items()))

    def of(part: Any) -> Any:
        return value_of(reader, part, given, special)

    if kind == "const":
        return inner
    if kind == "given":
        if inner not in given or given[inner] is None:
            raise Stopped(f"{inner} is not known")
        return given[inner]
    if kind in ("list", "tuple"):
        return [of(one) for one in inner] if kind == "list" else tuple(of(one) for one in inner)
    if kind == "dict":
        return {key: of(one) for key, one in inner}
    if kind == "own":
        return reader.scope(inner[0]).look_up(inner[1])
    if kind == "library":
        return reader.named(inner)
    if kind == "new":
        args, kwargs = [of(one) for one in inner["args"]], {key: of(one) for key, one in inner["kwargs"].items()}
        return reader.call(of(inner["of"]), args, kwargs)
    return Unread(str(inner))


def build(model: dict[str, Any], setup: dict[str, Any], dtypes: dict[str, torch.dtype]) -> nn.Module:
    """The model on meta in training mode, with its step. Raises Stopped, which is a CannotBuild."""
    importlib.import_module("torch._dynamo")  # torch does at its first operation, and keeps the frame that ran it
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))
    reader = Reader(model["sources"], model["imports"])
    with torch.device("meta"):
        inner = value_of(reader, model["model"], model.get("given", {}))
    if not isinstance(inner, nn.Module):
        raise Stopped("what is trained is no module")
    inner = inner.to("meta").train().to(dtypes[setup.get("weights", "fp32")])
    building.freeze(inner, setup.get("frozen", ()))
    if setup.get("peft") or setup.get("quantization"):
        raise Stopped("adapters and quantised weights of a class of the project are not read")
    with torch.device("meta"):
        return Step(inner, reader, model)


def inputs(model: dict[str, Any], point: dict[str, int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A batch on meta: the tensors of the loop's item, in order. Point: b, i (side of an image), s (length)."""
    found: dict[str, torch.Tensor] = {}
    given = model.get("given", {})

    def size(one: Any) -> int:
        value = point[one] if isinstance(one, str) and one in point else given.get(one) if isinstance(one, str) else one
        if not isinstance(value, int):
            raise Stopped(f"the size {one} of a batch is not known")
        return value

    for tensor in _tensors(model["step"][_BATCH]):
        kind = getattr(torch, tensor["dtype"])
        shape = [size(one) for one in tensor["shape"]]
        made = torch.empty(shape, dtype=dtype if kind is torch.float32 else kind, device="meta")
        found[str(len(found))] = checked(made)
    return found


def _tensors(template: Any) -> list[dict[str, Any]]:
    """The tensors of a template, in order."""
    if isinstance(template, list):
        return [found for one in template for found in _tensors(one)]
    if not isinstance(template, dict):
        return []
    return [template["tensor"]] if "tensor" in template else _tensors(list(template.values()))
