"""Trainers: recording for transformers, Lightning and Accelerate, and a search for the batch that keeps the run.

Each works as far as the library offers what it asks for, and records nothing of the rest. None imports its library.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .halving import CannotHalve
from .memory_errors import classify, words
from .phases import record
from .release import free
from .room import largest_batch


class TrainerCallback:
    """A callback of transformers' Trainer (and of TRL's): the phases that hooks of torch do not tell.

    The recorder sees forward, backward and optimizer by itself. Evaluation of models in training mode, prediction and
    saving are told by the trainer.
    """

    def __init__(self) -> None:
        self._recorder: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # events of any version that are of no interest here
            return lambda *args, **kwargs: None
        raise AttributeError(name)

    def _enter(self, phase: str) -> None:
        if self._recorder is None:
            self._recorder = record()
        self._recorder.enter(phase)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter("load" if not getattr(state, "global_step", 0) else "step")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter("validation")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter("step")

    def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **__: Any) -> None:
        self._enter("step")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter("step")  # it is called after the checkpoint was written; torch.save told its begin

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter("step")


def Lightning() -> Any:
    """A callback for Lightning's Trainer: it tells validation and saving. The loops of Lightning catch no exception
    for a callback, so it records and changes nothing."""
    library = sys.modules.get("lightning.pytorch") or sys.modules.get("pytorch_lightning")
    if library is None:
        raise RuntimeError("guard.Lightning: import lightning or pytorch_lightning first")
    base = library.Callback

    class Recording(base):  # type: ignore[misc, valid-type]
        """Phases of Lightning's loops."""

        def on_validation_start(self, *_: Any) -> None:
            record().enter("validation")

        def on_validation_end(self, *_: Any) -> None:
            record().enter("step")

        def on_save_checkpoint(self, *_: Any) -> None:
            record().enter("save")

        def on_train_batch_start(self, *_: Any) -> None:
            record().enter("step")

    return Recording()


def Accelerator(accelerator: Any) -> Any:
    """The same accelerator, whose `save_state` is told as the phase save."""
    real = accelerator.save_state

    @functools.wraps(real)
    def save_state(*args: Any, **kwargs: Any) -> Any:
        recorder = record()
        before = recorder.phase
        recorder.enter("save")
        try:
            return real(*args, **kwargs)
        finally:
            recorder.enter(before)

    accelerator.save_state = save_state
    return accelerator


def find_batch_size(
    function: Callable[..., Any] | None = None,
    *,
    starting_batch_size: int = 128,
    accumulation: int = 1,
    floor: int = 1,
    job: Any = None,
    gpu: str | None = None,
) -> Any:
    """`function(batch_size, accumulation, ...)`, called again with half the batch and twice the accumulation where
    memory runs out: the effective batch is kept. In the place of accelerate's `find_executable_batch_size`.

    The whole function starts again, so it has to make its model itself. A second call begins with the size that held.
    `job`: what it trains, as a Job or a dict of one; sizes that are not expected to fit the GPU are left out.
    """
    if function is None:
        return functools.partial(
            find_batch_size, starting_batch_size=starting_batch_size, accumulation=accumulation, floor=floor, job=job,
            gpu=gpu,
        )  # fmt: skip
    sizes = [starting_batch_size, accumulation]
    asked = [job] if job is not None else []

    @functools.wraps(function)
    def searching(*args: Any, **kwargs: Any) -> Any:
        while asked:
            begun = largest_batch(asked.pop(), sizes[0], gpu=gpu, floor=floor)
            sizes[:] = [begun, sizes[1] * (sizes[0] // begun)]
        while True:
            size, steps = sizes
            error: BaseException | None = None
            try:
                return function(size, steps, *args, **kwargs)
            except Exception as raised:
                found = classify(raised)
                if found is None or not found.recoverable:
                    raise
                if size % 2 or size // 2 < floor:
                    raise CannotHalve(f"{words(found)} with a batch of {size}, and it cannot be halved") from raised
                error = raised
            free(error)
            del error
            sizes[:] = [size // 2, steps * 2]
            sys.stderr.write(f"preflight guard: memory ran out; batch {size // 2}, accumulation {steps * 2}\n")

    return searching
