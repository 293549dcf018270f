"""The report on recorded runs: what they used, and whether the forecasts held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.commands.usage import command
from preflight.engine.usage import usage
from preflight.reports import usage as report
from preflight.reports.style import Look
from preflight.store.records import KeptRun, Peak, canonical, plain
from preflight.vocabulary.job import build
from preflight.vocabulary.watched import WatchedMachine

GIB = 1 << 30
MACHINE = WatchedMachine(gpu="NVIDIA A100-SXM4-80GB", gpu_memory=80 * GIB)
LAW = {"reserved": (9 * GIB, 10 * GIB, 11 * GIB), "process": (9 * GIB, int(10.5 * GIB), 12 * GIB)}


def run(number: int, reserved: float, batch: int = 0, outcome: str = "completed", **more: Any) -> KeptRun:
    job = canonical(build({"model.name": "gpt2", "train.batch_size": batch or number + 1, "train.seq_len": 64}))
    peaks = [
        Peak(0, "backward", "reserved", int(reserved * GIB), LAW["reserved"]),
        Peak(0, "all", "process", GIB, LAW["process"]),
    ]
    given = {"machine": MACHINE, "job": job, "world": 2, "rank_max": 1, "seconds": 3600.0, "peaks": tuple(peaks)}
    return KeptRun(f"r{number}", **{**given, **more}, started="2026-01-01T00:00:00Z", outcome=outcome, exit=0)  # type: ignore[arg-type]


def named(job: object) -> str:
    return "gpt2"


def test_what_was_asked_for_and_used() -> None:
    host = {"limit": 64 * GIB, "cgroup_peak": 20 * GIB}
    found = usage({"nlp": [run(0, 10, host=host), run(1, 10.4, host=host)], "vision": [run(2, 9.5)]}, named)
    first = found.groups[0]
    assert (first.team, first.model, first.runs, first.jobs) == ("nlp", "gpt2", 2, 2)
    assert first.ratio == pytest.approx(1.02)
    assert (
        first.most == int(10.4 * GIB) + GIB // 2
    )  # nvidia-smi saw less than PyTorch reserved, so the context is added
    assert first.unused is not None
    assert first.unused_hours == pytest.approx(2 * (2 * 80 - 10.5 - 10.9))
    assert (first.node_limit, first.node_unused) == (64 * GIB, 44 * GIB)
    assert first.smaller_gpu is not None
    precise = canonical(build({"model.name": "gpt2", "train.batch_size": 1, "train.precision": "bf16-mixed"}))
    (able,) = usage({"nlp": [run(0, 10, job=precise)]}, named).groups
    assert able.smaller_gpu not in (None, "Titan Xp")  # which has no bf16
    assert found.groups[1].node_limit is None


def test_what_nobody_measured_is_not_said() -> None:
    law_less = tuple(Peak(0, "all", "reserved", GIB) for _ in (0,))
    (group,) = usage({"nlp": [run(0, 1, peaks=law_less)]}, named).groups
    assert (group.most, group.unused, group.smaller_gpu, group.predicted) == (None, None, None, None)
    assert usage({"nlp": [run(0, 1, job=None)]}, named).left_out == 1


def test_a_forecast_is_held_against_the_run_that_came_after_it() -> None:
    runs = [run(0, 10), run(1, 8), run(2, 12), run(3, 10, batch=1), *(run(9 + n, 12, batch=3) for n in range(9))]
    (test,) = usage({"nlp": runs}, named).tests  # nvidia-smi missed the peaks of all these runs
    assert test.tier == "reserved"
    assert (test.jobs, test.inside, test.below, test.above) == (3, 1, 1, 1)  # many runs of a job are one vote
    assert test.low < test.share < test.high


def test_a_run_that_died_took_more_than_it_shows() -> None:
    """It was forecast to fit its card, so it is above the interval whatever it had when it died."""
    small = WatchedMachine(gpu="t4", gpu_memory=16 * GIB)
    found = usage({"nlp": [run(0, 10, outcome="oom", machine=small)]}, named)
    assert (found.missed, found.died) == (1, 1)
    assert next(one for one in found.tests if one.tier == "reserved").above == 1
    tiny = WatchedMachine(gpu="t4", gpu_memory=10 * GIB)
    found = usage({"nlp": [run(0, 9.5, outcome="oom", machine=tiny)]}, named)
    assert (found.missed, found.died, found.tests) == (0, 1, ())


def test_the_reports_say_the_same() -> None:
    found = usage({"<nlp>": [run(0, 10), run(1, 12)]}, named)
    text = report.text(found, Look())
    assert "<nlp>" in text
    assert "1 of 2 jobs in the interval" in text
    assert "&lt;nlp&gt;" in report.html(found)
    assert json.loads(json.dumps(report.document(found)))["groups"][0]["team"] == "<nlp>"


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "nlp.jsonl").write_text(json.dumps(plain(run(0, 10))) + "\n{}\n[\n", "utf-8")
    page = tmp_path / "page.html"
    result = CliRunner().invoke(command, [str(tmp_path / "nlp.jsonl"), "--output", f"html={page}"])
    assert result.exit_code == 0, result.output
    assert "nlp" in result.output
    assert result.output.count("note: ") == 2
    assert "gpt2" in page.read_text("utf-8")
