"""Checkpoints: kept in memory by name instead of being written, and found there when the program loads them again."""

from __future__ import annotations

import os
from typing import Any

import torch

from .device import Device
from .loops import Loops
from .patches import wrap
from .tape import Tape


def _name(file: Any) -> str | None:
    """The path that a file or its name stands for."""
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    return os.path.abspath(os.fspath(name)) if isinstance(name, (str, os.PathLike)) else None


def install(tape: Tape, device: Device, loops: Loops) -> None:
    """torch.save writes an empty file; torch.load gives back what was saved."""
    saved: dict[str, Any] = {}

    def save(real: Any, what: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        name = _name(file)
        tape.saving += 1
        try:
            kept = device.to_host(what)
        finally:
            tape.saving -= 1
        loops.saved = loops.saved or loops.trained
        tape.mark("saved")
        if name is None:
            return
        saved[name] = kept
        if name and isinstance(file, (str, os.PathLike)):
            with open(file, "wb"):
                pass

    def load(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
        known = saved.get(_name(file) or "")
        return known if known is not None else real(file, *args, **kwargs)

    def renamed(real: Any, source: Any, into: Any, **kwargs: Any) -> Any:
        done = real(source, into, **kwargs)
        name, to = _name(source), _name(into)
        if name in saved and to is not None:
            saved[to] = saved.pop(name)
        return done

    def strict(real: Any, module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """An empty state stands for weights that were not downloaded."""
        return real(module, state, *args, **kwargs) if state else None

    wrap(torch, "save", save)
    wrap(torch, "load", load)
    wrap(os, "rename", renamed)
    wrap(os, "replace", renamed)
    wrap(torch.nn.Module, "load_state_dict", strict)
