"""Steps and evaluations that go on with half the batch where memory runs out, exactly, or not at all."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import same_run
from .memory_errors import OutOfMemory, classify, gib, words
from .parts import CannotSplit, elements, joined, samples, split
from .phases import record
from .ranks import Ranks
from .release import RandomState, free

TOLERANCE = 1e-3
"""How far the loss of a few samples may be from the mean of its parts, relatively: arithmetic in 16 bits."""


class CannotHalve(RuntimeError):
    """Memory ran out, and the step cannot be run in parts; the message says why.

    `out_of_memory`: what ran out, for whoever asks `classify`.
    """

    def __init__(self, text: str, found: OutOfMemory | None = None) -> None:
        super().__init__(text)
        self.out_of_memory = found


class Loop:
    """What is known of the steps of one model: the parts that its batches are run in."""

    def __init__(self, model: Any) -> None:
        self.parts = 1
        self.checked = self.adds_up = False
        self.proved = 0
        """Elements of the largest batch that held in these parts, beside gradients of earlier batches."""
        self.stepping = False
        """An optimizer step began, and did not end."""
        self.ranks = Ranks(model)
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def follow(self, optimizer: Any) -> None:
        """Whether its steps begin and end: one that stops half-way leaves parameters that nobody may train on."""
        if optimizer is None or optimizer in self._optimizers:
            return
        self._optimizers.add(optimizer)
        optimizer.register_step_pre_hook(lambda *_: self._set(True))
        optimizer.register_step_post_hook(lambda *_: self._set(False))

    def _set(self, stepping: bool) -> None:
        self.stepping = stepping


_loops: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()


def step(
    loss_of: Callable[[Any], Any],
    batch: Any,
    model: Any,
    optimizer: Any = None,
    *,
    scaler: Any = None,
    count: Callable[[Any], Any] = samples,
    same_run: bool = False,
    floor: int = 1,
) -> float:
    """Forward and backward of one batch; its loss. In parts, if memory runs out.

    `loss_of(part)` returns the mean loss over what `count(part)` counts: samples, unless it says otherwise. Gradients
    are added to those that are there, so batches may be accumulated before an optimizer step. Raises the error itself
    where the process cannot go on after it, and CannotHalve where parts would be another run.
    """
    record()
    loop = _loops.get(model)
    if loop is None:
        loop = _loops[model] = Loop(model)
    loop.follow(optimizer)
    return go(Run(loss_of, batch, model, scaler, count, loop, floor), same_run)


def go(run: Run, sure: bool) -> float:
    """Forward and backward of one batch, in as many parts as it takes; its loss."""
    loop = run.loop
    if loop.stepping:
        raise CannotHalve("the last optimizer step stopped half-way: start again from a checkpoint")
    loop.ranks.begin()
    before, state = run.gradients(), RandomState()
    while True:
        error: BaseException | None = None
        found = 0.0
        try:
            found = run.once(loop.parts)
        except Exception as raised:
            if classify(raised) is None:
                with contextlib.suppress(Exception):  # of the store: the error of the step is what counts
                    loop.ranks.end_with_another()
                raise
            error = raised
        failed = loop.ranks.any_failed(error is not None)
        if not failed:
            run.share()
            loop.proved = max(loop.proved, run.elements if run.accumulates else 0)
            return found
        told = classify(error)
        note = words(told) if told is not None else "another rank ran out of memory"
        if told is not None and not told.recoverable:
            loop.ranks.leave(told)
            raise CannotHalve(f"{note}: this process cannot go on", told) from error
        free(error)
        del error
        why = run.why_not(sure)
        if loop.ranks.any_failed(bool(why)):
            why = why or "another rank cannot"
            loop.ranks.leave(told)
            raise CannotHalve(f"{note}, and the step is not run in parts: {why}", told)
        run.restore(before)
        state.restore()
        loop.parts, loop.proved = loop.parts * 2, 0
        _tell(f"the step is run in {loop.parts} parts from here on, with the same gradients")


class Run:
    """One batch of one model."""

    def __init__(self, loss_of: Any, batch: Any, model: Any, scaler: Any, count: Any, loop: Loop, floor: int) -> None:
        self._loss_of, self._batch, self._model, self._scaler = loss_of, batch, model, scaler
        self._count, self.loop, self._floor = count, loop, floor
        self.elements = elements(batch)
        self.accumulates = any(bool(one.grad.any()) for one in model.parameters() if one.grad is not None)
        """Whether gradients of earlier batches are there."""

    def gradients(self) -> list[tuple[Any, Any]]:
        """Copies of the gradients that are there before; none at a step's start, and none for a batch that is no larger
        than one that held."""
        if not self.accumulates or self.elements <= self.loop.proved:
            return []
        given = [(one, one.grad) for one in self._model.parameters() if one.grad is not None]
        return [(one, grad.detach().clone()) for one, grad in given]

    def restore(self, before: list[tuple[Any, Any]]) -> None:
        """The gradients as they were."""
        for one in self._model.parameters():
            one.grad = None
        for one, grad in before:
            one.grad = grad.clone()

    def once(self, parts: int) -> float:
        """The batch in so many parts. Weights are shares of the whole, so the sum is the whole batch's mean."""
        pieces = split(self._batch, parts) if parts > 1 else [self._batch]
        counts = [float(self._count(piece)) for piece in pieces] if len(pieces) > 1 else [1.0]
        whole = sum(counts)
        total = 0.0
        for piece, number in zip(pieces, counts):
            with self.loop.ranks.apart():
                total += self.one(piece, number / whole if whole else 0.0)
        return total

    def one(self, piece: Any, share: float) -> float:
        """Forward and backward of a part, whose loss has this share of the whole; that share of its loss."""
        loss = self._loss_of(piece) * share
        (self._scaler.scale(loss) if self._scaler is not None else loss).backward()
        return float(loss.detach())

    def whole(self, losses: list[float], counts: list[float]) -> float:
        """The loss of a batch, by those of its parts."""
        return sum(loss * number for loss, number in zip(losses, counts)) / sum(counts)

    def share(self) -> None:
        """The mean gradients of all ranks, if each has its own."""
        self.loop.ranks.share(self._model.parameters())

    def why_not(self, sure: bool) -> str:
        """Why this batch is not run in more parts; "" if it is."""
        if self.loop.ranks.refusal:
            return self.loop.ranks.refusal
        if self.accumulates and self.elements <= self.loop.proved:
            return "the gradients of the earlier batches of this step are lost"
        try:
            size = samples(self._batch)
            split(self._batch, self.loop.parts * 2)
        except CannotSplit as reason:
            return str(reason)
        if size // (self.loop.parts * 2) < self._floor:
            return f"{size} samples in {self.loop.parts} parts are as few as they may be"
        if sure or self.loop.checked:
            return ""
        loss = self._loss_of if isinstance(self._loss_of, torch.nn.Module) else None
        why = same_run.of_modules(self._model, loss) or self._differs()
        self.loop.checked = not why
        return why

    def _differs(self) -> str:
        """Whether the loss of the batch is the mean of its parts, without gradients and without dropout. Of a part of
        it, where the whole does not fit even so."""
        modes = [(one, one.training) for one in self._model.modules()]
        state = RandomState()
        self._model.eval()
        try:
            pieces = 1
            while True:
                raised: BaseException | None = None
                try:
                    return self.compared(split(self._batch, pieces)[0])
                except CannotSplit as reason:
                    return str(reason)
                except Exception as failed:
                    if classify(failed) is None:
                        return f"the loss of a part cannot be computed alone ({type(failed).__name__}: {failed})"
                    raised = failed
                free(raised)
                pieces *= 2
                if samples(self._batch) // pieces < 2:
                    return "the loss of two samples cannot be computed without gradients"
        finally:
            for one, training in modes:
                one.training = training
            state.restore()

    def compared(self, part: Any) -> str:
        """Whether the loss of a part is that of its halves; "" if it is."""
        halves = split(part, 2)
        with torch.no_grad():
            whole = float(self._loss_of(part))
            counts = [float(self._count(half)) for half in halves]
            mean = self.whole([float(self._loss_of(half)) for half in halves], counts)
        if abs(whole - mean) <= TOLERANCE * max(abs(whole), abs(mean), 1e-6):
            return ""
        return (
            f"the loss of {samples(part)} samples is {whole:.6g}, and the mean of its halves {mean:.6g}: it compares "
            "samples, draws random numbers, or is weighted by something else (count=)"
        )


def evaluate(function: Callable[[Any], Any], batch: Any, *, floor: int = 1) -> Any:
    """`function(batch)` without gradients, on halves of the batch where memory runs out; the results joined in order.

    The training batch is not touched.
    """
    parts = 1
    while True:
        error: BaseException | None = None
        state = RandomState()
        try:
            with torch.no_grad():
                pieces: Iterator[Any] = iter(split(batch, parts) if parts > 1 else [batch])
                return joined([function(piece) for piece in pieces])
        except Exception as raised:
            found = classify(raised)
            if found is None or not found.recoverable:
                raise
            if samples(batch) // (parts * 2) < floor:
                raise CannotHalve(
                    f"{words(found)} in the evaluation of {samples(batch)} samples in {parts} parts", found
                ) from raised
            error = raised
        free(error)
        del error
        state.restore()
        parts *= 2
        _tell(f"the evaluation is run in {parts} parts")


def _tell(text: str) -> None:
    recorder = record()
    recorder.note("guard", text=text)
    now = recorder.counters.now().get("allocated")
    sys.stderr.write(f"preflight guard: memory ran out; {text}{f' ({gib(now)} are held)' if now else ''}\n")
