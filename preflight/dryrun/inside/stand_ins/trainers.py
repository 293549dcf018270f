"""Trainers that decide by numbers of steps or the lengths of loaders when to validate and save: their own limits."""

from __future__ import annotations

import inspect
from typing import Any

from ..patches import replace, wrap
from ..settings import Settings
from ..tape import Tape

VALIDATED = 2
"""Batches of a validation."""
_OWN_OF_GRPO = ("prompts", "prompt", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""Arguments of a reward that the trainer gives itself."""


def transformers(module: Any, settings: Settings) -> None:
    """transformers.Trainer and what extends it (TRL): as many steps as are asked for, then validation and a save."""

    def trained(real: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = self.args
        arguments.max_steps = settings.steps
        arguments.load_best_model_at_end = False
        for kind in ("eval", "save"):
            if str(getattr(getattr(arguments, f"{kind}_strategy", ""), "value", "")) == "steps":
                setattr(arguments, f"{kind}_steps", settings.steps)
        _without_services(self.callback_handler)
        return real(self, *args, **kwargs)

    wrap(module.Trainer, "train", trained)


def _without_services(handler: Any) -> None:
    """Callbacks that record the run with a service, which cannot be reached."""
    for one in list(handler.callbacks):
        if type(one).__module__.startswith("transformers.integrations") and "TensorBoard" not in type(one).__name__:
            handler.callbacks.remove(one)


def grpo(module: Any) -> None:
    """trl's GRPOTrainer: columns of a made-up data set that its rewards ask for. Those of trl take talks."""

    def made(
        real: Any, self: Any, model: Any, reward_funcs: Any, args: Any = None, train_dataset: Any = None, *rest: Any,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if getattr(train_dataset, "_dry_made_up", False):
            functions = reward_funcs if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
            for name in sorted({name for one in functions if callable(one) for name in _asked_of_rows(one)}):
                if name not in train_dataset.column_names:
                    train_dataset = train_dataset.add_column(name, [train_dataset[0][name]] * len(train_dataset))
            if any(str(getattr(one, "__module__", "")).startswith("trl.") for one in functions):
                talk = [{"role": "user", "content": train_dataset[0]["prompt"]}]
                rows = [talk] * len(train_dataset)
                if "prompt" in train_dataset.column_names:
                    train_dataset = train_dataset.remove_columns("prompt")
                train_dataset = train_dataset.add_column("prompt", rows)
        real(self, model, reward_funcs, args, train_dataset, *rest, **kwargs)

    wrap(module.GRPOTrainer, "__init__", made)


def _asked_of_rows(function: Any) -> list[str]:
    """Arguments of a reward that come from columns: those without a default that the trainer does not give itself."""
    try:
        asked = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in asked if one.default is one.empty and one.name not in _OWN_OF_GRPO
            and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]  # fmt: skip


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
