"""Checks of open texts, one after another: what is kept from one to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import PROGRAM

from preflight.editor.checks import Checker

SWEEP = "program: train.py\nmethod: grid\nparameters:\n  batch_size: {values: [8, 16]}\n  max_length: {value: 64}\n"


def test_estimates_are_kept_until_they_are_to_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings, sweep = tmp_path / "preflight.toml", tmp_path / "sweep.yaml"
    settings.write_text('gpu = "RTX 4090"\nset.train.compile = false\n')
    (tmp_path / "train.py").write_text(PROGRAM)
    checker = Checker(tmp_path, lambda: False)

    def estimators(text: str) -> object:
        [asked] = checker.check({sweep: text}, prove=False).setups
        return asked.estimators

    first = estimators(SWEEP)
    assert estimators(SWEEP.replace("16", "24")) is first
    assert estimators(SWEEP) is first
    checker.forget()
    assert estimators(SWEEP) is not first
