"""Estimates: intervals of bytes per tier and phase, with the parts that add up to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct, field

from preflight.vocabulary.standing import Assumption
from preflight.vocabulary.values import Unknown

Verdict = Literal["fits", "fits-if", "at-risk", "exceeds", "unknown"]
"""fits-if: it fits if the estimate's assumptions hold."""

ORDER: tuple[Verdict, ...] = ("unknown", "fits", "fits-if", "at-risk", "exceeds")
"""Verdicts from the one that says nothing to the worst."""

FITTING: tuple[Verdict, ...] = ("fits", "fits-if")

DEVICE_PARTS = (
    "weights", "gradients", "optimizer", "activations", "logits", "temporary", "allocator", "context",
)  # fmt: skip


class Interval(Struct, frozen=True):
    """Bytes, made so that 90 % of measured runs lie between `low` and `high`."""

    low: int
    expected: int
    high: int

    def verdict(self, capacity: int | None) -> Verdict:
        """Middle above capacity: exceeds; only the high end: at-risk; else fits."""
        if capacity is None:
            return "unknown"
        if self.expected > capacity:
            return "exceeds"
        return "at-risk" if self.high > capacity else "fits"


class Coverage(Struct, frozen=True):
    """The measured runs behind the width of an interval: `rows` of `sources` that are as hard to estimate (`kind`).
    `inside`: the share of them that lay inside when the width was made without their source."""

    kind: str
    rows: int
    sources: int
    inside: float


class LargestAllocation(Struct, frozen=True):
    """The largest single tensor of the run; `product` spells its size out: "200 tokens x 10,000,000 vocabulary x 4"."""

    bytes: int
    where: str
    product: str


def _none_known() -> int | None:
    return None


class DeviceEstimate(Struct, frozen=True, eq=False, dict=True):
    """One GPU's memory over the phases of a job; `phase` and `where` (a module) are where the peak sits.

    `breakdown` (keys: DEVICE_PARTS) sums to `process.expected`. `phases` has each phase's process bytes (expected).
    `lower_bound` marks an estimate of the least that the job can take: its states alone, where only a parameter count
    is known, or a batch or length of 1, where that is not known. Its verdict is never "fits".
    `assumptions`: the fields that decide the verdict and are not known well. With "fits-if" the job fits if they hold;
    with another verdict, it would be "exceeds" if they held.
    `find_largest_batch` takes another replay, and few reports name the largest batch: it is called when that is read.
    """

    requested: Interval
    allocated: Interval
    reserved: Interval
    process: Interval
    phase: str
    where: str
    breakdown: Mapping[str, int]
    phases: Mapping[str, int]
    largest_allocation: LargestAllocation | None
    capacity: int | None
    verdict: Verdict
    lower_bound: bool = False
    notes: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    recorded: tuple[str, ...] = ()
    """What runs that were recorded changed in it, with their number."""
    coverage: Coverage | None = None
    """Of the interval of `process`; None: measured runs say nothing of its width."""
    find_largest_batch: Callable[[], int | None] = _none_known
    cannot_trace: Unknown | None = None
    """Of a lower bound: what kept the model's law from being traced."""

    def __eq__(self, other: object) -> bool:
        """Without `find_largest_batch`, which answers the same where the rest is the same."""
        if not isinstance(other, DeviceEstimate):
            return NotImplemented
        compared = (name for name in self.__struct_fields__ if name != "find_largest_batch")
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    @property
    def fitting(self) -> bool:
        """Whether it fits as it is estimated, whatever that stands on."""
        return self.verdict in FITTING

    @cached_property
    def largest_batch_size(self) -> int | None:
        return self.find_largest_batch()


NODE_LIMITS = ("node_memory", "node_memory + swap")
"""Values of `HostEstimate.limited_by` for a job that may use all of its machine."""


class HostEstimate(Struct, frozen=True):
    """One node's memory; `breakdown` sums to `per_node.expected`. `peak` says at which moment it is reached.

    `limit` is what the job may use; `limited_by` names it (memory_limit, node_memory, node_memory + swap).
    """

    per_node: Interval
    breakdown: Mapping[str, int]
    limit: int | None
    limited_by: str
    verdict: Verdict
    peak: str = "training"
    train_only: int | None = None
    """Bytes before validation starts, if the peak is in validation."""
    notes: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    """As those of `DeviceEstimate`."""

    def __eq__(self, other: object) -> bool:
        """Without `find_largest_batch`, which answers the same where the rest is the same."""
        if not isinstance(other, DeviceEstimate):
            return NotImplemented
        compared = (name for name in self.__struct_fields__ if name != "find_largest_batch")
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    @property
    def fitting(self) -> bool:
        """Whether it fits as it is estimated, whatever that stands on."""
        return self.verdict in FITTING

    @property
    def limited_by_node(self) -> bool:
        """Whether the machine itself is the limit, with or without its swap, and no request."""
        return self.limited_by in NODE_LIMITS


Page = Callable[[object], str]
_MAKERS: dict[type, Page] = {}


class Shown:
    """A value that a notebook shows as a page, once somebody said how (`shown_by`)."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """IPython asks for it; None: it has no page, and is shown as text."""
        made = _MAKERS.get(type(self))
        return made(self) if made is not None else None


def shown_by(kind: type, made: Page) -> None:
    """Has the values of a type shown by a function that returns markup."""
    _MAKERS[kind] = made


class Estimates(Shown, Struct, frozen=True):
    """The device and host estimates of one Job, and the Job fields that are missing for one of them."""

    device: DeviceEstimate | None
    host: HostEstimate | None
    unknown: tuple[str, ...] = ()
    causes: Mapping[str, Unknown] = field(default_factory=dict)
    """Why a side is None: "device", "host"."""
    on_gpu: bool = True
    """Whether the job runs on a GPU: then its host alone does not say that it fits."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """The same in words for the user."""
        return {side: unknown.words for side, unknown in self.causes.items()}

    @property
    def verdict(self) -> Verdict:
        """The worse verdict of the two sides. A job whose GPU memory was not judged is not called fitting."""
        verdicts: list[Verdict] = [side.verdict for side in (self.device, self.host) if side is not None]
        worst: Verdict = max(verdicts, key=ORDER.index, default="unknown")
        judged = self.device is not None and self.device.verdict != "unknown"
        return worst if judged or not self.on_gpu or worst in ("at-risk", "exceeds") else "unknown"

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Those of both sides, each field once."""
        sides = [side.assumptions for side in (self.device, self.host) if side is not None]
        return tuple({one.field: one for side in reversed(sides) for one in side}.values())


LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Powers of two, the lengths that people train with."""


class FrontierRow(Struct, frozen=True):
    """At one length (None: the model has none, or it is known): the largest batch that fits (0: none does, None: it is
    not known), and the estimate by batch."""

    length: int | None
    largest_batch: int | None
    needs: tuple[tuple[int, DeviceEstimate], ...]


class Explanation(Struct, frozen=True):
    """With this one setting different, the estimate would be `expected`; `part` is the term that moves most."""

    field: str
    value: object
    expected: int
    part: str
    change: int


class Comparison(Struct, frozen=True):
    """A measurement against the process tier. `explanations`: the closest first, those that agree within 5 % only."""

    measured: int
    difference: int
    agrees: bool
    explanations: tuple[Explanation, ...]


ALL_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "temporary")
"""The parts of allocated bytes, in the order in which they are counted and drawn."""


class StepMoment(Struct, frozen=True):
    """Bytes: `parts` in the order of ALL_PARTS, `allocated` their sum, `reserved` what the allocator holds."""

    phase: str
    allocated: int
    reserved: int
    parts: tuple[int, ...]


class Holder(Struct, frozen=True):
    """Storages that one line or module holds at the peak of requested bytes; `part` is one of ALL_PARTS."""

    name: str
    bytes: int
    count: int
    part: str
    via: str = ""
    """The line of a library that the user's line called."""
