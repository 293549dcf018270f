"""Trainers that decide by numbers of steps or the lengths of loaders when to validate and save: their own limits."""

from __future__ import annotations

from typing import Any

from ..patches import replace, wrap
from ..settings import Settings
from ..tape import Tape

VALIDATED = 2
"""Batches of a validation."""


def transformers(module: Any, settings: Settings) -> None:
    """transformers.Trainer and what extends it (TRL): as many steps as are asked for, then validation and a save."""

    def trained(real: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = self.args
        arguments.max_steps = settings.steps
        arguments.load_best_model_at_end = False
        for kind in ("eval", "save"):
            if str(getattr(getattr(arguments, f"{kind}_strategy", ""), "value", "")) == "steps":
                setattr(arguments, f"{kind}_steps", settings.steps)
        self.callback_handler.pop_callback("WandbCallback")
        return real(self, *args, **kwargs)

    wrap(module.Trainer, "train", trained)


def lightning(module: Any, settings: Settings) -> None:
    """Lightning's Trainer validates after the last batch of an epoch: the epoch is made short."""

    def made(real: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        accumulated = kwargs.get("accumulate_grad_batches") or 1
        kwargs.update(
            limit_train_batches=settings.steps * accumulated, limit_val_batches=VALIDATED, max_epochs=1,
            limit_test_batches=VALIDATED, num_sanity_val_steps=0,
        )  # fmt: skip
        for name in ("max_steps", "fast_dev_run", "check_val_every_n_epoch", "val_check_interval", "min_epochs",
                     "min_steps", "overfit_batches", "max_time"):  # fmt: skip
            kwargs.pop(name, None)
        real(self, *args, **kwargs)

    wrap(module.Trainer, "__init__", made)


def one_rank(module: Any, tape: Tape) -> None:
    """Lightning starts the program again for every other rank: the first alone is run."""

    def started(*_: Any, **__: Any) -> None:
        tape.assume("Lightning's other ranks were not started: the first alone was run")

    replace(module._SubprocessScriptLauncher, "_call_children_scripts", started)
