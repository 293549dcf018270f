"""Gives a measured program slow training steps: its loaders' queues fill. `programs.py` puts this on PYTHONPATH."""

from __future__ import annotations

import importlib.machinery
import resource
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PATIENCE = 3.0
"""Seconds without a new batch after which a queue is taken for full: an iterable data set may have ended."""
EVERY = 16
"""A step in so many is slow, after the first ones."""


class Finder:
    """Finds torch's module of loaders as Python does, and changes it when it has been imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != "torch.utils.data.dataloader":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), _slow(module))  # type: ignore[method-assign,assign,return-value,func-returns-value]
        return spec


def _slow(module: ModuleType) -> None:
    iterator = module._MultiProcessingDataLoaderIter
    following = iterator._next_data

    def wait(self: Any) -> Any:
        found = following(self)
        self._taken = getattr(self, "_taken", 0) + 1
        if self._taken <= 1 + 2 * self._num_workers or self._taken % EVERY == 0:
            _fill(self)
        return found

    iterator._next_data = wait


def _fill(iterator: Any) -> None:
    queue, size, changed = iterator._worker_result_queue, -1, time.monotonic()
    while (now := queue.qsize()) < iterator._tasks_outstanding - sum(len(i) == 2 for i in iterator._task_info.values()):
        if now != size:
            size, changed = now, time.monotonic()
        if time.monotonic() - changed > PATIENCE:
            return
        time.sleep(0.01)
    time.sleep(0.05)


sys.meta_path.insert(0, Finder())
resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
