"""Drawings of a step and maps of what fits: in characters and as figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

from preflight.engine.estimator import Estimator
from preflight.machines.gpus import find_gpu
from preflight.reports.map import drawn_map
from preflight.reports.plot import figure, format_of
from preflight.reports.style import Look
from preflight.reports.timeline import HEIGHT, drawn
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.estimates import ALL_PARTS, StepMoment
from preflight.vocabulary.job import build

GIB = 2**30
STEP = [
    *(StepMoment("forward", n * GIB // 10, n * GIB // 10, (0, 0, 0, n * GIB // 10, 0, 0)) for n in range(100)),
    *(
        StepMoment("backward", (99 - n) * GIB // 10, 10 * GIB, (0, 0, 0, (99 - n) * GIB // 10, 0, 0))
        for n in range(100)
    ),
]


def test_drawing_shows_peak_capacity_and_phases() -> None:
    lines = drawn(STEP, 2 * GIB, 8 * GIB, Look(width=80))
    assert len(lines) == HEIGHT + 1
    assert lines[0].strip().startswith("11.9")  # 9.9 and the 2 below
    assert sum("GPU" in line for line in lines) == 1
    assert lines[-1].split() == ["└forward", "└backward"]
    assert all(len(line) <= 84 for line in lines)
    assert lines[HEIGHT - 1].count("█") > lines[0].count("█")


def test_drawing_in_ascii_and_without_room() -> None:
    lines = drawn(STEP, 0, None, Look(unicode=False, width=80))
    assert "\n".join(lines).isascii()
    assert drawn(STEP, 0, None, Look(width=30)) == []
    assert drawn([], 0, None, Look()) == []


@pytest.mark.parametrize(("suffix", "head"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_figure(suffix: str, head: bytes) -> None:
    pytest.importorskip("matplotlib")
    kind = format_of(Path(f"x{suffix}"))
    first = figure("a title", ALL_PARTS, STEP, GIB, 8 * GIB, "lm_head", kind)
    assert first.startswith(head)
    assert first == figure("a title", ALL_PARTS, STEP, GIB, 8 * GIB, "lm_head", kind)


def test_other_formats_are_refused() -> None:
    with pytest.raises(UsageError, match=r"an \.svg or a \.png"):
        format_of(Path("x.pdf"))


def test_map_grows_and_marks() -> None:
    gpu = find_gpu("RTX 3060")
    job = build({"model.name": "bert-base-uncased", "train.batch_size": 1, "train.seq_len": 128})
    lines = list(drawn_map(job, Estimator(gpu).full, "RTX 3060", Look()))
    rows = [[float(cell.lstrip("!?")) for cell in line.split()] for line in lines[2:]]
    assert all(row[1:] == sorted(row[1:]) for row in rows[3:])
    assert "!" in lines[-1]
    assert "!" not in lines[2]
    assert "1,024" not in lines[1]  # more than its positions


def test_command_writes_a_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "step.svg"
    command = [sys.executable, "-m", "preflight", "estimate", "bert-base-uncased", "--set", "train.batch_size=8"]
    done = subprocess.run([*command, "--set", "train.seq_len=128", "--plot", str(out)], capture_output=True, text=True,
                          timeout=HANGS, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bert-base-uncased" in out.read_text()
    assert "memory through a step" in done.stdout
