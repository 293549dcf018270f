"""`from preflight import guard`: acts in the user's process. It records peaks, and goes on where memory ran out.

Everything here is stand-alone: the standard library and torch, Python 3.9 and later, nothing else of preflight, whose
dependencies may clash with the program's. `preflight run` loads this folder by its path, under the name
`preflight_guard`. A name below is imported when it is used; importing the package imports neither torch nor Optuna.
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "Accelerator": "trainers",
    "CannotHalve": "halving",
    "Lightning": "trainers",
    "OutOfMemory": "memory_errors",
    "SmallCard": "small_card",
    "TrainerCallback": "trainers",
    "classify": "memory_errors",
    "evaluate": "halving",
    "find_batch_size": "trainers",
    "free": "release",
    "largest_batch": "room",
    "optuna": "trials",
    "phase": "phases",
    "record": "phases",
    "rehearse": "rehearsal",
    "step": "halving",
    "trainer": "hf_trainer",
    "trial": "trials",
    "wandb": "trials",
    "worst_batch": "rehearsal",
}
"""Public name -> the module that has it."""

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{place}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(_PLACES)
