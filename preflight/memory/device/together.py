"""Bounds of many jobs at once that differ in batch and length alone: the law's columns as arrays, with numpy.

All that the figures are made of beside the law (weights, states, context, widths, effects) never falls as a batch or a
length grows. So what is the same at the smallest and at the largest of both is the same between them, and only the law
is evaluated job by job. Whatever differs, or is of a kind that this does not know, makes `Together.of` None: those jobs
are bounded one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.estimate import bounds_of, high_end, room_of
from preflight.memory.device.law.alignment import ALIGNMENT
from preflight.memory.device.law.bulk_peaks import peaks
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.phases import phases_beside
from preflight.memory.device.prepare import prepare
from preflight.memory.device.step import intervals
from preflight.memory.device.step.effects import EFFECTS
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.run import requested_by_libraries, requested_peak
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
from preflight.vocabulary.values import Unknown

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

SURELY = 1.02
"""Tensors and context that are this many times the capacity exceed it, whatever a replay adds to them: the law's own
width (`intervals.REQUESTED`), twice."""
LARGEST = 2**50
"""Bytes of a column, up to which sums of columns are exact in 64 bits, and figures in floating point."""
GPU_ALONE = ("gpu", "gpu_memory", "context")
"""Fields of the machine that are in no figure but those of `high_end` and `room_of`."""
_AGREE: BoundedCache[bool] = BoundedCache(256)
DIMENSIONS = {"b": "train.batch_size", "s": "train.seq_len"}


class Bounded(Struct, frozen=True):
    """Bytes of each job: what its tensors take, as `estimate` says it, and high ends of its process."""

    requested: Numbers
    usual: Numbers
    """The high end as `bound` has it."""
    high: Numbers
    """A high end that no replay of equal batches has."""
    exceeds: np.ndarray[Any, np.dtype[np.bool_]]
    """Its tensors alone are so much larger than the GPU that a replay cannot say anything else."""


class Together(Struct, frozen=True, dict=True):
    """Jobs of one kind between two corners, `low` and `high`, that have a batch and a length and the rest in common."""

    low: PreparedJob
    high: PreparedJob
    capacity: int

    @classmethod
    def of(cls, low: Job, high: Job, gpu: Gpu | None, tracing: Tracing = SHIPPED_ONLY) -> Together | None:
        """None: jobs like these have to be bounded one by one."""
        if low.train.sequences_per_sample != 1 or low.train.compile is not False:
            return None
        ends = [prepare(one, gpu, True, tracing) for one in (low, high)]
        if any(isinstance(one, Unknown) for one in ends):
            return None
        first, last = [one for one in ends if isinstance(one, PreparedJob)]
        try:
            if not (_plain(first) and _plain(last)) or _constants(first) != _constants(last):
                return None
            capacity = room_of(first)[0]
            found = cls(first, last, capacity) if capacity is not None else None
            return found if found is not None and _AGREE.get(first.laws, found._said, found._agrees) else None
        except NotRegular:
            return None

    def bounds(self, batches: Numbers, lengths: Numbers) -> Bounded:
        """Figures of jobs between the corners."""
        import numpy as np

        one, trials = self.low, self.low.job.parallel.trials_per_gpu or 1
        (states, beside, gradients), libraries, (times, above), context = self._common
        dims = {**one.dims, "b": batches, "s": lengths}
        requested = states + np.maximum(self._micro(dims, gradients, False), beside)
        smooth = states + np.maximum(self._micro(dims, gradients, True), beside) + libraries
        reserved = np.rint(smooth * (1 + intervals.ROUNDED))
        factors = (1, intervals.blocks(one.job))
        usual, most = (trials * (np.rint(reserved * factor * times) + above).astype(np.int64) for factor in factors)
        exceeds = trials * (requested + context) > SURELY * self.capacity
        return Bounded(requested * trials, usual, most, exceeds)

    @cached_property
    def _common(self) -> tuple[tuple[int, int, int], int, tuple[float, int], int]:
        """What all jobs have in common: see `_tensors`, `requested_by_libraries`, `high_end`; bytes of the context."""
        one = self.low
        return _tensors(one), requested_by_libraries(one), high_end(one), room_of(one)[1].expected

    def _micro(self, dims: Mapping[str, Any], gradients: int, smooth: bool) -> Numbers:
        import numpy as np

        one = self.low
        found = peaks(one.laws.reading(one.in_backward, False), dims, smooth)
        if one.accumulating and not one.in_backward:
            found = np.maximum(found, gradients + peaks(one.laws.reading(True, False), dims, smooth))
        return found

    @property
    def _said(self) -> tuple[object, ...]:
        """What `_agrees` depends on beside the laws: jobs on other GPUs mostly have it in common, and so the answer."""
        tensors, libraries, (times, _), _ = self._common
        corners = (tuple(one.dims.items()) for one in (self.low, self.high))
        job = unchecked(self.low.job, {f"machine.{name}": None for name in GPU_ALONE})
        return identity(job), *corners, tensors, libraries, times

    def _agrees(self) -> bool:
        """Whether both corners have the figures that they have alone, at lengths that need padding and at others."""
        import numpy as np

        ends = (self.low, self.high)
        trials = self.low.job.parallel.trials_per_gpu or 1
        for one in ends:
            columns = one.laws.plain.at(one.dims).columns  # those of every reading: they are the tape's
            if max(columns.values(one.dims), default=0) > LARGEST:
                return False
        every = [*ends]
        if self.high.dims["s"] > self.low.dims["s"]:
            every += [_at(self.low, 1), _at(self.high, -1)]
        if self.high.dims["b"] > self.low.dims["b"] == 1:  # which may have a tape of its own
            every.append(replace(self.low, dims={**self.low.dims, "b": 2}))
        batches, lengths = (np.array([one.dims[axis] for one in every], np.int64) for axis in ("b", "s"))
        found = self.bounds(batches, lengths)
        return [*found.requested] == [requested_peak(one) * trials for one in every] and [*found.usual[:2]] == [
            bounds_of(one)[1] for one in ends
        ]


def _at(one: PreparedJob, step: int) -> PreparedJob:
    """The job at the next length, upwards or downwards, that needs no padding where its own does, or the other way."""
    length = one.dims["s"] + step
    while (length % ALIGNMENT == 0) == (one.dims["s"] % ALIGNMENT == 0):
        length += step
    return replace(one, dims={**one.dims, "s": max(length, 1)})


def corner(job: Job, batch: int, length: int) -> Job:
    """The job with another batch and length."""
    return unchecked(job, {"train.batch_size": batch, "train.seq_len": length})


def _plain(one: PreparedJob) -> bool:
    """Whether nothing in a step grows with batch or length but the law."""
    job = one.job
    return (
        not (one.compiled or one.peers or one.alternatives)
        and job.train.outputs_kept == "no"
        and one.resolved.like is None
        and one.dims.get("b") == job.train.batch_size
        and one.dims.get("s") == job.train.seq_len
        and not phases_beside(one)
        and not one.laws.unsure(one.dims)
        and all(effect.raised(one, 0) == 0 for effect in EFFECTS)
    )


def _tensors(one: PreparedJob) -> tuple[int, int, int]:
    """Bytes that are always there, the largest moment outside of forward and backward above them, and gradients; as
    `requested_peak` has them."""
    before = [found for effect in EFFECTS for found in effect.before(one) if not found.library]
    after = [found for effect in EFFECTS for found in effect.after(one)]
    later = sum(one.optimizer.states) + sum(sum(found.kept) for found in after)
    gradients = 0 if one.in_backward else one.gradients
    passing = [sum(found.passing) - later for found in before] + [sum(found.passing) for found in after]
    states = one.weights + later + sum(sum(found.kept) for found in before)
    return states, max(gradients + one.optimizer.temporary, *passing, 0), gradients


def _constants(one: PreparedJob) -> tuple[object, ...]:
    """What has to be the same at both corners."""
    laws = [id(law.tape) for law in _readings(one)]
    rest = {name: size for name, size in one.dims.items() if name not in DIMENSIONS}
    return laws, rest, _tensors(one), high_end(one), room_of(one), requested_by_libraries(one), one.accumulating


def _readings(one: PreparedJob) -> list[Law]:
    return [one.laws.reading(accumulating, False) for accumulating in (False, True)]
