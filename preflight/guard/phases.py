"""Which phase the program is in, and the peaks of each: load, forward, backward, optimizer, validation, save.

Hooks of torch tell it. The hooks for modules are on every module for the first steps only: they find the modules that
the program calls itself, which keep one each. A step then costs five readings of counters, whatever the model.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from . import small_card
from .counters import NoCounters, counters, follow_fractions
from .loaders import Samples
from .memory_errors import classify
from .records import Writer, rank, writer
from .saves import SAVERS, Saves, path_of

PHASES = ("load", "forward", "backward", "optimizer", "validation", "generation", "save")
LOOKS = 3
"""Optimizer steps, after an optimizer was made, in which modules are looked for that the program calls itself: a study
makes a model in each trial."""
GROWN = 1.02
"""A peak is written again when it grew by so much."""
FLOORS = 512
"""Figures after optimizer steps that are kept: every one at first, then every second, and so on."""


class Recorder:
    """The phases of one process. `out`: where peaks are written; None: they are kept in memory only."""

    def __init__(self, torch: Any, out: Writer | None = None) -> None:
        self._torch, self._out = torch, out
        self.counters: NoCounters = counters(torch)
        self.phase = "load"
        self.peaks: dict[str, dict[str, int]] = {}
        self.recent: dict[str, dict[str, int]] = {}
        """The peaks since somebody cleared this: those of one trial."""
        self.steps = 0
        self.optimizing = False
        """An optimizer's step began, and has not ended: what it did to the weights is not known."""
        self.floors: list[int] = []
        self.on = True
        self._every = 1
        self._written: dict[str, int] = {}
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet()
        """Modules that the program calls itself. It may drop them: a study makes a model in each trial."""
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._depth = 0
        self._last = 0.0
        self._ooms = 0
        self.thread = threading.get_ident()
        self.samples = Samples()
        self._saves = Saves(lambda text: self._out.saves(text) if self._out is not None else None)
        self._saving = False
        self._hooks: list[Any] = []
        self._looks = LOOKS
        """The step at which modules are looked for no more."""
        self._begun = False

    # ------------------------------------------------------------------------------------------------------ phases

    def enter(self, phase: str) -> None:
        """The program is in another phase: the peaks until now belong to the one before."""
        if not self.on or threading.get_ident() != self.thread:
            return
        try:
            self._take(phase)
        except Exception as error:  # whatever torch does not offer: the program goes on unrecorded
            self._stop(error)
        self.phase = phase
        if self._out is not None:
            self._out.mark(phase, self.steps, self.samples.batches, self.samples.epoch)

    def _take(self, following: str) -> None:
        if self.counters.device == "none":
            self.counters = counters(self._torch)
        found = self.counters.take()
        kept, recent = self.peaks.setdefault(self.phase, {}), self.recent.setdefault(self.phase, {})
        for tier, size in found.items():
            kept[tier] = max(kept.get(tier, 0), size)
            recent[tier] = max(recent.get(tier, 0), size)
        most = kept.get("allocated", 0)
        new = following not in self.peaks or self.phase not in self._written
        if self._out is not None and (new or most > GROWN * self._written[self.phase] or (most and self._due())):
            self._write(following)

    def _due(self) -> bool:
        return time.monotonic() - self._last > 5.0

    def _write(self, following: str) -> None:
        """The peaks until now; `following` is where the program is if nothing is written after this."""
        out = self._out
        assert out is not None
        if not self._begun:
            self._begun = True
            out.write("start", **self._process())
        self._last = time.monotonic()
        self._written[self.phase] = self.peaks.get(self.phase, {}).get("allocated", 0)
        floors = self.floors
        out.write(
            "peaks", phase=following, peaks=self.peaks, steps=self.steps, events=self.counters.events(),
            floor=[floors[0], floors[-1], len(floors) * self._every] if floors else [], process=_host_peak(),
            gpus=self.counters.gpus, share=self.counters.share(),
            transformers=str(getattr(sys.modules.get("transformers"), "__version__", "")),
        )  # fmt: skip

    def _process(self) -> dict[str, Any]:
        torch = self._torch
        own, world = rank()
        found: dict[str, Any] = {
            "pid": os.getpid(), "rank": own, "world": world, "python": sys.version.split()[0],
            "torch": str(torch.__version__), "cuda": str(torch.version.cuda or ""), "device": self.counters.device,
        }  # fmt: skip
        card = small_card.current()
        if card is not None:
            found.update(gpu=card.name, gpu_memory=card.budget)
        elif self.counters.device == "cuda" and torch.cuda.is_initialized():
            about = torch.cuda.get_device_properties(torch.cuda.current_device())
            found.update(gpu=about.name, gpu_memory=about.total_memory)
            settings = (os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
            found["alloc_conf"] = next(filter(None, settings), "")
        return found

    def note(self, kind: str, **values: Any) -> None:
        """A line of its own, for what the guard did."""
        if self._out is not None and self.on:
            if not self._begun:
                self._write(self.phase)
            self._out.write(kind, phase=self.phase, steps=self.steps, **values)

    def _stop(self, error: Exception) -> None:
        self.on = False
        if self._out is not None:
            self._out.write("stopped", why=f"{type(error).__name__}: {error}"[:300])

    # ------------------------------------------------------------------------------------------------------- hooks

    def _entered(self, module: Any, _: Any) -> None:
        """The forward pass of a module begins; of a module that the program calls itself, if nothing is under way."""
        if self._torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth > 1 or threading.get_ident() != self.thread or self.phase in ("save", "generation"):
            return
        if self._hooks and self.steps < self._looks:
            self._roots.add(module)
        evaluates = not module.training or not self._torch.is_grad_enabled()
        phase = "validation" if evaluates else "forward"
        self.enter(phase)
        if self.samples.used(phase):
            self.note("samples", **self.samples.sizes)

    def _left(self, module: Any, *_: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        self._depth = max(0, self._depth - 1)

    def _optimizer_made(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        self._looks = self.steps + LOOKS
        if not self._hooks and self.on:
            self._look()
        return real(*args, **kwargs)

    def _look(self) -> None:
        from torch.nn.modules import module

        self._hooks = [
            module.register_module_forward_pre_hook(self._entered),
            module.register_module_forward_hook(self._left, **_always(module)),
        ]

    def _look_no_more(self) -> None:
        """Hooks on the modules that were found, and on no others."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._depth = 0
        for module in [one for one in self._roots if one not in self._hooked]:
            self._hooked.add(module)
            with contextlib.suppress(Exception):
                module.register_forward_pre_hook(self._entered)
                module.register_forward_hook(self._left, always_call=True)
        self._roots.clear()

    def _backward(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        self.enter("backward")
        self._depth = 0
        return real(*args, **kwargs)

    def _step_begins(self, *_: Any) -> None:
        self.optimizing = True
        self.enter("optimizer")

    def _step_ended(self, *_: Any) -> None:
        self.optimizing = False
        self.steps += 1
        if self.steps >= self._looks and self._hooks:
            self._look_no_more()
        self.enter("step")
        self._note_floor()

    def _note_floor(self) -> None:
        """What is allocated between steps: a line that rises means that something is kept."""
        if self.on and self.steps % self._every == 0:
            now = self.counters.now().get("allocated")
            if now is not None:
                self.floors.append(now)
            if len(self.floors) > FLOORS:
                self.floors, self._every = self.floors[::2], self._every * 2

    def _during(self, phase: str, real: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.phase
        self.enter(phase)
        try:
            return real(*args, **kwargs)
        finally:
            self.enter("step" if before == phase else before)

    def install(self) -> None:
        """Hooks into torch. A hook that this torch does not have is left out."""
        torch = self._torch
        from torch.optim import optimizer

        self._look()
        follow_fractions(torch)
        optimizer.register_optimizer_step_pre_hook(self._step_begins)
        optimizer.register_optimizer_step_post_hook(self._step_ended)
        _wrap(optimizer.Optimizer, "__init__", self._optimizer_made)
        _wrap(torch.autograd, "backward", self._backward)
        self.follow_saves(torch, "save")
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.end)

    def follow_saves(self, module: Any, name: str = "") -> None:
        """A function of a library that saves to a file."""
        name = name or SAVERS[module.__name__]
        _wrap(module, name, functools.partial(self._save, name))

    def _save(self, name: str, real: Any, *args: Any, **kwargs: Any) -> Any:
        path = path_of(args, kwargs)
        if path:
            self._saves.begins(path, name)
        outer, self._saving = self._saving, True
        try:
            found = real(*args, **kwargs) if outer else self._during("save", real, *args, **kwargs)
        finally:
            self._saving = outer
        if path:
            self._saves.ended(path)
        return found

    def generates(self, module: Any) -> None:
        """transformers' generation, once it is imported."""
        mixin = getattr(module, "GenerationMixin", None)
        if mixin is not None:
            real = mixin.generate

            @functools.wraps(real)
            def generate(*args: Any, **kwargs: Any) -> Any:
                return self._during("generation", real, *args, **kwargs)

            mixin.generate = generate

    def _forked(self) -> None:
        """A copy of the process: a loader's worker, most often."""
        self.on = False
        self._out = None

    def end(self) -> None:
        """The last line: the peaks, and the error that the program did not catch."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        found = classify(error)
        if not self.on or self._out is None or not (self._begun or self.steps or found):
            return
        with contextlib.suppress(Exception):
            self.counters.look()
            self._take(self.phase)
            self._write(self.phase)
        if error is not None:
            told = {"memory": found.kind, "tried": found.tried, "text": str(error)[:2000]} if found is not None else {}
            self._out.write("error", phase=self.phase, steps=self.steps, error=type(error).__name__, **told)
        self._out.write("end", steps=self.steps)


def _always(module: Any) -> dict[str, bool]:
    """Whether a global hook can be called after an error as well: since torch 2.3."""
    names = module.register_module_forward_hook.__code__.co_varnames
    return {"always_call": True} if "always_call" in names else {}


def _wrap(owner: Any, name: str, around: Any) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(real, *args, **kwargs)

    setattr(owner, name, wrapped)


def _host_peak() -> int:
    """The most bytes of host memory that this process had."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except (ImportError, OSError):
        return 0


_HOLDER = "_preflight_recorder"
"""The attribute of `sys` with the one recorder of a process, whichever copy of this package made it."""


def record() -> Any:
    """The recorder of this process, made where there is none."""
    found = getattr(sys, _HOLDER, None)
    if found is None:
        import torch

        found = Recorder(torch, writer())
        setattr(sys, _HOLDER, found)
        found.install()
    return found


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """A part of the program that is a phase of its own: `with guard.phase("validation"):`."""
    if name not in PHASES:
        raise ValueError(f"{name!r} is no phase: {', '.join(PHASES)}")
    recorder = record()
    before = recorder.phase
    recorder.enter(name)
    try:
        yield
    finally:
        recorder.enter(before)
