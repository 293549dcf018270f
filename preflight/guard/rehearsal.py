"""The worst batch, an optimizer step, a validation and a save before the first real step: what will not fit dies now.

Nothing of it is left: parameters, buffers, random numbers, gradients and the optimizer's states are as they were. What
the user's own functions write elsewhere (loggers, metrics, averages of weights) is theirs to leave out.
"""

from __future__ import annotations

import heapq
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from .halving import step
from .memory_errors import gib
from .parts import samples
from .phases import record
from .release import RandomState, free

NO_CHANGE = ("lr", "weight_decay")
"""Settings of an optimizer that are 0 in a dry step."""


def worst_batch(loader: Any, length: Callable[[Any], float] | None = None) -> Any:
    """The batch that a loader could make of its longest samples: of those whose `length(sample)` is highest.

    Without `length`, a column `length` or `lengths` of the data set is taken. Raises ValueError where there is neither.
    """
    data, size = loader.dataset, loader.batch_size
    if size is None:
        raise ValueError("guard.worst_batch: the loader makes no batches of its own")
    lengths = _column(data) if length is None else [length(data[index]) for index in range(len(data))]
    longest = heapq.nlargest(size, range(len(lengths)), key=lambda index: lengths[index])
    return loader.collate_fn([data[index] for index in longest])


def _column(data: Any) -> Sequence[float]:
    for name in ("length", "lengths"):
        found = getattr(data, name, None)
        if found is None and name in (getattr(data, "column_names", None) or ()):
            found = data[name]
        if found is not None and not callable(found) and hasattr(found, "__len__") and len(found) == len(data):
            return list(found)
    raise ValueError("guard.worst_batch: state length=, a function of one sample")


def rehearse(
    loss_of: Callable[[Any], Any],
    batch: Any,
    model: Any,
    optimizer: Any,
    *,
    validate: Callable[[], Any] | None = None,
    save: Callable[[str], Any] | None = None,
    scaler: Any = None,
    count: Callable[[Any], Any] = samples,
    same_run: bool = False,
) -> dict[str, dict[str, int]]:
    """One step of the worst batch, an optimizer step that changes nothing, `validate()` and `save(folder)`; then all is
    as it was. The peaks by phase, where there are counters.

    The batch is halved as in `guard.step`, and the size that held is kept. Raises what else runs out of memory.
    """
    recorder = record()
    before, steps = _State(model), recorder.steps
    try:
        step(loss_of, batch, model, optimizer, scaler=scaler, count=count, same_run=same_run)
        dry_step(optimizer)
        optimizer.zero_grad(set_to_none=True)
        if validate is not None:
            recorder.enter("validation")
            validate()
        if save is not None:
            recorder.enter("save")
            folder = tempfile.mkdtemp(prefix="preflight-rehearsal-")
            try:
                save(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        before.restore()
        recorder.enter("step")
        recorder.steps = steps
        free()
    peaks = {phase: dict(tiers) for phase, tiers in recorder.peaks.items()}
    most = max((tiers.get("reserved", 0) for tiers in peaks.values()), default=0)
    if most:
        sys.stderr.write(f"preflight guard: rehearsed; the peak is {gib(most)}\n")
    return peaks


def dry_step(optimizer: Any) -> None:
    """A step of the optimizer that makes its states and temporaries and changes no parameter. States that were there
    already stay, and then nothing is run: they would count the step."""
    if any(optimizer.state.values()):
        return
    kept = [{name: group[name] for name in NO_CHANGE if name in group} for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None:
                one.grad.detach().zero_()  # a NaN times a rate of 0 is still one
        for name in NO_CHANGE:
            if name in group:
                group[name] = group[name] * 0
    try:
        optimizer.step()
    finally:
        for group, values in zip(optimizer.param_groups, kept):
            group.update(values)
        optimizer.state.clear()


class _State:
    """What a rehearsal may change in a model, and the random numbers."""

    def __init__(self, model: Any) -> None:
        self._model, self._random = model, RandomState()
        self._modes = [(one, one.training) for one in model.modules()]
        self._buffers = [(one, one.detach().clone()) for one in model.buffers()]
        self._gradients = [(one, one.grad) for one in model.parameters()]
        if any(grad is not None for _, grad in self._gradients):
            raise ValueError("guard.rehearse: gradients are there already: call it before the first step")

    def restore(self) -> None:
        import torch

        with torch.no_grad():
            for one, kept in self._buffers:
                one.copy_(kept)
        for one, training in self._modes:
            one.training = training
        for one, _ in self._gradients:
            one.grad = None
        self._random.restore()
