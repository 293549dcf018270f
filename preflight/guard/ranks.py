"""Several ranks under DistributedDataParallel: they vote after each step, so that all halve together.

While sizes are being found, every rank runs its parts without exchange (`no_sync`), then all vote, and then gradients
are exchanged by hand. A rank that ran out of memory leaves nobody waiting in the middle of a backward pass.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

import torch


class Ranks:
    """The ranks that train one model; one, if it is not wrapped for several."""

    def __init__(self, model: Any) -> None:
        kinds = {kind.__name__ for kind in type(model).__mro__}
        self._wrapped = "DistributedDataParallel" in kinds
        self.refusal = ""
        if kinds & {"FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine"}:
            self.refusal = "ranks exchange parts of the model within a step, so all of them have to start again"
        self._leaving: Leaving | None = None
        self._model_ref = weakref.ref(model)

    @property
    def several(self) -> bool:
        return self._wrapped and torch.distributed.is_available() and torch.distributed.is_initialized()

    def begin(self) -> None:
        """Ranks that cannot vote listen whether one of them leaves."""
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.refusal and self._leaving is None and together and torch.distributed.get_world_size() > 1:
            self._leaving = Leaving()

    def leave(self, found: Any) -> None:
        """All ranks end now, if they would wait for this one; else nothing."""
        if self._leaving is not None:
            self._leaving.all_leave(found)

    def end_with_another(self) -> None:
        """Ends this process, if its error is that of a rank that left; else nothing."""
        if self._leaving is not None:
            self._leaving.end_with_another()

    def apart(self) -> Any:
        """A context in which no gradients are exchanged."""
        model = self._model_ref()
        return model.no_sync() if self.several and model is not None else contextlib.nullcontext()

    def any_failed(self, failed: bool) -> bool:
        """Whether a rank ran out of memory. All ranks ask, and all get the same answer."""
        if not self.several:
            return failed
        vote = torch.tensor([int(failed)], device=self._device())
        torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MAX, group=self._group())
        return bool(vote.item())

    def share(self, parameters: Iterable[Any]) -> None:
        """The mean gradients of all ranks; zeros from a rank whose parameter has none."""
        if not self.several:
            return
        group = self._group()
        world = torch.distributed.get_world_size(group)
        for one in parameters:
            if one.requires_grad:
                if one.grad is None:
                    one.grad = torch.zeros_like(one)
                one.grad.div_(world)
                torch.distributed.all_reduce(one.grad, group=group)

    def _group(self) -> Any:
        return getattr(self._model_ref(), "process_group", None)

    def _device(self) -> Any:
        model = self._model_ref()
        return next(iter(model.parameters())).device if model is not None else torch.device("cpu")


class Leaving:
    """Ranks that wait for each other in the middle of a step end together, instead of after NCCL's timeout of minutes.

    One of them sets a key of the group's store. A thread of each rank looks for it, and ends its process with a status
    that launchers start again after (`torchrun --max-restarts`, `preflight run --retry`).
    """

    KEY = "preflight/left"
    EVERY_S = 1.0
    STATUS = 75
    """EX_TEMPFAIL of sysexits.h: try again."""

    def __init__(self) -> None:
        from torch.distributed.distributed_c10d import _get_default_store

        store = _get_default_store()
        self._store = store.clone() if hasattr(store, "clone") else store
        self._restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def _key(self) -> str:
        """The store of torchrun outlives a start."""
        return f"{self.KEY}/{self._restart}"

    def _listen(self) -> None:
        while True:
            time.sleep(self.EVERY_S)
            try:
                self.end_with_another()
            except Exception:  # the rank that has the store is gone, and the launcher ends this one
                return

    def end_with_another(self) -> None:
        """Ends this process if another rank has left. Its connections may break before the thread has looked."""
        if self._store.check([self._key]):
            sys.stderr.write("preflight guard: another rank ran out of memory; this one ends with it\n")
            sys.stderr.flush()
            os._exit(self.STATUS)

    def all_leave(self, found: Any) -> None:
        """Tells the others, and ends this process."""
        recorder = getattr(sys, "_preflight_recorder", None)
        text = "" if found is None else found.text
        if recorder is not None and found is not None:
            recorder.note("error", error="OutOfMemoryError", memory=found.kind, tried=found.tried, text=text)
        sys.stderr.write(f"preflight guard: {text}; all ranks end, since none can go on alone\n")
        sys.stderr.flush()
        try:
            self._store.set(self._key, "1")
            time.sleep(2 * self.EVERY_S)  # the store may live in this process
        finally:
            os._exit(self.STATUS)
