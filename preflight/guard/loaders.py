"""Bytes of one decoded sample, from the first batches of each loader: what no file of a program states.

What a loader handed out belongs to the phase that the model enters next: training, or validation.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from typing import Any

BATCHES = 20
"""Batches of a loader that are looked at."""
DEPTH, ITEMS = 8, 100_000
"""Of a batch's lists, tuples and dicts: what is deeper, or more, is not counted, and then the batch is left out."""
NAMES = {"forward": "sample_bytes", "validation": "validation_sample_bytes"}


class _TooMuch(Exception):
    """A batch that is not taken apart."""


def size_of(batch: Any) -> int | None:
    """Bytes of the tensors and arrays of a batch; None where it has none, or is not taken apart."""
    count = [0]
    try:
        found = _bytes(batch, 0, count)
    except _TooMuch:
        return None
    return found or None


def _bytes(one: Any, depth: int, count: list[int]) -> int:
    count[0] += 1
    if depth > DEPTH or count[0] > ITEMS:
        raise _TooMuch
    size = getattr(one, "nbytes", None)
    if type(size) is int:
        return size
    if isinstance(one, (str, bytes, int, float)) or one is None:
        return 0
    if isinstance(one, (list, tuple)):
        return sum(_bytes(each, depth + 1, count) for each in one)
    values = getattr(one, "values", None)  # dicts, and what transformers' tokenizers return
    if callable(values):
        return sum(_bytes(each, depth + 1, count) for each in list(values()))
    raise _TooMuch  # an object of the program's own


class Samples:
    """The sizes that were seen. `sizes`: name -> the most bytes of one sample."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.batches = self.epoch = 0
        """Batches that were handed out, and those of the longest loader, if it knows."""
        self._waiting: int | None = None
        self._looked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def seen(self, iterator: Any, batch: Any) -> None:
        """A loader handed out a batch."""
        self.batches += 1
        looked = self._looked.get(iterator, 0)
        if looked >= BATCHES:
            return
        self._looked[iterator] = looked + 1
        if not looked:
            with contextlib.suppress(Exception):  # a loader of a stream has no length
                self.epoch = max(self.epoch, len(iterator))
        samples = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        size = size_of(batch) if isinstance(samples, int) and samples > 0 else None
        if size is not None and isinstance(samples, int):
            self._waiting = max(self._waiting or 0, -(-size // samples))

    def used(self, phase: str) -> bool:
        """The model takes what was handed out; whether something new is known by that."""
        size, self._waiting = self._waiting, None
        name = NAMES.get(phase)
        if size is None or name is None or size <= self.sizes.get(name, 0):
            return False
        self.sizes[name] = size
        return True


def watch(module: Any) -> None:
    """Looks at what the loaders of torch.utils.data.dataloader hand out, in the thread that records."""
    kind = module._BaseDataLoaderIter
    real = kind.__next__

    @functools.wraps(real)
    def following(iterator: Any) -> Any:
        batch = real(iterator)
        recorder = getattr(sys, "_preflight_recorder", None)
        if recorder is not None and recorder.on and threading.get_ident() == recorder.thread:
            try:
                recorder.samples.seen(iterator, batch)
            except Exception:  # a loader of another version: its samples are not known
                recorder.samples = Samples()
                kind.__next__ = real
        return batch

    kind.__next__ = following
