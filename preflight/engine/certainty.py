"""Whether a verdict is certain: whether the values that it stands on are known, and what it stands on if they are not.

One question is asked in two directions about the fields that are not known well (see `standings`):

- A job that fits is estimated again with the worst value that each of them may have. If it still fits, it fits. If it
  does not, it fits *if* those values hold that raise the need: the verdict is "fits-if", with them as assumptions.
- A need that exceeds is only a lower bound, of a job whose sharding nobody read, or larger than any GPU. If other
  values of these fields would let the job fit, the verdict is weaker ("unknown" for a bound and for the sharding,
  "at-risk" for an implausible need), with them as assumptions.

The worst value of a field is in `WORST`. A number has none: one that is `BEYOND` times larger stands for it. Any other
field, a model's name say, has no worst value, and the verdict depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from preflight.engine.estimator import Estimator
from preflight.vocabulary.edits_of_job import possible, with_fields
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Verdict
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.spelling import kind_of
from preflight.vocabulary.standing import Assumption, Held, Standing
from preflight.vocabulary.values import thawed
from preflight.vocabulary.words import gib

if TYPE_CHECKING:
    from preflight.space.grid import Side

Changes: TypeAlias = "Mapping[str, object]"
Bound: TypeAlias = "Callable[[Job], tuple[int, int] | None]"
"""(expected, high) bytes of a job from above."""

WORST: Mapping[str, tuple[object, ...]] = {
    "train.precision": ("fp32", "bf16-mixed"),  # autocast keeps 16-bit copies beside the weights
    "train.weights_dtype": (None, "fp32"),
    "train.tf32": (True,),
    "train.quantization.type": ("none",),
    "train.quantization.double_quant": (False,),
    "train.quantization.compute_dtype": ("fp32",),
    "train.quantization.upcast_rest": (True,),
    "train.optimizer": ("adamw",),
    "train.optimizer_impl": ("foreach",),
    "train.gradient_checkpointing": (False,),
    "train.attention": ("eager",),
    "train.compile": (False, True),
    "train.peft.method": (None,),
    "train.peft.targets": ("all-linear",),
    "train.peft.dropout": (0.1,),
    "train.peft.options": ({},),
    "train.peft.dtype": ("fp32",),
    "train.frozen": ([],),
    "train.grad_accum": (2,),  # gradients live through the next forward; more steps take no more
    "train.copies.reference": (1,),
    "train.copies.ema": (1,),
    "train.outputs_kept": ("loop",),
    "train.loss": ("full",),
    "train.sequences": ("bound", "dynamic"),
    "train.optimizer_in_backward": (False,),
    "train.activation_offload": (False,),
    "train.saves": ("gathered",),
    "train.resumes": ("kept",),
    "train.saved_as": ("fp32",),
    "train.channels_last": (False, True),
    "train.cudnn_benchmark": (True,),
    "train.empty_cache_every": (None,),
    "train.allocator.expandable_segments": (False,),
    "train.allocator.max_split_size_mb": (None,),
    "train.allocator.garbage_collection_threshold": (None,),
    "validation.accumulates_logits": (True,),
    "validation.eval_accumulation": (None,),
    "validation.generates": (True,),
    "data.workers": (16,),  # as many as a GPU has cores on large nodes
    "data.prefetch": (4,),
    "data.persistent_workers": (True,),
    "data.pin_memory": (True,),
    "data.start_method": ("spawn",),
    "data.shuffle": (True,),
    "data.in_memory_kind": ("objects", "strings"),
    "data.samples_from": ("numpy", "torch"),
    "data.copies_samples": (True,),
    "data.validation_overlaps": (True,),
    "data.validation_workers": (16,),
    # with DDP, buckets of gradients are beside the gradients; on one GPU, sharding has copies and nothing to split
    "parallel.strategy": ("none", "ddp", "fsdp", "zero1", "zero2", "zero3"),
    "parallel.nodes": (1,),
    "parallel.gpus_per_node": (1,),
    "parallel.tensor": (1,),
    "parallel.pipeline": (1,),
    "parallel.options": ({},),
    "parallel.offload": ("none", "optimizer", "parameters"),  # none: most on the GPU; the others: on the host
}
"""The values of a field with which a job takes the most memory, of the GPU or of the host. Most are the defaults."""

NODE = 8
"""GPUs of a node of a cluster, where the number is in a file that was not read."""

DDP = {"parallel.ranks_per_node": 2, "parallel.gpus_per_node": 2}
"""The least that DDP is used for. Its buckets are as large on any number of GPUs."""

OFFLOADING = ("zero3", "fsdp")
"""The sharding with which parameters can wait on the host."""

WITHOUT_EFFECT = ("data.imports", "data.epochs", "software", "task", "machine")
"""Fields, and groups of fields, that the need does not grow with: what is imported is read from the program, a task
comes with the model, releases decide defaults, and the machine is what the need is compared with."""

BEYOND = 64
"""A number that nobody stated is taken to be at most this many times larger."""
LARGEST_MODEL = 2 * 10**12
"""Parameters that no public model has: the largest have 1 to 1.6 trillion (Switch-C, Kimi K2)."""
HALF = 2
"""Bytes of a parameter in 16 bits, the least that a model takes that is not quantised."""

UNSTATED = 2**16
"""A number of which nothing is known."""

CLEARLY = 1.3
"""A bound from above that is this much larger than the capacity needs no replay to say that the job does not fit: the
blocks of the caching allocator are never a third larger than the bound (docs/results/accuracy.md)."""

STATES = ("parallel.strategy", "train.peft.method", "train.quantization.type", "train.frozen", "parallel.offload")
"""Fields that decide how much of the states of a model a GPU holds: with another value it may be a small part."""

SMALLEST: Mapping[str, int] = {
    "train.batch_size": 1, "train.seq_len": 128, "train.target_len": 128, "train.text_len": 128,
    "validation.batch_size": 1, "validation.seq_len": 128,
}  # fmt: skip
"""A job that is small in everything but its states."""


@dataclass
class Certainty:
    """The estimates of one study's jobs, with verdicts that say no more than is known.

    `held`: how each field is known (`standings.union` over the boxes).
    """

    held: Mapping[str, Held]
    estimator: Estimator
    _kept: dict[str, Estimates] = field(default_factory=dict)

    @cached_property
    def weak(self) -> dict[str, Held]:
        """The fields that are not known well and that the need may depend on."""
        return {
            name: held
            for name, held in self.held.items()
            if not held.standing.holds and not {name, name.partition(".")[0]} & {*WITHOUT_EFFECT}
        }

    def estimate(self, job: Job) -> Estimates:
        """The estimate, with a verdict that is certain or has its assumptions."""
        key = identity(job)
        if key not in self._kept:
            found = self.estimator.full(job)
            device = self._device(job, found.device) if found.device is not None else None
            host = self._host(job, found.host) if found.host is not None else None
            self._kept[key] = replace(found, device=device, host=host)
        return self._kept[key]

    def _device(self, job: Job, found: DeviceEstimate) -> DeviceEstimate:
        if found.verdict == "fits":
            assumed = self._blamed(job, self._device_fits, self.estimator.device_bound)
            return replace(found, verdict="fits-if", assumptions=assumed) if assumed else found
        if found.lower_bound:
            doubts = tuple(self._doubts_of_bound(job)) if found.verdict == "exceeds" else ()
            return replace(found, verdict="unknown", assumptions=doubts) if doubts else found
        if found.verdict == "exceeds" and (sharding := tuple(self._sharding(job))):
            return replace(found, verdict="unknown", assumptions=sharding, find_largest_batch=lambda: None)
        if found.verdict in ("exceeds", "at-risk") and (frozen := tuple(self._frozen(job))):
            return replace(found, verdict="unknown", assumptions=frozen, find_largest_batch=lambda: None)
        doubts = tuple(self._implausible(job, found))
        weaker: Verdict = "at-risk" if found.verdict == "exceeds" else found.verdict
        return replace(found, verdict=weaker, assumptions=doubts) if doubts else found

    def _host(self, job: Job, found: HostEstimate) -> HostEstimate:
        if found.verdict != "fits":
            return found
        assumed = (*self._uncounted(job), *self._blamed(job, self._host_fits, self.estimator.host_bound))
        return replace(found, verdict="fits-if", assumptions=assumed) if assumed else found

    def unsure(self, job: Job) -> tuple[Assumption, ...]:
        """The fields that are not known well and that a job's need of GPU memory depends on, whatever its GPU has."""
        bound = self.estimator.device_bound
        raising = (
            name
            for name, held in self.weak.items()
            if not name.startswith("data.") and any(_raises(job, one, bound) for one in _ways(job, name, held))
        )
        names = dict.fromkeys((*(one.field for one in self._frozen(job)), *raising))
        return tuple(self._assumption(job, name) for name in names)

    def sides(self) -> tuple[Side, Side] | None:
        """Device and host with the worst values, as the search space judges them; None where every value is known
        well."""
        device, host = self.estimator.sides(self.estimate)
        if not self.weak:
            return None
        return replace(device, bound=self._doubted(device.bound), least=None), replace(
            host, bound=self._doubted(host.bound)
        )

    # --- what fits, with the worst values ---------------------------------------------------------------------------

    def _doubted(self, bound: Bound) -> Bound:
        """`bound` of a job in which every value that is not known well is the worst; None where there is no worst."""

        def worst(job: Job) -> tuple[int, int] | None:
            sizes = [bound(one) if one is not None else None for one in (job, *_worst(job, self.weak))]
            known = [size for size in sizes if size is not None]
            return (max(a for a, _ in known), max(b for _, b in known)) if len(known) == len(sizes) else None

        return worst

    def _blamed(self, job: Job, fits: Callable[[Job], bool], bound: Bound) -> tuple[Assumption, ...]:
        """The fields without which it is not certain that a job fits; none if it fits with the worst values.

        First those that alone keep it from fitting. If the others together do so too, those that raise the need are
        named as well.
        """
        if _fits_at_worst(job, self.weak, fits):
            return ()
        ways = {name: tuple(_ways(job, name, held)) for name, held in self.weak.items()}
        alone = [name for name, each in ways.items() if any(one is None or not fits(one) for one in each)]
        rest = {name: held for name, held in self.weak.items() if name not in alone}
        if not _fits_at_worst(job, rest, fits):
            alone += [name for name in rest if any(_raises(job, one, bound) for one in ways[name])]
        return tuple(self._assumption(job, name) for name in alone)

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

    def _device_fits(self, job: Job) -> bool:
        bound = self.estimator.device_bound(job)
        capacity = self.estimator.capacity(job)
        if capacity is None:
            return False
        if bound is not None and (bound[1] <= capacity or bound[0] > CLEARLY * capacity):
            return bound[1] <= capacity
        found = self.estimator.full(job).device
        return found is not None and found.verdict == "fits"

    def _host_fits(self, job: Job) -> bool:
        found = self.estimator.host(job)
        return found is not None and found.verdict == "fits"

    def _assumption(self, job: Job, name: str, why: str = "") -> Assumption:
        held = self.held.get(name)
        return Assumption(
            name,
            _own(job, name),
            held.standing if held is not None else Standing.read,
            why or (held.why if held else ""),
        )

    # --- what exceeds, and might not with other values ---------------------------------------------------------------

    def _doubts_of_bound(self, job: Job) -> Iterator[Assumption]:
        """Fields with which states that exceed the GPU might fit: the need is the least that the model takes whole."""
        for name in STATES:
            if name in self.weak:
                yield self._assumption(job, name)
                return
        precision = self.weak.get("train.precision")
        if precision is None:
            return
        for value in precision.others:
            half = self.estimator.full(with_fields(job, {"train.precision": value})).device
            if half is None or half.verdict != "exceeds":
                yield self._assumption(job, "train.precision", f"in {value} they may fit: {precision.why}")
                return

    def _sharding(self, job: Job) -> Iterator[Assumption]:
        """The sharding, if the file that decides it was not read and the job may fit with its states split over its
        GPUs."""
        if STATES[0] not in self.weak or job.parallel.strategy not in ("none", "ddp"):
            return
        gpus = NODE if "parallel.gpus_per_node" in self.weak else job.parallel.gpus_per_node or 1
        split = {"parallel.strategy": "zero3", "parallel.gpus_per_node": gpus, "parallel.ranks_per_node": gpus}
        device = self._device_of(job, split) if gpus > 1 else None
        if device is not None and device.verdict != "exceeds":
            yield self._assumption(job, STATES[0])

    def _frozen(self, job: Job) -> Iterator[Assumption]:
        """The parts that are trained, if something is frozen and the text does not say what: layers below the first
        trained one keep nothing for backward. Adapters say themselves what is trained."""
        if "train.frozen" in self.weak and job.train.peft.method in (None, "none"):
            yield self._assumption(job, "train.frozen")

    def _implausible(self, job: Job, found: DeviceEstimate) -> Iterator[Assumption]:
        """The field that makes a need larger than any GPU, where a small batch or length would fit: it is probably not
        what a GPU gets at a time."""
        largest = self.estimator.largest_gpu
        if found.process.expected <= largest:
            return
        smaller = {name: least for name, least in SMALLEST.items() if _above(job, name, least)}
        small = self._need(job, smaller) if smaller else None
        if small is None or small[1] > (found.capacity or largest):
            return
        need = {name: one for name in smaller if (one := self._need(job, {name: smaller[name]})) is not None}
        cause = min(need, key=lambda name: need[name][0], default=None)
        alone = self._device_of(job, {cause: smaller[cause]}) if cause is not None else None
        if cause is not None and alone is not None:
            least = gib(alone.process.expected)
            why = f"no GPU has the memory for it, and with {smaller[cause]} it would be {least}"
            yield self._assumption(job, cause, why)

    def _need(self, job: Job, values: Changes) -> tuple[int, int] | None:
        """(expected, high) bytes of a process with these values: their bound, which takes no replay, where there is
        one."""
        changed = possible(job, values)
        bound = self.estimator.device_bound(changed) if changed is not None else None
        if bound is not None:
            return bound
        device = self._device_of(job, values)
        return (device.process.expected, device.process.high) if device is not None else None

    def _device_of(self, job: Job, values: Changes) -> DeviceEstimate | None:
        changed = possible(job, values)
        return self.estimator.full(changed).device if changed is not None else None


def _fits_at_worst(job: Job, weak: Mapping[str, Held], fits: Callable[[Job], bool]) -> bool:
    return all(one is not None and fits(one) for one in _worst(job, weak))


def _worst(job: Job, weak: Mapping[str, Held]) -> Iterator[Job | None]:
    """The job with the worst value of every field; again for each further value that one may have. None: a field has no
    worst value."""
    first: dict[str, object] = {}
    further: list[Changes] = []
    for name, held in weak.items():
        values = _values(job, name, held)
        if values is None:
            yield None
            return
        own = _own(job, name)
        if values and values[0] != own:
            first = {**with_ranks(job, name, values[0]), **first}
        further += [with_ranks(job, name, value) for value in values[1:] if value != own]
    if first:
        yield possible(job, first)
    for more in further:
        yield possible(job, {**first, **more})


def _raises(job: Job, changed: Job | None, bound: Bound) -> bool:
    """Whether a job may need more than another; True too where that is not known."""
    least, most = bound(job), bound(changed) if changed is not None else None
    return least is None or most is None or most > least


def _above(job: Job, name: str, least: int) -> bool:
    value = job.get(name)
    return isinstance(value, int) and value > least


def _ways(job: Job, name: str, held: Held) -> Iterator[Job | None]:
    """The job with each of the values, other than its own, with which one field may take the most. None: there is no
    worst one."""
    values = _values(job, name, held)
    if values is None:
        yield None
        return
    for value in values:
        if value != _own(job, name):
            yield possible(job, with_ranks(job, name, value))


def _values(job: Job, name: str, held: Held) -> tuple[object, ...] | None:
    """The values with which a field may take the most, the worst first; its own may be among them. None where there is
    no worst one."""
    own = _own(job, name)
    if name in WORST:
        may = [*map(thawed, held.others)]
        return tuple(value for value in WORST[name] if not may or value == own or value in may)
    if held.others:
        return tuple(sorted((own, *map(thawed, held.others)), key=_downwards))
    if own is None:
        return _of_kind(name)
    if isinstance(own, bool):
        return (own, not own)
    if isinstance(own, (int, float)):
        return (own * BEYOND,)
    return None


def _downwards(value: object) -> float:
    """Orders values, the largest number first."""
    return -value if isinstance(value, (int, float)) else 0


def _own(job: Job, name: str) -> object:
    """The value of a field of a job; None too where the job has no such key in a mapping."""
    try:
        return job.get(name)
    except KeyError:
        return None


def _of_kind(name: str) -> tuple[object, ...] | None:
    """The values to try of a field that has none."""
    kind = kind_of(name)
    if kind is None or kind.name not in ("int", "float", "bool", "enum"):
        return None
    return {"bool": (False, True), "enum": kind.choices}.get(kind.name, (UNSTATED,))


def with_ranks(job: Job, name: str, value: object) -> Changes:
    """The change of a field, with the ranks that DDP needs, and the sharding that offloaded parameters need."""
    ranks = (job.parallel.ranks_per_node or 1) * (job.parallel.nodes or 1)
    if name == "parallel.offload" and value == "parameters" and job.parallel.strategy not in OFFLOADING:
        return {name: value, STATES[0]: OFFLOADING[0]}
    return {name: value, **(DDP if value == "ddp" and ranks == 1 else {})}
