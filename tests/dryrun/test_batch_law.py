"""Tapes of two batch sizes, and the third that confirms their law or not."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.dryrun.batch_law import NoLaw, law, sizes_to_try
from preflight.dryrun.report_of_process import RunReport, read
from preflight.engine.target import gpu_named
from preflight.memory.device import recorded
from preflight.vocabulary.job import Job

MIB = 2**20
PLACES = [["load", "", "", "/w/a.py:1"], ["forward", "net", "", "/w/a.py:2"], ["backward", "net", "", "/w/a.py:2"]]


def run_of(batch: int, per_sample: int = 3 * MIB, extra: int = 0, **more: Any) -> RunReport:
    """Weights, an activation for each sample, a gradient; backward frees the activation."""
    raw = {
        "end": "finished", "steps": [2], "trained": True, "validated": True, "places": PLACES,
        "sizes": [64 * MIB, batch * per_sample + extra, 64 * MIB, -2, MIB], "at": [0, 1, 2, 2, 1],
        "kinds": {"0": "weights", "2": "gradients"},
    }  # fmt: skip
    return read({**raw, **more})


NONE: dict[str, dict[int, RunReport]] = {
    "another number of tensors": {8: run_of(8), 16: run_of(16, sizes=[1, 2], at=[0, 1]), 24: run_of(24)},
    "another place": {8: run_of(8), 16: run_of(16, at=[0, 2, 2, 2, 1]), 24: run_of(24)},
    "another order of ends": {
        8: run_of(8),
        16: run_of(16, sizes=[64 * MIB, 48 * MIB, 64 * MIB, -1, MIB]),
        24: run_of(24),
    },
    "another third": {8: run_of(8), 16: run_of(16), 24: run_of(24, extra=2 * MIB)},
}


@pytest.mark.parametrize("kind", NONE)
def test_no_law(kind: str) -> None:
    with pytest.raises(NoLaw):
        law(NONE[kind], "/w")


def test_a_law_at_other_batches() -> None:
    found = law({8: run_of(8), 16: run_of(16), 24: run_of(24)}, "/w")
    for batch in (1, 8, 100):
        assert found.at(batch).events == list(run_of(batch).events)
    assert found.plain()["bytes_per_sample"] == [0, 3 * MIB, 0, 0, 0]


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    gpu = gpu_named("RTX 4090", "--gpu")
    found = law({800: run_of(800), 1200: run_of(1200), 1600: run_of(1600)}, "/w")
    largest = found.largest(Job(), gpu)
    assert largest is not None
    assert recorded.estimate(found.at(largest), Job(), gpu).verdict == "fits"
    assert recorded.estimate(found.at(largest + 1), Job(), gpu).verdict != "fits"


def test_a_law_does_not_reach_far() -> None:
    """A batch that nobody ran is named only near those that were."""
    found = law({1: run_of(1, 1024), 2: run_of(2, 1024), 3: run_of(3, 1024)}, "/w")
    assert found.largest(Job(), gpu_named("RTX 4090", "--gpu")) is None


@pytest.mark.parametrize(
    ("own", "others"), [(1, (2, 3)), (2, (3, 4)), (7, (10, 14)), (8, (16, 24)), (64, (96, 128)), (100, (150, 200))]
)
def test_sizes_to_try(own: int, others: tuple[int, int]) -> None:
    assert sizes_to_try(own) == others
