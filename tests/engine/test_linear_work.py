"""The work of a check grows with the size of a tree, not with its square. It counts calls and reads no clock."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from preflight.engine.check import CheckOptions, check, setup
from preflight.engine.files import batches
from preflight.system import forked

SPEED = Path(__file__).resolve().parents[2] / "benchmarks" / "speed"
ALLOWED = 3
"""Twice as many files more take twice the work more; what takes the square takes four times as much. Counts of few
files vary by a tenth from run to run, since objects that were freed leave caches."""


def calls(folder: Path) -> int:
    """Calls of functions, built-in ones among them, in one check."""
    count = 0

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        (batch,) = batches([str(folder)], folder, from_hook=False)
        check(*setup(batch, CheckOptions(), folder))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("scripts", 24), ("monorepo", 500), ("hydra", 140)])
def test_work_is_linear(kind: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SPEED)
    monkeypatch.setattr(forked, "most_copies", lambda: 0)  # their calls are not counted
    import trees

    def work(times: int) -> int:
        trees.write(kind, times * count, tmp_path / f"{times}")
        return calls(tmp_path / f"{times}")

    work(1)  # what every process makes once: laws, tables, imports
    small, middle, large = work(1), work(2), work(4)
    assert large - middle <= ALLOWED * (middle - small)
