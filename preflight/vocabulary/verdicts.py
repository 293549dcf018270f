"""Verdicts on a search space, for rules and reports: counts of combinations, the worst one, the part that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Axis, Range, Value


class Counts(Struct, frozen=True):
    """Combinations by verdict (of the worse of device and host)."""

    fits: int = 0
    fits_if: int = 0
    """Combinations that fit if the assumptions of the study hold."""
    at_risk: int = 0
    exceeds: int = 0
    unknown: int = 0
    exact: bool = True
    """False: the space was too irregular to count completely; `unknown` has the remaining combinations."""

    @property
    def fitting(self) -> int:
        """Those that fit as they are estimated, whatever that stands on."""
        return self.fits + self.fits_if

    @property
    def unsafe(self) -> int:
        return self.exceeds + self.at_risk


class Point(Struct, frozen=True):
    """One combination: axis values, the Job they make, and its full estimate."""

    assignment: Mapping[str, Value]
    job: Job
    estimates: Estimates
    box: int = 0
    """The number of its box in the study."""


class Points(Struct, frozen=True):
    """Combinations of a study, in the order of its axes. `whole`: none was left out."""

    found: tuple[Point, ...]
    whole: bool


class SafeBox(Struct, frozen=True):
    """The largest sub-space of one box that fits: axis name -> values kept (for a range: its two bounds)."""

    keep: Mapping[str, tuple[Value, ...]]
    combinations: int
    dropped: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def holds(self, assignment: Mapping[str, Value], axes: Iterable[Axis]) -> bool:
        """Whether a combination lies in it. `axes`: of its box."""
        ranges = {axis.name for axis in axes if isinstance(axis.domain, Range)}
        return all(
            (values[0] <= assignment[name] <= values[-1] if name in ranges else assignment[name] in values)  # type: ignore[operator]
            for name, values in self.keep.items()
            if name in assignment
        )


class ModelVerdict(Struct, frozen=True):
    """The part of a box with one value of its model axis: counts, and the largest sub-space of it that fits.

    `safe` is None if no combination fits. If all combinations fit, `safe.dropped` is empty.
    """

    axis: str
    value: Value
    counts: Counts
    safe: SafeBox | None = None


class BoxVerdict(Struct, frozen=True):
    """One box, judged. `worst` is the combination with the largest expected device bytes (host bytes without a device).

    `safe` is None if no combination fits, or if all do.
    """

    box: Box
    counts: Counts
    worst: Point
    safe: SafeBox | None = None
    unsafe_values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Axis values that fit in no combination of the box."""
    by_model: tuple[ModelVerdict, ...] = ()
    """One for each value of the axis that chooses the model; none where no axis does."""


class SpaceVerdict(Struct, frozen=True):
    """All boxes of one study, judged; `worst` is the worst of their worsts."""

    boxes: tuple[BoxVerdict, ...]
    counts: Counts
    worst: Point
    combinations: int | None
