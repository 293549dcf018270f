"""Optimizers, loaders and modules: which phase the program is in, and when it has done enough."""

from __future__ import annotations

import linecache
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import batches, places
from .device import Device
from .patches import replace, wrap
from .settings import Settings
from .tape import Tape

EVALUATED = 2
"""Batches of a loader without gradients."""
FURTHER_EPOCHS = 3
"""Epochs of one batch after the steps, for programs that validate or save at their end."""
FURTHER_STEPS = 6
"""Steps after those that were asked for, of loops that no loader ends."""
LOOKS = 256
"""Calls of modules after which the clock is looked at."""
UNEVEN = 8
"""Times the asked steps after which one optimizer of several ends the run: the others are not used."""
_LOADER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
           "drop_last", "timeout", "worker_init_fn", "multiprocessing_context")  # fmt: skip
_RECURRENT = "recurrent layers ran step by step; cuDNN runs them whole and keeps other buffers"
_STRATEGIES = {"FullyShardedDataParallel": "fsdp", "FSDPModule": "fsdp", "DistributedDataParallel": "ddp"}
"""Classes of torch that a model on several GPUs is of, and the strategy of each."""
_BY_HAND = 0
"""The key of updates that the program writes itself, beside the identities of optimizers."""


class Loops:
    """What the program's loops have done so far."""

    def __init__(self, settings: Settings, tape: Tape, finish: Callable[[str], None]) -> None:
        self._settings, self._tape, self._finish = settings, tape, finish
        self.steps: dict[int, int] = {}
        self.backwards = 0
        self.stepped_at: list[int] = []
        """Number of backwards before each step: their difference is the accumulation."""
        self.trained_at: float | None = None
        self._nested = self._entered = 0
        self._made: list[Any] = []
        self._unstepped = False
        self.validated = self.saved = False
        self.facts: dict[str, Any] = {"optimizers": [], "loaders": [], "models": [], "autocast": []}

    @property
    def trained(self) -> bool:
        return self.trained_at is not None

    def _note(self, name: str, fact: Any) -> None:
        if fact not in self.facts[name] and len(self.facts[name]) < 20:
            self.facts[name].append(fact)

    # ---------------------------------------------------------------------------------------------------- optimizers

    def _enough(self, key: int) -> None:
        """Ends the run when a step begins that tells nothing new."""
        count, wanted = self.steps.get(key, 0), self._settings.steps
        if count < wanted:
            return
        if not self.trained:
            if count >= UNEVEN * wanted:
                words = f"an optimizer made no step in {count} steps of another: it may take memory that was not seen"
                self._tape.assume(words, "train.optimizer")
                self._trained()
            return
        seen = self.validated and self.saved
        if seen or count >= wanted + FURTHER_STEPS or self._late():
            self._finish(f"step {count + 1} was about to begin")

    def _late(self, times: int = 1) -> bool:
        return self.trained_at is not None and time.process_time() - self.trained_at > times * self._settings.after

    def _idles(self) -> None:
        """Ends the run in long work without gradients after the steps, as when samples are drawn step by step."""
        self._entered += 1
        if self.trained and self._entered % LOOKS == 0 and not torch.is_grad_enabled() and self._late(3):
            self._finish("long work without gradients followed the steps")

    def _stepped(self, key: int) -> None:
        self.steps[key] = self.steps.get(key, 0) + 1
        if len(self.stepped_at) < 64:
            self.stepped_at.append(self.backwards)
        if not self.trained and all(count >= self._settings.steps for count in self.steps.values()):
            self._trained()

    def _trained(self) -> None:
        self.trained_at = time.process_time()
        self._tape.mark("trained")

    def optimizer_made(self, real: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """An optimizer that the program makes will step: the run is not over before it has."""
        real(optimizer, *args, **kwargs)
        key = id(optimizer)
        if key in self.steps:
            return
        self.steps[key] = 0

        def forgotten(_: Any) -> None:
            if not self.steps.get(key, 1):
                del self.steps[key]

        self._made.append(weakref.ref(optimizer, forgotten))

    def before_step(self, optimizer: Any, *_: Any) -> None:
        self._nested += 1
        if self._nested > 1:  # an optimizer that calls others: what the user's loop calls is counted
            self.steps.pop(id(optimizer), None)
            return
        self._enough(id(optimizer))
        self._note("optimizers", _optimizer_fact(optimizer))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._tape.kind(parameter, "weights")
                self._tape.kind(parameter.grad, "gradients")
        self._tape.optimizing += 1
        self._tape.mark("step")

    def after_step(self, optimizer: Any, *_: Any) -> None:
        self._nested -= 1
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                self._tape.kind(value, "optimizer")
        if self._nested:
            return
        self._tape.optimizing -= 1
        self._tape.mark("stepped")
        self._unstepped = False
        self._stepped(id(optimizer))

    def whole_step(self, owner: Any, step: Callable[[], Any]) -> Any:
        """A step of what calls other optimizers itself, some of them more than once: it counts as one."""
        self._enough(id(owner))
        self._nested += 1
        self._tape.optimizing += 1
        self._tape.mark("step")
        try:
            return step()
        finally:
            self._nested -= 1
            self._tape.optimizing -= 1
            self._tape.mark("stepped")
            self._unstepped = False
            self._stepped(id(owner))

    def backward(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        if _BY_HAND in self.steps:
            self._enough(_BY_HAND)
        self.backwards += 1
        found = real(*args, **kwargs)
        self._unstepped = True
        return found

    def updated(self, tensor: Any) -> None:
        """A weight was written into: the first time after a backward, this is an optimizer's step written by hand."""
        outside = not torch.is_grad_enabled() or not tensor.requires_grad
        if self._unstepped and outside and self._tape.is_kind(tensor, "weights"):
            self._unstepped = False
            self._tape.mark("stepped")
            self._note("optimizers", {"name": "written by hand"})
            self._stepped(_BY_HAND)

    # ------------------------------------------------------------------------------------------------------- modules

    def entered(self, module: Any, *_: Any) -> None:
        tape = self._tape
        if not tape.modules and id(module) not in tape.names:
            tape.started = True
            self._model(module)
        tape.modules.append(module)
        if isinstance(module, torch.nn.RNNBase):
            tape.assume(_RECURRENT, "model.architecture")
        if not tape.modules[0].training and not torch.is_grad_enabled():
            self.validated = self.validated or self.trained
        self._idles()

    def _model(self, model: Any) -> None:
        """A module that the program calls itself: the names of its parts, and its weights."""
        count = 0
        for name, one in model.named_modules():
            self._tape.names.setdefault(id(one), name or type(model).__name__)
            for parameter in one._parameters.values():
                if parameter is not None:
                    parameter._dry_module = name
                    count += parameter.numel()
            for kept in (*one._parameters.values(), *one._buffers.values()):
                self._tape.kind(kept, "weights")
        self._note("models", {"name": type(model).__qualname__, "parameters": count})
        kinds = [kind.__name__ for kind in type(model).__mro__ if kind.__name__ in _STRATEGIES]
        if kinds:
            self.facts["strategy"] = _STRATEGIES[kinds[0]]

    def note_saved(self, *_: Any, **__: Any) -> None:
        """A checkpoint was written by another library's function."""
        self.saved = self.saved or self.trained
        self._tape.mark("saved")

    def left(self, module: Any, *_: Any) -> None:
        modules = self._tape.modules
        while modules and modules.pop() is not module:
            pass

    # ------------------------------------------------------------------------------------------------------- loaders

    def made(self, real: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        """A loader without workers: its batches are made in the process itself."""
        kwargs = {**dict(zip(_LOADER, args)), **kwargs}
        workers = kwargs.get("num_workers") or 0
        if self._settings.batches and kwargs.get("batch_size") == self._settings.batches[0]:
            kwargs["batch_size"] = self._settings.batches[1]
        kwargs.update(num_workers=0, pin_memory=False, timeout=0, persistent_workers=False)
        for name in ("prefetch_factor", "multiprocessing_context", "worker_init_fn", "pin_memory_device"):
            kwargs.pop(name, None)
        real(loader, **kwargs)
        # accelerate makes a loader anew from the sampler of batches of another
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        loader._dry_fact = {"batch_size": size or kwargs.get("batch_size", 1), "workers": workers}

    def batches(self, real: Any, loader: Any) -> Iterator[Any]:
        """The batches that are needed: the asked steps, two for validation, and one in each further epoch."""
        trains = getattr(loader, "_dry_trains", False)
        begun = loader._dry_begun = getattr(loader, "_dry_begun", 0) + 1
        if self.trained and trains:
            loader._dry_after = getattr(loader, "_dry_after", 0) + 1
            if (self.validated and self.saved) or loader._dry_after > FURTHER_EPOCHS or self._late():
                self._finish("a further epoch was about to begin")
        elif self.trained and begun > 2 + FURTHER_EPOCHS:
            self._finish("a loader was begun again and again")
        before = sum(self.steps.values())
        for served, batch in enumerate(real(loader), 1):
            loader._dry_fact = batches.facts(batch, getattr(loader, "_dry_fact", {}))
            if self._settings.lengths:
                batch = batches.stretched(batch, *self._settings.lengths)
            yield batch
            if sum(self.steps.values()) > before:
                if not trains:
                    self._note("loaders", {**getattr(loader, "_dry_fact", {}), "trains": True})
                trains = loader._dry_trains = True
                if self.trained:
                    return
            elif self.trained and trains:
                return
            elif served >= EVALUATED and (self.trained or not torch.is_grad_enabled()) and not _asked_by_next():
                if not trains:
                    self._note("loaders", {**getattr(loader, "_dry_fact", {}), "trains": False})
                self._tape.mark("evaluated")
                return
            if self._late():
                self._finish("the time after training was over")


def _asked_by_next() -> bool:
    """Whether the program's line takes a batch by `next(...)`, for which the end of a loader is an error."""
    frame: Any = sys._getframe(2)
    name = frame.f_code.co_filename
    return places.is_users(name) and "next(" in linecache.getline(name, frame.f_lineno)


def _optimizer_fact(optimizer: Any) -> dict[str, Any]:
    """Name and options of an optimizer that decide its memory."""
    defaults = getattr(optimizer, "defaults", {})
    known = {name: defaults[name] for name in ("foreach", "fused", "amsgrad", "momentum") if name in defaults}
    known = {name: value for name, value in known.items() if isinstance(value, (bool, int, float))}
    return {"name": type(optimizer).__name__, **known}


def install(loops: Loops, device: Device) -> None:
    """Put the hooks into torch's optimizers, loaders, modules and autograd."""
    from torch.nn.modules import module
    from torch.optim import optimizer

    module.register_module_forward_pre_hook(loops.entered)
    module.register_module_forward_hook(loops.left, always_call=True)
    wrap(optimizer.Optimizer, "__init__", loops.optimizer_made)
    optimizer.register_optimizer_step_pre_hook(loops.before_step)
    optimizer.register_optimizer_step_post_hook(loops.after_step)
    device.on_update = loops.updated
    wrap(torch.autograd, "backward", loops.backward)
    loader = torch.utils.data.DataLoader
    wrap(loader, "__init__", loops.made)
    wrap(loader, "__iter__", loops.batches)
    _autocast(loops)
    _compilers(loops)


def _autocast(loops: Loops) -> None:
    """The precision that autocast computes in."""

    def entered(real: Any, context: Any) -> Any:
        if getattr(context, "_enabled", False) and getattr(context, "device", "") == "cuda":
            loops._note("autocast", str(getattr(context, "fast_dtype", "")))
        return real(context)

    wrap(torch.autocast, "__enter__", entered)


def _compilers(loops: Loops) -> None:
    """torch.compile and torch.jit are left out: the tape is that of the eager step."""

    def compiled(model: Any = None, **_: Any) -> Any:
        library, user = places.here(3)
        if isinstance(model, torch.nn.Module) or (user and not library):  # libraries decorate functions of their own
            loops.facts["compiled"] = True
            loops._tape.assume("torch.compile was left out: the tape is the eager step's")
        return model if model is not None else lambda one: one

    replace(torch, "compile", compiled)
    replace(torch.nn.Module, "compile", lambda module, *_, **__: compiled(module) and None)
    replace(torch.jit, "script", lambda function, *_, **__: function)
    replace(torch.jit, "trace", lambda function, *_, **__: function)
