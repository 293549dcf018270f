"""Drawings of a step and maps of what fits: in characters and as figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from processes import HANGS

from preflight.engine.estimator import Estimator
from preflight.machines.gpus import find_gpu
from preflight.reports.drawings import HEIGHT, drawn, drawn_map
from preflight.reports.figures import map_figure, step_figure
from preflight.reports.plot import figure, format_of
from preflight.reports.style import Look
from preflight.reports.svg import step
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.estimates import Estimates, StepMoment
from preflight.vocabulary.job import Job, build

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


@pytest.mark.parametrize(("suffix", "head"), [(".svg", b"<svg"), (".png", b"\x89PNG")])
def test_figure(suffix: str, head: bytes) -> None:
    if suffix == ".png":
        pytest.importorskip("matplotlib")
    kind = format_of(Path(f"x{suffix}"))
    shown = step_figure(STEP, GIB, 8 * GIB, 100)
    assert shown is not None
    first = figure("a title", shown, "lm_head", kind)
    assert first.startswith(head)
    assert first == figure("a title", shown, "lm_head", kind)


def test_terminal_file_and_page_have_one_figure() -> None:
    shown = step_figure(STEP, 2 * GIB, 8 * GIB, 67)  # as wide as the drawing of a terminal with 80 columns
    assert shown is not None
    file, inside = figure("<a title>", shown, "lm_head", "svg").decode(), step(shown, "a step")
    paths = re.findall(r'<path class="c\d" d="[^"]+"/>', inside)
    assert len(paths) == len(shown.layers)
    assert all(path in file for path in paths)
    assert ElementTree.fromstring(file).tag.endswith("svg")
    assert "&lt;a title&gt;: peak 11.9 GiB, forward in lm_head" in file
    assert drawn(STEP, 2 * GIB, 8 * GIB, Look(width=80))[0].strip().startswith(f"{shown.peak.height / GIB:.1f}")


def test_other_formats_are_refused() -> None:
    with pytest.raises(UsageError, match=r"an \.svg or a \.png"):
        format_of(Path("x.pdf"))


def test_map_grows_and_marks() -> None:
    gpu = find_gpu("RTX 3060")
    job = build({"model.name": "bert-base-uncased", "train.batch_size": 1, "train.seq_len": 128})
    lines = list(drawn_map(job, Estimator(gpu).full, "RTX 3060", Look()))
    rows = [[float(cell.lstrip("!~*")) for cell in line.split()] for line in lines[2:]]
    assert all(row[1:] == sorted(row[1:]) for row in rows[3:])
    assert "!" in lines[-1]
    assert "!" not in lines[2]
    assert "1,024" not in lines[1]  # more than its positions


def test_map_of_a_need_that_no_length_changes_has_one_column() -> None:
    job = build({"model.parameters": 10, "train.batch_size": 300})
    law = Estimator(find_gpu("H100")).full
    known = build({"model.name": "bert-base-uncased", "train.seq_len": 128})

    def seen(asked: Job) -> Estimates:
        """As of a dry run that saw no length: the batch alone counts."""
        return law(with_fields(known, {"train.batch_size": asked.train.batch_size}))

    found = map_figure(job, seen, "H100")
    assert found.sizes == (None,)
    assert [batch for batch, _ in found.rows][-2:] == [256, 512]  # beyond the batch of the job
    assert list(drawn_map(job, seen, "H100", Look()))[1].split() == ["batch", "GiB"]


def test_command_writes_a_figure(tmp_path: Path) -> None:
    out = tmp_path / "step.svg"
    command = [sys.executable, "-m", "preflight", "estimate", "bert-base-uncased", "--set", "train.batch_size=8"]
    done = subprocess.run([*command, "--set", "train.seq_len=128", "--plot", str(out)], capture_output=True, text=True,
                          timeout=HANGS, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bert-base-uncased" in out.read_text()
    assert "memory through a step" in done.stdout
