"""Checkpoints: what the program saves stays in memory, and its file holds a mark by which loading finds it again."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import _IncompatibleKeys
from torch.utils._pytree import tree_map_only

from .device import Device
from .loops import Loops
from .patches import wrap
from .stand_ins import weights
from .stand_ins.arrays import Arrays
from .tape import Tape

MARK = b"saved in a dry run of preflight: "
_LENGTH = 64
_LOADED = _IncompatibleKeys([], [])


class Checkpoints:
    """What was saved, by the number in its file."""

    def __init__(self, tape: Tape, device: Device, loops: Loops, arrays: Arrays) -> None:
        self._tape, self._device, self._loops, self._arrays = tape, device, loops, arrays
        self._saved: list[Any] = []

    def save(self, real: Any, what: Any, file: Any, *_: Any, **__: Any) -> None:
        self._tape.saving += 1
        try:
            kept = tree_map_only(torch.Tensor, self._on_host, what)
        finally:
            self._tape.saving -= 1
        self._loops.note_saved()
        text = MARK + str(len(self._saved)).encode().ljust(_LENGTH - len(MARK))
        self._saved.append(kept)
        if isinstance(file, (str, os.PathLike)):
            with open(file, "wb") as opened:
                opened.write(text)
        else:
            file.write(text)

    def _on_host(self, t: Any) -> Any:
        if not isinstance(t, FakeTensor):
            return t
        copy = self._device.fake(t.shape, t.stride(), t.dtype, torch.device("cpu"))
        copy._dry_was_on = t.device
        return copy

    def load(self, real: Any, file: Any, map_location: Any = None, **kwargs: Any) -> Any:
        try:
            start = _start(file)
        except FileNotFoundError:
            if self._arrays.holds_data(file):
                return self._arrays.tensors(os.fspath(file))
            missing = weights.checkpoint(file, self._tape, weights.goes_to_gpu(map_location))
            if missing is None:
                raise
            return missing
        if not start.startswith(MARK):
            return self._read(real, file, map_location, **kwargs)
        kept = self._saved[int(start[len(MARK) :])]
        return tree_map_only(FakeTensor, lambda t: _placed(t, map_location), kept)

    def _read(self, real: Any, file: Any, map_location: Any, **kwargs: Any) -> Any:
        """A checkpoint that is there: its tensors are read to the host, and moved as a program moves them."""
        if not weights.goes_to_gpu(map_location):
            return real(file, map_location, **kwargs)
        were: set[str] = set()

        def on_host(storage: Any, location: Any) -> Any:
            were.add(str(location).partition(":")[0])
            return storage

        found = real(file, on_host, **kwargs)
        to = ("cuda" if "cuda" in were else "cpu") if map_location is None else map_location
        if isinstance(found, torch.nn.Module):
            return found.to("cuda") if weights.goes_to_gpu(to) else found
        return tree_map_only(torch.Tensor, lambda t: _placed(t, to), found)

    def state_loaded(self, real: Any, module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """A state whose weights are not there, whole or in part."""
        state = weights.filled(module, state)
        return real(module, state, *args, **kwargs) if state is not None else _LOADED

    def progress_loaded(self, real: Any, one: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """The same of an optimizer or a scaler: it begins anew."""
        return None if isinstance(state, weights.Unread) else real(one, state, *args, **kwargs)


def _start(file: Any) -> bytes:
    """The first bytes of a file, which is then where it was."""
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return opened.read(_LENGTH)
    at = file.tell()
    found = file.read(_LENGTH)
    file.seek(at)
    return found if isinstance(found, bytes) else b""


def _placed(t: Any, map_location: Any) -> Any:
    """A tensor where torch.load would put it: where it was, unless the program says another device."""
    if isinstance(map_location, dict):
        map_location = next(iter(map_location.values()), None)
    if map_location is None or callable(map_location):
        to = "cpu" if callable(map_location) else getattr(t, "_dry_was_on", "cpu")
    else:
        to = map_location
    return t.to(to)


def install(tape: Tape, device: Device, loops: Loops, arrays: Arrays) -> None:
    """Put them into torch.save, torch.load and load_state_dict."""
    checkpoints = Checkpoints(tape, device, loops, arrays)
    wrap(torch, "save", checkpoints.save)
    wrap(torch, "load", checkpoints.load)
    wrap(torch.nn.Module, "load_state_dict", checkpoints.state_loaded)
    for one in (torch.optim.Optimizer, torch.amp.GradScaler):
        wrap(one, "load_state_dict", checkpoints.progress_loaded)
