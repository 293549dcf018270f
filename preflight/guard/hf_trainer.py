"""transformers' Trainer whose training step goes on in parts where memory runs out, with the same gradients.

The trainer's own `training_step` runs each part: it moves the inputs, computes the loss and calls backward. Where the
loss is divided by the tokens of the whole step (`num_items_in_batch`), parts add up; else each part has its share.
Which of the two it is, is tried with a few samples.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from . import same_run
from .halving import Loop, Run, go
from .parts import samples
from .trainers import TrainerCallback

NEEDED = ("training_step", "compute_loss", "_prepare_inputs", "add_callback", "args", "accelerator", "model")
IGNORED = -100
"""The label of tokens that do not count."""


def trainer(given: Any) -> Any:
    """The same trainer, with phases recorded and steps that are halved. One that is not known, or where halving is not
    possible, is only recorded, and a line says so."""
    why = _why_not(given)
    if hasattr(given, "add_callback"):
        given.add_callback(TrainerCallback())
    if why:
        sys.stderr.write(f"preflight guard: the trainer is recorded, its steps are not halved: {why}\n")
        return given
    real = given.training_step
    loops: dict[int, Loop] = {}

    @functools.wraps(real)
    def training_step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        import torch

        loop = loops.setdefault(id(model), Loop(model))
        loop.follow(getattr(given.optimizer, "optimizer", given.optimizer))
        found = go(_TrainerRun(given, real, model, inputs, num_items_in_batch, loop), False)
        return torch.tensor(found, device=given.args.device)

    given.training_step = training_step
    return given


def _why_not(given: Any) -> str:
    missing = [name for name in NEEDED if not hasattr(given, name)]
    if missing:
        return f"this version of transformers has no {missing[0]}"
    takes = list(inspect.signature(given.training_step).parameters)
    if takes[:2] != ["model", "inputs"] or "num_items_in_batch" not in takes:
        return "this version of transformers has another training_step"
    arguments = given.args
    if getattr(arguments, "auto_find_batch_size", False):
        return "auto_find_batch_size is on, and starts the training again itself"
    if getattr(given, "is_deepspeed_enabled", False) or getattr(given, "is_fsdp_enabled", False):
        return "ranks exchange parts of the model within a step"
    if getattr(arguments, "world_size", 1) > 1 or getattr(arguments, "n_gpu", 1) > 1:
        return "several GPUs train together; preflight run --retry starts all of them again"
    return ""


class _TrainerRun(Run):
    """One batch of a trainer."""

    def __init__(self, given: Any, real: Any, model: Any, inputs: Any, items: Any, loop: Loop) -> None:
        self._trainer, self._real, self._items = given, real, items
        super().__init__(self._loss, inputs, model, None, tokens_or_samples, loop, 1)

    def _loss(self, part: Any) -> Any:
        inputs = self._trainer._prepare_inputs(part)
        return self._trainer.compute_loss(self._model, dict(inputs), num_items_in_batch=self._items)

    def one(self, piece: Any, share: float) -> float:
        with _weighted(self._trainer, 1.0 if self.loop.adds_up else share):
            return float(self._real(self._model, piece, self._items))

    def whole(self, losses: list[float], counts: list[float]) -> float:
        return sum(losses) if self.loop.adds_up else super().whole(losses, counts)

    def compared(self, part: Any) -> str:
        """Tries both: models take `num_items_in_batch` and divide by it, or take it and ignore it."""
        found = super().compared(part)
        if found and self._items is not None:
            self.loop.adds_up = True
            found = super().compared(part)
        return found

    def why_not(self, sure: bool) -> str:
        config = getattr(self._trainer.model, "config", None)
        if getattr(config, "output_router_logits", False):
            return same_run.REASONS[same_run.BALANCED]
        return super().why_not(sure)


def tokens_or_samples(batch: Any) -> float:
    """What a mean loss divides by: the labels that count, where each token has one; else the samples."""
    labels = batch.get("labels") if hasattr(batch, "get") else None
    if labels is not None and getattr(labels, "ndim", 1) == 2 and not labels.is_floating_point():
        return float((labels != IGNORED).sum())
    return float(samples(batch))


@contextlib.contextmanager
def _weighted(given: Any, share: float) -> Iterator[None]:
    """The trainer with a share of its loss."""
    if share == 1.0:
        yield
        return
    own, real = given.__dict__.get("compute_loss"), given.compute_loss

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        return (found[0] * share, *found[1:]) if isinstance(found, tuple) else found * share

    given.compute_loss = compute_loss
    try:
        yield
    finally:
        if own is None:
            del given.compute_loss
        else:
            given.compute_loss = own
