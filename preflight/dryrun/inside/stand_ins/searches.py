"""Values that a program asks of its search itself: Optuna's trials, and the configuration of a W&B sweep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..patches import replace, wrap
from ..settings import Settings
from ..tape import Tape

DRAWN = "the values are those of one trial of its search: preflight dry-run FILE runs the corners of a study"
_SUGGESTIONS = ("suggest_int", "suggest_float", "suggest_categorical", "suggest_uniform", "suggest_loguniform",
                "suggest_discrete_uniform")  # fmt: skip


class Searches:
    """One corner of a search space, where a run is of one; else what the search draws, which is said."""

    def __init__(self, settings: Settings, tape: Tape) -> None:
        self._values, self._largest, self._tape = settings.searched, settings.largest, tape
        self._sweeps: dict[str, Any] = {}

    def optuna(self, module: Any) -> None:
        """optuna.trial._trial: every `suggest_*`."""
        for name in _SUGGESTIONS:
            wrap(module.Trial, name, self._categorical if name == "suggest_categorical" else self._number)

    def _number(self, real: Any, trial: Any, name: str, low: Any, high: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._values:
            return self._drawn(real(trial, name, low, high, *args, **kwargs))
        real(trial, name, low, high, *args, **kwargs)  # the trial knows its parameters
        return self._values.get(name, high if self._largest else low)

    def _categorical(self, real: Any, trial: Any, name: str, choices: Sequence[Any]) -> Any:
        found = real(trial, name, choices)
        if not self._values:
            return self._drawn(found)
        if name in self._values:
            return next((one for one in choices if one == self._values[name]), self._values[name])
        if all(isinstance(one, (int, float)) for one in choices):
            return (max if self._largest else min)(choices)
        self._tape.assume(f"the choice {name} has its first value: {choices[0]!r}", "model.config")
        return choices[0]

    def _drawn(self, value: Any) -> Any:
        """A value that the search has drawn: others may take more."""
        self._tape.assume(DRAWN, "model.config")
        return value

    def wandb(self, module: Any) -> None:
        """wandb: `wandb.config` after `init`, and a sweep that the program makes and runs itself."""
        if not hasattr(module, "init"):
            return  # a folder of logs by this name
        wrap(module, "init", self._begun)
        replace(module, "sweep", self._sweep)
        replace(module, "agent", self._agent)

    def _begun(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """wandb.init, and then what an agent of the sweep would have put there."""
        run = real(*args, **kwargs)
        if self._values:
            sys.modules["wandb"].config.update(self._values, allow_val_change=True)
        return run

    def _sweep(self, sweep: Any, *_: Any, **__: Any) -> str:
        name = f"dry-run-{len(self._sweeps)}"
        self._sweeps[name] = sweep() if callable(sweep) else sweep
        return name

    def _agent(self, sweep_id: Any, function: Any = None, *_: Any, **__: Any) -> None:
        """One trial of the sweep: numbers at their largest, the first of other choices."""
        asked = self._sweeps.get(sweep_id)
        if function is None or asked is None:
            return
        if not self._values:
            parameters = asked.get("parameters", {}) if isinstance(asked, dict) else {}
            self._values = {name: _largest(one) for name, one in parameters.items()}
            words = ", ".join(f"{name}={value}" for name, value in self._values.items())
            self._tape.assume(f"one trial of the program's sweep was run, with {words}", "model.config")
        function()


def _largest(domain: Any) -> Any:
    """A value of a parameter of a sweep: its largest number, else its first choice."""
    if not isinstance(domain, dict):
        return domain
    choices = domain.get("values") or [domain[name] for name in ("value", "max") if name in domain]
    numbers = all(isinstance(one, (int, float)) for one in choices)
    return max(choices) if numbers and choices else next(iter(choices), None)
