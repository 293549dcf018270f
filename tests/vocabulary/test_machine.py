"""Swap counts only where the cluster says that a job may use it."""

from __future__ import annotations

import pytest

from preflight.vocabulary.machine import Cgroup, usable_swap


@pytest.mark.parametrize(
    ("swap", "memory", "cgroup", "usable"),
    [
        (None, 100, Cgroup(constrain_swap=False), None),
        (8, 100, Cgroup(), None),
        (8, 100, Cgroup(constrain_swap=False), 8),
        (8, 100, Cgroup(constrain_swap=True), 0),
        (8, 100, Cgroup(constrain_swap=True, allowed_swap_percent=5), 5),
        (8, 100, Cgroup(constrain_swap=True, allowed_swap_percent=50), 8),
        (8, None, Cgroup(constrain_swap=True, allowed_swap_percent=50), None),
    ],
)
def test_usable(swap: int | None, memory: int | None, cgroup: Cgroup, usable: int | None) -> None:
    assert usable_swap(swap, memory, cgroup) == usable
