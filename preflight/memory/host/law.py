"""The host law: the memory of one rank's data loaders, as named terms, at each moment of a run.

    training = base + 40 n (shuffle) + D (1 + g v w) + private(w) + queue(w)
    start    = base + 48 n (shuffle) + D + what the workers keep before their first batch
    private  = w (m + r B + q S + k + gc)
    queue    = (w p + 1) B, without workers 3 B + q S (views: 2 B)
    validation mid-epoch      : + private(vw) + queue(vw)
    validation at epoch end   : persistent workers keep private(w); else the larger of the two loaders; without workers
                                the batch that the training loop still holds
    training after validation : + private(vw), if the validation loader's workers are persistent

B = batch x S, S bytes of one decoded sample, w workers, p prefetch factor, n samples, D bytes of the in-memory dataset,
g the part of it that reading writes to, v the part that a worker visits (all of it when shuffled, else 1 / w), k what
the program's own dataset keeps in each worker (a buffer of decoded samples, pictures while they are decoded), gc what a
full collection copies. m is 11 MiB for a forked worker, the whole base for a spawned one.
Everything grows (or stays) with every argument, so a search space is bounded by its corners; but for single tensors of
32 MiB, from which on heaps keep no holes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.host import constants as c
from preflight.memory.host.heap import MMAP_THRESHOLD_MAX, Heap, holes

Terms = Mapping[str, float]

LOW, EXPECTED, HIGH = 0, 1, 2
"""Ends of a Measured."""


class Loader(Struct, frozen=True):
    """One DataLoader of one rank: sample in bytes, batch in samples."""

    batch: int
    sample: float
    workers: int
    prefetch: int = 2
    base: float = 0.0
    """Bytes of the process that starts the workers before it loads data."""
    visited: float = 0.0
    """The same without libraries: Python's collector visits a part of it."""
    spawned: bool = False
    views: bool = False
    """__getitem__ returns an object that is in memory already, or a view of it: r = q = 0."""
    single: bool = False
    """A sample is one tensor; else it may be several, each smaller."""
    decodes: bool = False
    """Samples are pictures that are decoded."""
    tracked: int = 1
    """Objects per sample that Python's collector visits."""
    own: int = 0
    """Bytes that the dataset keeps in each process that reads it."""
    heap: Heap = field(default_factory=Heap)
    end: int = EXPECTED
    """Which end of the interval of the heap is used."""

    def started(self) -> float:
        """Bytes of the workers before their first batch."""
        if not self.workers:
            return 0.0
        each = self.base + c.WORKER_SPAWN if self.spawned else c.WORKER_FORK
        return self.workers * each + (c.SPAWN_TRACKER if self.spawned else 0)

    def private(self) -> float:
        """Private bytes of the workers (without workers: of the dataset)."""
        own = self.own + (c.DECODER if self.decodes else 0)
        if not self.workers:
            return float(own)
        return self.started() + self.workers * (own + self._kept() + self._collected())

    def _kept(self) -> float:
        """Bytes of freed samples that a worker's heap keeps."""
        if self.views:
            return 0.0
        batches = c.DECODED_BATCHES if self.decodes else c.COLLATE_BATCHES
        return (batches * self.batch + self._holes()[self.end]) * self.sample

    def _holes(self) -> c.Measured:
        return holes(self.heap, self.batch, self.sample if self.single else 0.0)

    def growth(self) -> float:
        """Bytes that the workers' heaps may grow by beyond what is expected: a long run, an older glibc."""
        _, expected, high = self._holes()
        return 0.0 if self.views else self.workers * (high - expected) * self.sample

    def spread(self) -> float:
        """Bytes that the workers may take more: from the start, and when Python collects its garbage in them."""
        collected = 0.0 if self._collected() else c.COLLECTED_PART * self.visited
        return 0.0 if self.spawned else self.workers * (c.WORKER_FORK_MORE + collected)

    def _collected(self) -> float:
        """Bytes that a worker copies when Python collects its garbage; a spawned one has nothing to copy."""
        collects = self.batch * self.tracked >= c.COLLECTION_THRESHOLD
        return c.COLLECTED_PART * self.visited if collects and not self.spawned else 0.0

    def queue(self) -> float:
        """Bytes of finished batches: in /dev/shm when there are workers."""
        if self.workers:
            return float((self.workers * self.prefetch + 1) * self.batch * self.sample)
        batches = c.SYNCHRONOUS_BATCHES - self.views
        mapped = self.views or (self.single and self.sample >= MMAP_THRESHOLD_MAX)
        return (batches * self.batch + (0 if mapped else c.SYNCHRONOUS_SAMPLES)) * self.sample

    def shared(self) -> float:
        """The part of `queue` that is in /dev/shm."""
        return self.queue() if self.workers else 0.0


class Moment(Struct, frozen=True):
    """One rank's memory at one moment of the run: named terms in bytes."""

    name: str
    terms: Terms

    @property
    def total(self) -> float:
        return sum(self.terms.values())


class Loaders(Struct, frozen=True):
    """Both loaders of a rank and their dataset: `dataset` bytes in memory, `growth` its copy-on-write share."""

    train: Loader
    validation: Loader | None = None
    dataset: int = 0
    growth: float = 0.0
    evaluated: float = 0.0
    """Bytes of the part of the data that the validation loader reads, in order."""
    pickled: float = 1.0
    """The dataset's pickle, in addition to the dataset."""
    handed_over: bool = False
    """Tensors: spawned workers are handed their storages, which move to shared memory once."""
    shuffled: int = 0
    """Samples that are shuffled; 0 where they are not (or not known)."""
    ordered: bool = False
    """Samples come in the order of the dataset, so each worker visits its own part of it."""
    pinned: bool = False
    persistent: bool = False
    stays: bool = False
    """The workers of the validation loader live on when training goes on."""
    overlap: bool = False

    def moments(self) -> tuple[Moment, ...]:
        """Every moment that can be the peak, the training one first."""
        train = Moment("training", {**self._fixed(), **self._loading(self.train), **self._pinned(self.train)})
        return (train, self._start(), *self._validation_moments(train))

    def _start(self) -> Moment:
        """The first batch is about to be asked for: the order of the samples is drawn while its tensor lives.

        Each spawned worker unpickles its copy of the dataset while the parent still holds the pickle: (w + 2) D.
        """
        terms = self._fixed()
        if self.train.spawned and self.train.workers and self.dataset and not self.handed_over:
            terms["pickle"] = self.pickled * self.dataset
        else:
            terms.pop("copy_on_write", None)
        if self.shuffled:
            terms["shuffle"] += c.SHUFFLE_TENSOR_PER_SAMPLE * self.shuffled
        workers = self.train.private() if self.persistent else self.train.started()
        return Moment("start of an epoch", {**terms, **({"workers": workers} if workers else {})})

    def at(self, end: int, views: bool | None = None) -> Loaders:
        """The same at one end of the heaps' interval; `views`: samples are (or are not) views of an array in memory."""

        def changed(loader: Loader) -> Loader:
            return replace(loader, end=end, views=loader.views if views is None else views)

        val = None if self.validation is None else changed(self.validation)
        return replace(self, train=changed(self.train), validation=val)

    def _validation_moments(self, train: Moment) -> tuple[Moment, ...]:
        val = self.validation
        if val is None:
            return ()
        copies = self.growth if val.workers else 0.0  # each worker visits its own part
        if val.spawned:
            copies = 0.0 if self.handed_over else float(val.workers)
        full = val.private() + val.queue() + copies * self.evaluated
        pinned = self._pinned(val)
        if not self.train.workers and not self.overlap:  # the training loop's last batch is still held
            pinned["held"] = self.train.batch * self.train.sample
        if self.overlap:
            return (Moment("validation", {**train.terms, "validation": full + sum(pinned.values())}),)
        private = self.train.private() if self.persistent else 0.0
        held = {"workers": private} if private else {}
        first = Moment("validation", {**self._fixed(), **held, "validation": full, **pinned})
        if not self.stays:
            return (first,)
        return first, Moment("training after validation", {**train.terms, "validation": val.private()})

    def _fixed(self) -> dict[str, float]:
        train = self.train
        visits = 1 / train.workers if self.ordered and train.workers else 1.0
        copies = self.growth * visits * train.workers
        if train.spawned:
            copies = 0.0 if self.handed_over else float(train.workers)
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
        """The maximum of bytes in /dev/shm."""
        val = 0.0 if self.validation is None else self.validation.shared()
        return self.train.shared() + val if self.overlap else max(self.train.shared(), val)
