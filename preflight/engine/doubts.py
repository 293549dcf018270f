"""What a need that is too much is doubted for: the fields with which the job might fit after all.

A doubt never makes a job fit. It makes an error a warning, or says that nothing is known (`certainty`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from preflight.engine.estimator import Estimator
from preflight.engine.fit.orders import SHARDED
from preflight.engine.worst_values import NODE, WITHOUT_EFFECT, Changes, own_value
from preflight.vocabulary.edits_of_job import possible, with_fields
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import Job
from preflight.vocabulary.standing import Assumption, Doubt, Held, Standing
from preflight.vocabulary.words import gib

STATES = ("parallel.strategy", "train.peft.method", "train.quantization.type", "train.frozen", "parallel.offload",
          "model.least_parameters")  # fmt: skip
"""Fields that decide how much of the states of a model a GPU holds: with another value it may be a small part."""

MODEL = ("model.name", "model.path", "model.target", "model.architecture")
"""Fields that say which model it is."""

TYPES = ("train.precision", "train.weights_dtype")
"""Fields that decide how many bytes a weight has."""

GPUS, OPTIMIZER = "parallel.gpus_per_node", "train.optimizer"

SMALLEST: Mapping[str, int] = {
    "train.batch_size": 1, "train.seq_len": 128, "train.target_len": 128, "train.text_len": 128,
    "validation.batch_size": 1, "validation.seq_len": 128,
}  # fmt: skip
"""A job that is small in everything but its states."""

SEQUENCES = "train.sequences"
CUT_AT = ("train.seq_len", "train.target_len")
ORDINARY_LENGTH = 512
"""Tokens that some sample of nearly every set of texts has: BERT and T5 cut texts there."""
LONGER = 8
"""Times that a length where samples are cut may be longer than all of them: a context of 8,192 tokens is set for
instructions of a thousand."""

OPEN = "\0"
"""Stands for the words of a field in verdicts that are kept: hundreds of scripts may say the same, and each of them is
named in why a value of its own is not known."""


class Doubts(Struct, dict=True):
    """The doubts about one study's jobs.

    `held`: how each field is known.
    """

    held: Mapping[str, Held]
    estimator: Estimator

    @cached_property
    def weak(self) -> dict[str, Held]:
        """The fields that are not known well and that the need may depend on."""
        return {
            name: held
            for name, held in self.held.items()
            if not held.standing.holds and not {name, name.partition(".")[0]} & {*WITHOUT_EFFECT}
        }

    def of_bound(self, job: Job) -> Iterator[Assumption]:
        """Fields with which states that exceed the GPU might fit: the need is the least that the model takes whole."""
        for name in STATES:
            if name in self.weak and (name != STATES[0] or self._may_be_sharded):
                yield self.assumption(job, name)
                return
        types = [(name, value) for name in TYPES if name in self.weak for value in self.weak[name].others]
        for name, value in types:
            half = self.estimator.full(with_fields(job, {name: value})).device
            if half is None or half.verdict != "exceeds":
                yield self.assumption(job, name, f"in {value} they may fit: {OPEN}")
                return

    @property
    def _may_be_sharded(self) -> bool:
        """Whether the strategy is not known well, and may be one that splits the states."""
        known = self.weak.get(STATES[0])
        return known is not None and (not known.others or any(one in SHARDED for one in known.others))

    def other_model(self, job: Job) -> Iterator[Assumption]:
        """The model, if only the name of a setting says that the job trains it: it may be another, of any size."""
        named = (name for name in MODEL if name in self.weak and self.weak[name].standing is Standing.by_name)
        yield from (self.assumption(job, name) for name in named)

    def sharding(self, job: Job) -> Iterator[Assumption]:
        """The sharding, if the file that decides it was not read and the job may fit with its states split over its
        GPUs; the number of GPUs, if no file states it and the model is split over them."""
        if GPUS in self.weak and job.parallel.strategy in SHARDED:
            among = self.device_of(job, {GPUS: NODE, "parallel.ranks_per_node": NODE})
            if among is not None and among.verdict != "exceeds":
                yield self.assumption(job, GPUS, f"on {NODE} GPUs it may fit: {OPEN}")
            return
        if not self._may_be_sharded or job.parallel.strategy not in ("none", "ddp"):
            return
        gpus = NODE if GPUS in self.weak else job.parallel.gpus_per_node or 1
        split = {"parallel.strategy": "zero3", GPUS: gpus, "parallel.ranks_per_node": gpus}
        device = self.device_of(job, split) if gpus > 1 else None
        whole = self.estimator.full(job).device if GPUS in self.weak else None
        layers = whole is not None and whole.process.expected <= NODE * (whole.capacity or 0)  # some on each GPU
        if layers or (device is not None and device.verdict != "exceeds"):
            yield self.assumption(job, STATES[0])

    def frozen(self, job: Job) -> Iterator[Assumption]:
        """The parts that are trained, if something is frozen and the text does not say what: layers below the first
        trained one keep nothing for backward. Adapters say themselves what is trained."""
        known = self.weak.get("train.frozen")
        if known is not None and known.standing is Standing.unknown and job.train.peft.method in (None, "none"):
            yield self.assumption(job, "train.frozen")

    def similar_model(self, job: Job, found: DeviceEstimate) -> Iterator[Assumption]:
        """The model that the program's own class only resembles, unless its states alone are too much: what its own
        layers keep for backward is not known."""
        similar = [name for name in MODEL if name in self.weak and self.weak[name].similar]
        if similar and found.capacity is not None:
            least = {name: value for name, value in SMALLEST.items() if _above(job, name, value)}
            small = self._need(job, least)
            if small is None or small[0] <= found.capacity:
                yield from (self.assumption(job, name, doubt=Doubt.similar_model) for name in similar)

    def may_be_adapted(self, job: Job) -> bool:
        """Whether the model may be trained through an adapter: then nothing of its own has gradients."""
        adapted = self.weak.get("train.peft.method")
        return adapted is not None and adapted.standing is Standing.unknown and job.train.peft.method in (None, "none")

    def may_train_nothing(self, job: Job) -> bool:
        """Whether no optimizer is known: the program may only compute a loss, and keep no gradients."""
        known = self.weak.get(OPTIMIZER)
        return known is not None and known.standing is Standing.unknown and job.train.optimizer is None

    def no_optimizer(self, job: Job) -> Assumption:
        """The optimizer, of a job that may have none."""
        return self.assumption(job, OPTIMIZER, f"without one it may compute no gradients: {OPEN}")

    def implausible(self, job: Job, found: DeviceEstimate) -> Iterator[Assumption]:
        """The field that makes a need larger than any GPU, where a small batch or length would fit: it is probably not
        what a GPU gets at a time."""
        largest = self.estimator.largest_gpu
        if found.requested.expected <= largest:  # of tensors alone, which takes no replay
            return
        smaller = {name: least for name, least in SMALLEST.items() if _above(job, name, least)}
        small = self._need(job, smaller) if smaller else None
        if small is None or small[1] > (found.capacity or largest):
            return
        need = {name: one for name in smaller if (one := self._need(job, {name: smaller[name]})) is not None}
        cause = min(need, key=lambda name: need[name][0], default=None)
        alone = possible(job, {cause: smaller[cause]}) if cause is not None else None
        expected = self.estimator.expected(alone) if alone is not None else None
        if cause is not None and expected is not None:
            why = f"no GPU has the memory for it, and with {smaller[cause]} it would be {gib(expected)}"
            yield self.assumption(job, cause, why, Doubt.implausible)

    def longest_samples(self, job: Job, found: DeviceEstimate) -> Iterator[Assumption]:
        """The length, where samples are only cut at it and the job fits with shorter ones: a batch is as long as its
        longest sample, and nobody read the data."""
        if found.verdict != "exceeds" or found.capacity is None or SEQUENCES not in self.held:
            return
        lengths = {name: own_value(job, name) for name in CUT_AT} if own_value(job, SEQUENCES) == "bound" else {}
        shorter = {
            name: least
            for name, length in lengths.items()
            if isinstance(length, int) and (least := max(ORDINARY_LENGTH, length // LONGER)) < length
        }
        small = possible(job, shorter) if shorter else None
        need = self.estimator.expected(small) if small is not None else None
        if need is not None and need <= found.capacity:
            name, least = next(iter(shorter.items()))
            why = f"samples are cut there, and the data were not read: with {least:,} tokens it would be {gib(need)}"
            yield self.assumption(job, name, why, Doubt.longest_samples)

    def _need(self, job: Job, values: Changes) -> tuple[int, int] | None:
        """(expected, high) bytes of a process with these values: their bound, which takes no replay, where there is
        one."""
        changed = possible(job, values)
        bound = self.estimator.device_bound(changed) if changed is not None else None
        if bound is not None:
            return bound
        device = self.device_of(job, values)
        return (device.process.expected, device.process.high) if device is not None else None

    def device_of(self, job: Job, values: Changes) -> DeviceEstimate | None:
        changed = possible(job, values)
        return self.estimator.full(changed).device if changed is not None else None

    def assumption(self, job: Job, name: str, why: str = "", doubt: Doubt | None = None) -> Assumption:
        held = self.held.get(name)
        standing = held.standing if held is not None else Standing.read
        why = why or (OPEN if held is not None and held.why else "")
        return Assumption(name, own_value(job, name), standing, why, doubt)


def _above(job: Job, name: str, least: int) -> bool:
    value = job.get(name)
    return isinstance(value, int) and value > least
