"""Services that record a run: those that are not installed, and sweeps that a program makes itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import STEP, dry_run

pytest.importorskip("torch")

HANDLED = """\
try:
    import comet_ml
    kept = comet_ml.config.get_config()
except ImportError:
    comet_ml = None
assert comet_ml is None
step(); step()
"""
SWEPT = """\
import wandb
def train():
    with wandb.init(config={"width": 8, "lr": 0.1}):
        assert (wandb.config.width, wandb.config.lr, wandb.config.kind) == (256, 0.3, "small")
        step(); step()
asked = {"width": {"values": [16, 256]}, "lr": {"min": 0.1, "max": 0.3}, "kind": {"values": ["small", "large"]}}
wandb.agent(wandb.sweep({"method": "random", "parameters": asked}, project="x"), function=train, count=5)
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (HANDLED, ""),
        pytest.param(SWEPT, "one trial of the program's sweep was run, with width=256, lr=0.3", marks=pytest.mark.slow),
    ],
)
def test_a_logger_that_is_not_installed(tmp_path: Path, program: str, said: str) -> None:
    (tmp_path / "train.py").write_text(STEP + program)
    found = dry_run(tmp_path, "--output-format", "json", "--", "python", "train.py")
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"] == [2]
    assert any(said in one for one in found.data["dry_run"]["assumptions"]) or not said
