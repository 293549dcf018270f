"""The work of a check grows with the size of a tree, not with its square. It counts calls and reads no clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).resolve().parents[2] / "benchmarks" / "speed"
ALLOWED = 2.6
"""Twice as many files more take twice the work more; what takes the square takes four times as much. Trees that are
much smaller than these grow faster at first, since their files are more alike."""
COUNT = """
import sys
from pathlib import Path
from preflight.engine.check import CheckOptions, check, setup
from preflight.engine.files import batches
from preflight.system import forked
from preflight.vocabulary import budgets

forked.most_copies = lambda: 0  # their calls are not counted
for name in ("READING_SECONDS", "PROOF_SECONDS", "TRACES_SECONDS"):
    setattr(budgets, name, budgets.Budget(10**6, getattr(budgets, name).of))
count = 0

def called(frame, event, argument):
    global count
    count += event in ("call", "c_call")

folder = Path(sys.argv[1])
(batch,) = batches([str(folder)], folder, from_hook=False)
sys.setprofile(called)
report = check(*setup(batch, CheckOptions(), folder))
sys.setprofile(None)
assert report.studies
assert not any(one.rule == "internal-error" for one in report.findings), report.findings[0].message
print(count)
"""
"""Counts the calls of functions, built-in ones among them, in one check. No clock ends any part of it: counting makes a
check several times slower. Each check has a process of its own: what caches keep of an earlier one would spare a small
tree more than a large one."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("scripts", 24), ("monorepo", 1000), ("hydra", 140)])
def test_work_is_linear(kind: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SPEED)
    import trees

    def work(times: int) -> int:
        folder = tmp_path / f"{times}"
        trees.write(kind, times * count, folder)
        told = subprocess.run(
            [sys.executable, "-c", COUNT, str(folder)],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        return int(told.stdout)

    small, middle, large = work(1), work(2), work(4)
    assert large - middle <= ALLOWED * (middle - small)
