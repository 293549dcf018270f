"""A program with a model of its own gets a figure as a function of its batch; where the reading ends, the bound of its
parameters with the line that ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from folders import Write

from preflight.engine.check import Analysis, CheckOptions, analyse, setup
from preflight.engine.files import batches
from tests.tracer.own_models_as_text import PROGRAMS


def analysed(project: Write, root: Path, text: str) -> Analysis:
    project({"train.py": text})
    [found] = batches(["train.py"], root, from_hook=False)
    return analyse(*setup(found, CheckOptions(gpu="T4"), root))


def test_a_figure_names_where_it_was_read(project: Write, tmp_path: Path) -> None:
    (result,) = analysed(project, tmp_path, PROGRAMS["resnet"]).studies
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.verdict == "fits"
    assert not found.lower_bound
    assert any("ResNet was read from train.py:" in note and "not executed" in note for note in found.notes)
    job = result.space.worst.job
    assert str(job.model.target).startswith("read:train.py:ResNet#")
    assert found.largest_batch_size is not None
    assert found.largest_batch_size > 8


def test_a_setting_decides_the_width(project: Write, tmp_path: Path) -> None:
    text = PROGRAMS["mlp"].replace("MLP(12, 32, outside=3)", "MLP(12, args.width, outside=3)")
    parsed = "import argparse\nparser = argparse.ArgumentParser()\n"
    parsed += "parser.add_argument('--width', type=int, default=48)\nargs = parser.parse_args()\n"
    (result,) = analysed(project, tmp_path, text.replace("\ndef main", f"\n{parsed}\ndef main")).studies
    job = result.space.worst.job
    assert job.model.kwargs == {"hidden": 48}
    assert result.space.worst.estimates.device is not None
    assert not result.space.worst.estimates.device.lower_bound


def test_where_the_reading_ends_there_is_a_bound_and_the_line(project: Write, tmp_path: Path) -> None:
    text = PROGRAMS["lenet"].replace("x = self.fc2(x)", "x = outside(self.fc2(x))")
    (result,) = analysed(project, tmp_path, text).studies
    found = result.space.worst.estimates.device
    assert found is not None
    assert found.lower_bound
    assert found.verdict == "unknown"
    assert found.cannot_trace is not None
    line = 1 + text[: text.index("outside(")].count("\n")
    assert f"train.py, line {line}: outside is not known" in found.cannot_trace.words
