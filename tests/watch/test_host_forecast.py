"""What the host's memory will not hold: said once it shows, and certain only where the kernel says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.vocabulary.estimates import HostEstimate, Interval
from preflight.vocabulary.watched import WatchedHost, WatchedRank
from preflight.watch.forecast import host_forecasts
from preflight.watch.host import BATCHES, LEAST_GROWTH, ControlGroup, Growth

MIB = 2**20
RANK = WatchedRank(0, samples={"sample_bytes": 5}, batches=100, epoch=1000)


def nothing(_: int) -> None:
    return None


def needs(low: int, expected: int) -> HostEstimate:
    return HostEstimate(Interval(low, expected, expected), {}, None, "", "exceeds", peak="validation")


@pytest.mark.parametrize(
    ("host", "kinds"),
    [
        (WatchedHost(), []),
        (WatchedHost(pressure=9.9), []),
        (WatchedHost(pressure=12.0), [("pressure", True)]),
        (WatchedHost(limit=100, used=97, rising=True), [("pressure", True)]),
        (WatchedHost(limit=100, used=97), []),
        (WatchedHost(limit=100, used=50, rising=True), []),
        (WatchedHost(limit=2000, used=500, growth=2), [("growth", False)]),
        (WatchedHost(limit=2000, used=500, growth=1), []),
        (WatchedHost(used=500, growth=2), []),
    ],
)
def test_signs(host: WatchedHost, kinds: list[tuple[str, bool]]) -> None:
    assert [(one.kind, one.certain) for one in host_forecasts(host, (RANK,), nothing)] == kinds


@pytest.mark.parametrize(("low", "expected", "kinds"), [(50, 90, []), (50, 110, [False]), (105, 110, [True])])
def test_the_law_with_the_measured_sample(low: int, expected: int, kinds: list[bool]) -> None:
    asked: list[int] = []

    def need(size: int) -> HostEstimate:
        asked.append(size)
        return needs(low, expected)

    found = list(host_forecasts(WatchedHost(limit=100), (RANK,), need))
    assert [one.certain for one in found] == kinds
    assert all("validation is expected" in one.text for one in found)
    assert asked == [5]


def test_growth_of_the_same_processes_alone() -> None:
    growth, size = Growth(), 100 * MIB
    assert growth.seen(BATCHES - 1, 0, 3) == 0
    assert growth.seen(BATCHES, size, 3) == 0
    assert growth.seen(2 * BATCHES - 1, 9 * size, 3) == 0  # too few batches
    assert growth.seen(2 * BATCHES, size + LEAST_GROWTH - 1, 3) == 0  # noise
    assert growth.seen(2 * BATCHES, size + 2 * LEAST_GROWTH, 3) == 2 * LEAST_GROWTH // BATCHES
    assert growth.seen(3 * BATCHES, 9 * size, 4) == 0  # another worker
    assert growth.seen(4 * BATCHES, 9 * size + 4 * LEAST_GROWTH, 4) == 4 * LEAST_GROWTH // BATCHES


def test_pressure_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "avg10={} avg60=0.00 avg300=0.00 total=1\n"
    (tmp_path / "memory.pressure").write_text(f"some {line.format('40.00')}full {line.format('12.50')}")
    assert ControlGroup(tmp_path, 2).pressure == 12.5
    monkeypatch.setattr("preflight.watch.host.PROCESSES", tmp_path / "none")
    assert ControlGroup(tmp_path / "gone", 2).pressure == 0.0
