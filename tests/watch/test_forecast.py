"""From the phases seen to those to come: nothing is said too early, or on figures that do not belong together."""

from __future__ import annotations

import pytest

from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.watch.forecast import forecast

SEEN = {"forward": {"reserved": 80}, "backward": {"reserved": 100}, "optimizer": {"reserved": 90}}


def law(validation: int, capacity: int | None = 200, lower_bound: bool = False) -> DeviceEstimate:
    """A context of 10, a peak of 100 reserved in training."""
    top = max(110, validation)
    return DeviceEstimate(
        Interval(0, 90, 100), Interval(0, 95, 100), Interval(top - 10, top - 10, top - 10),
        Interval(top - 11, top, top + 20),
        "backward", "", {}, {"load": 20, "forward": 90, "backward": 110, "optimizer": 100, "validation": validation},
        None, capacity, "fits", lower_bound,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "seen", "steps"),
    [
        (law(150), SEEN, 5),  # it fits
        (law(300), SEEN, 1),  # the optimizer's states may be missing
        (law(300), {"forward": {"reserved": 80}}, 5),
        (law(300), {**SEEN, "validation": {"reserved": 10}}, 5),  # seen already
        (law(300, None), SEEN, 5),
        (law(300, lower_bound=True), SEEN, 5),
        (law(300), {phase: {"reserved": 2} for phase in SEEN}, 5),  # another job runs
        (law(300), {phase: {"allocated": 99} for phase in SEEN}, 5),  # another tier
    ],
)
def test_nothing_is_said(found: DeviceEstimate, seen: dict[str, dict[str, int]], steps: int) -> None:
    assert forecast(found, seen, steps, None) is None


def test_a_validation_that_will_not_fit() -> None:
    found = forecast(law(300), SEEN, 2, None)
    assert found is not None
    assert (found.phase, found.expected, found.certain) == ("validation", 300, True)


def test_what_was_measured_moves_it() -> None:
    double = {phase: {"reserved": 2 * sizes["reserved"]} for phase, sizes in SEEN.items()}
    found = forecast(law(150), double, 2, None)
    assert found is not None
    assert (found.expected, found.residual) == (290, 2.0)
    half = {phase: {"reserved": sizes["reserved"] // 2} for phase, sizes in SEEN.items()}
    assert forecast(law(300), half, 2, None) is None


def test_the_card_that_was_seen_counts() -> None:
    assert forecast(law(150), SEEN, 2, 120) is not None


@pytest.mark.parametrize(("share", "capacity"), [(120, None), (120, 500), (500, 120)])
def test_a_memory_fraction_limits_what_is_reserved(share: int, capacity: int | None) -> None:
    """The context of 10 comes on top of it."""
    found = forecast(law(150), SEEN, 2, capacity, share)
    assert found is not None
    assert found.capacity == min(share + 10, capacity or 200)
    assert forecast(law(150), SEEN, 2, None, 140) is None
