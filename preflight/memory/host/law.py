"""The host law: what one rank's data loaders keep in memory, as named terms, moment by moment.

    hard     = base + 40 n (shuffle) + D (1 + g w) + private(w) + queue(w)
    private  = w (m + r B + q S + k)
    queue    = (w p + 1) B, without workers 3 B
    validation mid-epoch      : + private(vw) + queue(vw)
    validation at epoch end   : persistent workers keep private(w); else the larger of the two loaders

B = batch x S, S bytes of one decoded sample, w workers, p prefetch factor, n samples, D bytes of the in-memory dataset,
k what the program's own dataset keeps in each worker (a buffer of decoded samples).
Everything grows (or stays) with every argument, so a search space is bounded by its corners.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.memory.host import constants as c
from preflight.records import dataclass, replace

Terms = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Loader:
    """One DataLoader of one rank: sample in bytes, batch in samples."""

    batch: int
    sample: float
    workers: int
    prefetch: int = 2
    spawned: bool = False
    views: bool = False
    """__getitem__ returns views of one array: r = q = 0."""
    own: int = 0
    """Bytes that the dataset keeps in each process that reads it."""

    def private(self) -> float:
        """Bytes that the workers keep for themselves (without workers: what the dataset keeps)."""
        if not self.workers:
            return float(self.own)
        worker = c.WORKER_SPAWN if self.spawned else c.WORKER_FORK
        kept = c.COLLATE_BATCHES * self.batch * self.sample + c.COLLATE_SAMPLES * self.sample
        tracker = c.SPAWN_TRACKER if self.spawned else 0
        return self.workers * (worker + self.own + (0 if self.views else kept)) + tracker

    def queue(self) -> float:
        """Bytes of finished batches: in /dev/shm when there are workers."""
        batches = self.workers * self.prefetch + 1 if self.workers else c.SYNCHRONOUS_BATCHES
        return batches * self.batch * self.sample

    def shared(self) -> float:
        """The part of `queue` that lies in /dev/shm."""
        return self.queue() if self.workers else 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One rank's memory at one moment of the run: named terms in bytes."""

    name: str
    terms: Terms

    @property
    def total(self) -> float:
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class Loaders:
    """Both loaders of a rank and what they read: `dataset` bytes in memory, `growth` its copy-on-write share."""

    train: Loader
    validation: Loader | None = None
    dataset: int = 0
    growth: float = 0.0
    shuffled: int = 0
    """Samples that are shuffled; 0 where they are not (or not known)."""
    pinned: bool = False
    persistent: bool = False
    overlap: bool = False

    def moments(self) -> tuple[Moment, ...]:
        """Every moment that can be the peak, the training one first."""
        train = Moment("training", {**self._fixed(), **self._loading(self.train), **self._pinned(self.train)})
        found = [train]
        if self.train.spawned and self.train.workers and self.dataset:
            # each worker unpickles its copy while the parent still holds the pickle: (w + 2) D for a moment
            start = {**self._fixed(), "workers": self.train.workers * c.WORKER_SPAWN + c.SPAWN_TRACKER}
            start["dataset"] = 2.0 * self.dataset
            found.append(Moment("start of the workers", start))
        return (*found, *self._validation_moments(train))

    def as_views(self) -> Loaders:
        """The same where samples are views of one array in memory."""
        val = None if self.validation is None else replace(self.validation, views=True)
        return replace(self, train=replace(self.train, views=True), validation=val)

    def _validation_moments(self, train: Moment) -> tuple[Moment, ...]:
        val = self.validation
        if val is None:
            return ()
        full = val.private() + val.queue()
        pinned = self._pinned(val)
        if self.overlap:
            return (Moment("validation", {**train.terms, "validation": full + sum(pinned.values())}),)
        if not self.persistent:
            return (Moment("validation", {**self._fixed(), "validation": full, **pinned}),)
        private = self.train.private()
        held = {"workers": private} if private else {}
        first = Moment("validation", {**self._fixed(), **held, "validation": full, **pinned})
        later = Moment("training after validation", {**train.terms, "validation": val.private()})
        return first, later

    def _fixed(self) -> dict[str, float]:
        train = self.train
        copies = float(train.workers if train.spawned else self.growth * train.workers)
        terms = {
            "shuffle": float(c.SHUFFLE_PER_SAMPLE * self.shuffled),
            "dataset": float(self.dataset),
            "copy_on_write": self.dataset * copies,
        }
        return {name: size for name, size in terms.items() if size}

    def _loading(self, loader: Loader) -> dict[str, float]:
        private = loader.private()
        return {**({"workers": private} if private else {}), "queue": loader.queue()}

    def _pinned(self, loader: Loader) -> dict[str, float]:
        return {"pinned": c.PINNED_BATCHES * loader.batch * loader.sample} if self.pinned else {}

    def shared(self) -> float:
        """The most bytes that lie in /dev/shm at one time."""
        val = 0.0 if self.validation is None else self.validation.shared()
        return self.train.shared() + val if self.overlap else max(self.train.shared(), val)
