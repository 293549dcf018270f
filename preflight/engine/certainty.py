"""Whether a verdict is certain: whether the values that it stands on are known, and what it stands on if they are not.

One question is asked in two directions about the fields that are not known well (see `standings`):

- A job that fits is estimated again with the worst value that each of them may have. If it still fits, it fits. If it
  does not, it fits *if* those values hold that raise the need: the verdict is "fits-if", with them as assumptions.
- A job that exceeds is estimated again with the least that its unknown fields may be. If it does not exceed then, the
  verdict is "unknown", with those fields as assumptions: nobody may be told of an error that a value would undo. The
  same holds for defaults that something unread may replace.
- A need that exceeds is only a lower bound, of a job whose sharding nobody read, or larger than any GPU. If other
  values of these fields would let the job fit, the verdict is weaker ("unknown" for a bound and for the sharding,
  "at-risk" for an implausible need), with them as assumptions.
- A need that exceeds is that of samples as long as they may be, and much shorter ones would fit: "at-risk".

What the worst and the least values are is in `worst_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.engine.doubts import OPEN, TYPES, Doubts
from preflight.engine.estimator import CLEARLY, Certain, Estimator
from preflight.engine.worst_values import (
    ALL,
    HALF,
    LARGEST_MODEL,
    LEAST,
    Changes,
    own_value,
    ways,
    worst_jobs,
)
from preflight.machines.gpus import find_gpu
from preflight.memory.device import blocks
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.edits_of_job import possible, with_fields
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Verdict
from preflight.vocabulary.job import Job
from preflight.vocabulary.standing import Assumption, Held, Standing
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import thawed
from preflight.vocabulary.verdicts import SpaceVerdict

if TYPE_CHECKING:
    from preflight.space.grid import Side

Bound: TypeAlias = "Callable[[Job], tuple[int, int] | None]"
"""(expected, high) bytes of a job from above."""

GPU = "machine.gpu"
GIVEN_GPU = ("machine.gpu", "machine.gpu_memory", "machine.context")
GIVEN_NODE = ("machine.memory_limit", "machine.node_memory", "machine.swap", "machine.shm")
"""Fields that say what a job gets of a GPU, and of a node: what a need is compared with."""


class Certainty(Struct, dict=True):
    """The estimates of one study's jobs, with verdicts that say no more than is known.

    `held`: how each field is known (`standings.union` over the boxes).
    """

    held: Mapping[str, Held]
    estimator: Estimator
    _worded: dict[str, Estimates] = field(default_factory=dict)
    _worst: BoundedCache[tuple[Job | None, ...]] = field(default_factory=lambda: BoundedCache(4))

    @cached_property
    def _doubts(self) -> Doubts:
        return Doubts(self.held, self.estimator)

    @property
    def weak(self) -> dict[str, Held]:
        """The fields that are not known well and that the need may depend on."""
        return self._doubts.weak

    @cached_property
    def _kept(self) -> Certain:
        return self.estimator.certain(self.held)

    def estimate(self, job: Job) -> Estimates:
        """The estimate, with a verdict that is certain or has its assumptions."""
        key = self.estimator.key(job)
        if key not in self._worded:
            self._worded[key] = self._in_words(self._open(job))
        return self._worded[key]

    def _open(self, job: Job) -> Estimates:
        """The same with the words of fields left open."""
        key, kept = self.estimator.key(job), self._kept.estimates
        if key not in kept:
            found = self.estimator.full(job)
            device = self._device(job, found.device) if found.device is not None else None
            host = self._host(job, found.host) if found.host is not None else None
            kept[key] = replace(found, device=device, host=host)
        return kept[key]

    def _in_words(self, found: Estimates) -> Estimates:
        if not found.assumptions:
            return found
        device, host = found.device, found.host
        return replace(
            found,
            device=device and replace(device, assumptions=tuple(map(self._worded_one, device.assumptions))),
            host=host and replace(host, assumptions=tuple(map(self._worded_one, host.assumptions))),
        )

    def _worded_one(self, one: Assumption) -> Assumption:
        return replace(one, why=one.why.replace(OPEN, self.held[one.field].why)) if OPEN in one.why else one

    def space(self, study: Study, constraints: Mapping[str, str]) -> SpaceVerdict:
        """The verdict on a study's search space. Spaces that say the same are judged once: those of launches that
        differ in nothing, and of studies that are read again after an edit elsewhere."""
        from preflight.space.judge import judge, meaning, on_boxes

        kept, key = self._kept.spaces, meaning(study, constraints)
        if key not in kept:
            sides = self.estimator.sides(self._open)
            kept[key] = judge(study, self._open, *sides, constraints=constraints, doubted=self.sides())
        return on_boxes(kept[key], study, self._in_words)

    def _device(self, job: Job, found: DeviceEstimate) -> DeviceEstimate:
        judged = self._on_its_gpu(job, found)
        if judged.verdict != "exceeds" or not self._larger_may_hold(job):
            return judged
        gpu = self._doubts.assumption(job, GPU)
        return replace(judged, verdict="unknown", assumptions=(gpu,), find_largest_batch=lambda: None)

    def _larger_may_hold(self, job: Job) -> bool:
        """Whether the name of the GPU may mean another one, on which the job is not certain to exceed."""
        known = self.held.get(GPU)
        rest = {name: held for name, held in self.held.items() if name != GPU}
        for gpu in filter(None, map(find_gpu, map(str, known.others if known is not None else ()))):
            other = Certainty(rest, self.estimator.on(gpu)).estimate(with_fields(job, {GPU: gpu.name})).device
            if other is None or other.verdict != "exceeds":
                return True
        return False

    def _on_its_gpu(self, job: Job, found: DeviceEstimate) -> DeviceEstimate:
        if found.verdict == "fits":
            assumed = (
                *self._given(job, GIVEN_GPU),
                *self._blamed(job, partial(self._device_fits, job), self.estimator.device_bound),
            )
            return replace(found, verdict="fits-if", assumptions=assumed) if assumed else found
        if found.verdict == "exceeds" and (other := tuple(self._doubts.other_model(job))):
            return replace(found, verdict="unknown", assumptions=other, find_largest_batch=lambda: None)
        if found.lower_bound:
            # what is frozen has no gradients and no states
            untrained = self._doubts.may_train_nothing(job)
            small = untrained or any(self._doubts.frozen(job)) or self._doubts.may_be_adapted(job)
            least = self._doubts.device_of(job, {"train.frozen": [ALL]}) if small else found
            if least is None:  # nothing tells what the weights alone take
                return replace(found, verdict="unknown")
            if small and found.verdict != "exceeds":
                return replace(least, verdict="unknown")
            doubts = tuple(self._doubts.of_bound(job)) if found.verdict == "exceeds" else ()
            if untrained and not doubts and least.verdict != "exceeds":
                doubts = (self._doubts.no_optimizer(job),)
            if doubts:
                return replace(least, verdict="unknown", assumptions=doubts)
            doubts = tuple(self._doubts.implausible(job, found)) if found.verdict == "exceeds" else ()
            return replace(found, verdict="at-risk", assumptions=doubts) if doubts else found
        if found.verdict == "exceeds" and (sharding := tuple(self._doubts.sharding(job))):
            return replace(found, verdict="unknown", assumptions=sharding, find_largest_batch=lambda: None)
        if found.verdict in ("exceeds", "at-risk") and (frozen := tuple(self._doubts.frozen(job))):
            return replace(found, verdict="unknown", assumptions=frozen, find_largest_batch=lambda: None)
        if found.verdict == "exceeds" and (smaller := self._smaller(job, self._device_exceeds)):
            return replace(found, verdict="unknown", assumptions=smaller, find_largest_batch=lambda: None)
        if found.verdict in ("exceeds", "at-risk") and (resembling := tuple(self._doubts.similar_model(job, found))):
            above = found.capacity is not None and found.process.low > found.capacity
            doubted: Verdict = "at-risk" if above else "unknown"
            return replace(found, verdict=doubted, assumptions=resembling, find_largest_batch=lambda: None)
        doubts = tuple(self._doubts.implausible(job, found)) or tuple(self._doubts.longest_samples(job, found))
        weaker: Verdict = "at-risk" if found.verdict == "exceeds" else found.verdict
        return replace(found, verdict=weaker, assumptions=doubts) if doubts else found

    def _host(self, job: Job, found: HostEstimate) -> HostEstimate:
        if found.verdict == "exceeds" and (smaller := self._smaller(job, self._host_exceeds)):
            return replace(found, verdict="unknown", assumptions=smaller)
        if found.verdict != "fits":
            return found
        given, uncounted = self._given(job, GIVEN_NODE), self._uncounted(job)
        assumed = (*given, *uncounted, *self._blamed(job, self._host_fits, self.estimator.host_bound))
        return replace(found, verdict="fits-if", assumptions=assumed) if assumed else found

    def unsure(self, job: Job) -> tuple[Assumption, ...]:
        """The fields that are not known well and that a job's need of GPU memory depends on, whatever its GPU has."""
        bound = self.estimator.device_bound
        raising = (
            name
            for name, held in self.weak.items()
            if not name.startswith("data.") and any(_raises(job, one, bound) for one in ways(job, name, held))
        )
        names = dict.fromkeys((*(one.field for one in self._doubts.frozen(job)), *raising))
        return tuple(self._worded_one(self._doubts.assumption(job, name)) for name in names)

    def sides(self) -> tuple[Side, Side] | None:
        """Device and host with the worst values, as the search space judges them; None where every value is known
        well."""
        device, host = self.estimator.sides(self._open)
        gpu, node = (any(map(self._is_assumed, names)) for names in (GIVEN_GPU, GIVEN_NODE))
        doubted = self.estimator.doubted
        if not (self.weak or gpu or node or doubted):
            return None
        return (
            replace(
                device,
                bound=_nothing if gpu or doubted else self._doubted(device.bound),
                least=None,
                close=self._close(device),
            ),
            replace(host, bound=_nothing if node else self._doubted(host.bound)),
        )

    # --- what fits, with the worst values ---------------------------------------------------------------------------

    def _doubted(self, bound: Bound) -> Bound:
        """`bound` of a job in which every value that is not known well is the worst; None where there is no worst."""

        def worst(job: Job) -> tuple[int, int] | None:
            sizes = [bound(one) if one is not None else None for one in self._at_worst(job)]
            known = [size for size in sizes if size is not None]
            return (max(a for a, _ in known), max(b for _, b in known)) if len(known) == len(sizes) else None

        return worst

    def _at_worst(self, job: Job) -> tuple[Job | None, ...]:
        """A job, and the same with the worst values. The bounds of device and host are asked about one in turn."""
        return self._worst.get(job, None, lambda: (job, *worst_jobs(job, self.weak)))

    def _close(self, side: Side) -> Callable[[Job, tuple[int, int], int], int | None]:
        """The verdict of a job in which every value that is not known well is the worst, where its bound is near to the
        capacity."""

        def worst(job: Job, found: tuple[int, int], limit: int) -> int | None:
            ranks = [side.judge(one)[0] for one in self._at_worst(job) if one is not None]
            known = [rank for rank in ranks if rank is not None]
            return max(known) if len(known) == len(ranks) else None

        return worst

    def _blamed(self, job: Job, fits: Callable[[Job], bool], bound: Bound) -> tuple[Assumption, ...]:
        """The fields without which it is not certain that a job fits; none if it fits with the worst values.

        First those that alone keep it from fitting. If the others together do so too, those that raise the need are
        named as well.
        """
        if _fits_at_worst(job, self.weak, fits):
            return ()
        each_way = {name: tuple(ways(job, name, held)) for name, held in self.weak.items()}
        alone = [name for name, each in each_way.items() if any(one is None or not fits(one) for one in each)]
        rest = {name: held for name, held in self.weak.items() if name not in alone}
        if not _fits_at_worst(job, rest, fits):
            alone += [name for name in rest if any(_raises(job, one, bound) for one in each_way[name])]
        return tuple(self._doubts.assumption(job, name) for name in alone)

    def _given(self, job: Job, names: tuple[str, ...]) -> tuple[Assumption, ...]:
        """What the machine gives to the job, where that is assumed."""
        return tuple(self._doubts.assumption(job, name) for name in names if self._is_assumed(name))

    def _is_assumed(self, name: str) -> bool:
        return name in self.held and self.held[name].standing in (Standing.assumed, Standing.by_name)

    def _uncounted(self, job: Job) -> Iterator[Assumption]:
        """The size of a model that is not known, if loading its weights may take more than the host has.

        A model that every GPU holds whole is no larger than the GPU, or the job does not get that far.
        """
        most = self.estimator.most_parameters(job)
        whole = job.parallel.strategy in ("none", "ddp") and job.train.quantization.type == "none"
        largest = (self.estimator.capacity(job) or self.estimator.largest_gpu) // HALF if whole else LARGEST_MODEL
        if most is not None and most < largest:
            why = f"no file states it, and the weights of at most {most / 1e9:,.1f} billion parameters fit"
            yield Assumption("model.parameters", None, Standing.unknown, why)

    def _device_fits(self, own: Job, job: Job) -> bool:
        """Whether a job fits that differs from the study's own in values that are not known well. That it is compiled
        is then no reason for a trace, which takes seconds: the plain step's law has a wider interval."""
        estimator = self.estimator
        if job.train.compile and not own.train.compile:
            estimator = estimator.without_compiled_traces()
        bound = estimator.device_bound(job)
        capacity = self.estimator.capacity(job)
        if capacity is None:
            return False
        if bound is not None and (bound[1] * blocks(job) <= capacity or bound[0] > CLEARLY * capacity):
            return bound[1] <= capacity
        return estimator.verdict(job) == "fits"

    def _host_fits(self, job: Job) -> bool:
        found = self.estimator.host(job)
        return found is not None and found.verdict == "fits"

    # --- what exceeds, and might not with other values ---------------------------------------------------------------

    def _smaller(self, job: Job, exceeds: Callable[[Job], bool]) -> tuple[Assumption, ...]:
        """The unknown fields with which a job that exceeds may fit; none if it exceeds with the least that they may be.

        First those that alone let it fit; if only several together do, all of them.
        """
        least = {name: value for name in self.weak for value in self._least(job, name)}
        if not least or not self._may(job, least, exceeds):
            return ()
        alone = [name for name, value in least.items() if self._may(job, {name: value}, exceeds)]
        return tuple(self._doubts.assumption(job, name) for name in alone or least)

    def _least(self, job: Job, name: str) -> Iterator[object]:
        """The value with which an unknown field takes the least, if it is not the job's own."""
        held = self.weak[name]
        if (held.standing is Standing.unknown or held.unsaid) and name in LEAST:
            may = [LEAST[name]]
        else:
            others, own = [*map(thawed, held.others)], own_value(job, name)
            smaller = [one for one in others if isinstance(one, int) and isinstance(own, int) and one < own]
            least = LEAST[name] if name in LEAST else min(smaller, default=None)
            may = [least] if least in others else []
        yield from (value for value in may if value != own_value(job, name))

    def _may(self, job: Job, values: Changes, exceeds: Callable[[Job], bool]) -> bool:
        """Whether a job may fit with these values. What no law covers may, unless half of the need is too much.

        In 16 bits no tensor takes less than half. Copies of the weights that autocast makes take none. A trace is made
        for another type of numbers alone: it is the value that most jobs leave open, by the release of transformers.
        """
        changed = possible(job, values)
        if changed is not None and exceeds(changed):
            return False
        own = self.estimator.full(job).device if exceeds == self._device_exceeds and {*values} <= {*TYPES} else None
        if own is None or own.lower_bound or own.capacity is None:
            return True
        may = (own.requested.low - own.breakdown.get("weights", 0) // HALF) // HALF <= own.capacity
        return may and (changed is None or not self._exceeds_by(self.estimator, changed))

    def _device_exceeds(self, job: Job) -> bool:
        return self._exceeds_by(self.estimator.without_traces(), job)

    def _exceeds_by(self, estimator: Estimator, job: Job) -> bool:
        found = estimator.full(job).device
        return found is not None and found.verdict == "exceeds" and not any(self._doubts.implausible(job, found))

    def _host_exceeds(self, job: Job) -> bool:
        found = self.estimator.without_traces().host(job)
        return found is not None and found.verdict == "exceeds"


def _nothing(job: Job) -> tuple[int, int] | None:
    """The bound of a need that is compared with an assumed capacity: nothing is known to fit."""
    return None


def _fits_at_worst(job: Job, weak: Mapping[str, Held], fits: Callable[[Job], bool]) -> bool:
    return all(one is not None and fits(one) for one in worst_jobs(job, weak))


def _raises(job: Job, changed: Job | None, bound: Bound) -> bool:
    """Whether a job may need more than another; True too where that is not known."""
    least, most = bound(job), bound(changed) if changed is not None else None
    return least is None or most is None or most > least
