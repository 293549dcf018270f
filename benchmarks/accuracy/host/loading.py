"""Iterates over DataLoaders the way a training run does, so that every moment in which memory can peak occurs."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinds
import torch
from torch.utils.data import DataLoader

PATIENCE = 60.0
"""Seconds to wait for a queue to fill."""
EVERYTHING = 10**9
Say = Callable[..., None]


def loader_of(config: dict[str, Any], folder: Path, dataset: Any) -> DataLoader:
    """A DataLoader as the point describes it; `val_` settings already stripped."""
    workers = config["workers"]
    more: dict[str, Any] = {}
    if workers:
        more = {"prefetch_factor": config["prefetch"], "persistent_workers": config.get("persistent", False)}
        if config.get("start", "fork") != "fork":
            more["multiprocessing_context"] = config["start"]
    pinned = config.get("pin_memory", False)  # without a GPU it does nothing
    shuffle = config.get("shuffle", False)
    return DataLoader(dataset, config["batch"], shuffle=shuffle, num_workers=workers, pin_memory=pinned, **more)


def full(iterator: Any) -> None:
    """Waits until every batch that may be in flight is there, as in a slow training step."""
    queue = getattr(iterator, "_worker_result_queue", None)
    end = time.monotonic() + PATIENCE
    while queue is not None and queue.qsize() < iterator._tasks_outstanding - _here(iterator):
        if time.monotonic() > end:
            return
        time.sleep(0.01)
    time.sleep(0.1)


def _here(iterator: Any) -> int:
    """Batches that came out of turn and wait in the parent process."""
    return sum(len(info) == 2 for info in iterator._task_info.values())


class Loop:
    """A training loop's `for batch in loader`: one variable, so one batch at a time is held."""

    def __init__(self, loader: DataLoader) -> None:
        self.iterator, self.batch = iter(loader), None

    def take(self, steps: int, slow: bool = False) -> None:
        """Takes so many batches, or fewer where the loader ends."""
        for _ in range(steps):
            try:
                self.batch = next(self.iterator)
            except StopIteration:
                return
            if slow:
                full(self.iterator)

    def fill(self) -> None:
        full(self.iterator)


def run(point: dict[str, Any], folder: Path, say: Say, meet: Callable[[str], None]) -> None:
    """Fill, slow steps, fast steps, fill again; then validation where there is one, and the next epoch."""
    before = _hard()
    dataset = kinds.KINDS[point["kind"]](point, folder)
    say("dataset", dataset_bytes=_hard() - before)
    meet("loader")
    train = loader_of(point, folder, dataset)
    val = None
    if "val_workers" in point:
        settings = {**point, "workers": point["val_workers"], "batch": point.get("val_batch", point["batch"])}
        val = loader_of({**settings, "shuffle": False}, folder, dataset)
    say("train")
    loop = Loop(train)
    flight = max(1, point["workers"]) * point["prefetch"]
    loop.take(1, slow=True)
    say("slow")
    loop.take(2 * max(1, point["workers"]), slow=True)
    say("fast")
    loop.take(2 * flight + point.get("steps", 0))
    loop.fill()
    if point.get("whole"):
        say("whole")
        for _ in range(point.get("epochs", 1)):
            loop.take(EVERYTHING)
            loop.iterator = iter(train)
            loop.take(1, slow=True)
    if val is not None:
        _validate(point, loop, val, say, meet)
        say("next")
        loop.iterator = iter(train) if point.get("epoch_end") else loop.iterator
        loop.take(4, slow=True)


def _validate(point: dict[str, Any], loop: Loop, loader: DataLoader, say: Say, meet: Callable[[str], None]) -> None:
    """A pass over the validation loader: at the end of an epoch, or in its middle with the training queue full."""
    if point.get("epoch_end"):
        say("rest")
        loop.take(EVERYTHING)
    say("validation")
    meet("validation")
    steps = max(1, loader.num_workers) * 2
    evaluation = Loop(loader)
    evaluation.take(steps, slow=True)
    evaluation.take(EVERYTHING)


def _hard() -> int:
    """Anonymous bytes of this process."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous"))


torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
