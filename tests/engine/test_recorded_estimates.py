"""Recorded runs in check and estimate: said where they count, and silent where they might be of another job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import preflight
from folders import Write

from preflight.api import job_of
from preflight.engine.check import CheckOptions, check, setup
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.engine.points import measured_of
from preflight.engine.recorded import words_of
from preflight.machines.gpus import find_gpu
from preflight.store import database
from preflight.store.records import kept_run
from preflight.store.runs import add
from preflight.vocabulary.watched import WatchedMachine, WatchedRank, WatchedRun

GIB = 2**30
JOB: Mapping[str, object] = {
    "model.name": "bert-base-uncased", "task": "sequence-classification", "train.batch_size": 32, "train.seq_len": 128,
    "train.sequences": "exact",
}  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data" / "runs.sqlite"
    monkeypatch.setenv(database.PLACE, str(path))
    return path


def ran(fields: Mapping[str, object], size: int, gpu: str = "NVIDIA GeForce RTX 4090") -> None:
    peaks = {"backward": {"requested": size, "allocated": size, "reserved": size}}
    rank = WatchedRank(0, machine=WatchedMachine(gpu, 24 * GIB), peaks=peaks, steps=9)
    add(kept_run(WatchedRun(0, 1.0, (rank,)), job_of(fields), None))


def said(fields: Mapping[str, object], calibration: bool = True, gpu: str = "RTX 4090") -> tuple[str, ...]:
    found = Estimator(find_gpu(gpu), calibration=calibration).full(job_of(fields)).device
    assert found is not None
    return found.recorded


def test_nothing_where_nothing_was_recorded(store: Path) -> None:
    assert said(JOB) == ()
    assert not store.exists()


def test_files_of_others_that_are_no_runs_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.PLACE, f"{tmp_path}/team/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ran({**JOB, "train.batch_size": 16}, 5 * GIB)
    for name in ("torn", "other"):
        (tmp_path / "team" / f"{name}.jsonl").write_text("{")
    assert said(JOB) == ("left out of the folder of runs: 2 files (preflight runs names them)",)


def test_other_jobs_and_other_gpus_say_nothing() -> None:
    ran({**JOB, "train.batch_size": 16}, 5 * GIB)
    ran(JOB, 5 * GIB, "Tesla T4")
    assert said(JOB) == ()


def test_the_same_job_says_so_and_may_be_left_out() -> None:
    ran(JOB, 5 * GIB)
    [words] = said(JOB)
    assert words.startswith("ran before: peak 5.")
    assert said(JOB, calibration=False) == ()


def test_a_damaged_store_is_one_line(store: Path) -> None:
    store.parent.mkdir()
    store.write_bytes(b"no database")
    store.chmod(0o600)
    [words] = said(JOB)
    assert words.startswith("recorded runs are not used: ")
    assert words_of(job_of(JOB)) == words


def test_a_job_of_which_little_is_known_is_no_other_job() -> None:
    ran({"train.batch_size": 32}, 5 * GIB)
    ran({"model.parameters": 110_000_000, "train.batch_size": 32}, 5 * GIB)
    assert words_of(job_of({"train.batch_size": 32})) == ""
    bound = Estimator(find_gpu("RTX 4090"), calibration=True).full(
        job_of({"model.parameters": 110_000_000, "train.batch_size": 32})
    )
    assert bound.device is None or bound.device.recorded == ()


SCRIPT = """
import torch
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
loader = torch.utils.data.DataLoader(data, batch_size=32)
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    model(input_ids=x, labels=y).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_check_says_it_where_no_gpu_is_named(project: Write) -> None:
    folder = project({"train.py": SCRIPT})
    notes = []
    for _ in range(2):
        report = check(*setup(batches(["train.py"], folder, False)[0], CheckOptions(calibration=True), folder))
        [study] = report.studies
        notes.append(study.notes)
        job = study.space.worst.job
        rank = WatchedRank(0, machine=WatchedMachine("A100", 80 * GIB), peaks={"backward": {"reserved": 3 * GIB}})
        add(kept_run(WatchedRun(0, 1.0, (rank,)), job, None))
    assert notes[0] == ()
    assert notes[1][0].startswith("ran before: peak 3 GiB (reserved) on A100 (1 run")


def test_an_estimate_of_a_file_says_it(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project({"train.py": SCRIPT})
    [study] = check(*setup(batches(["train.py"], folder, False)[0], CheckOptions(), folder)).studies
    rank = WatchedRank(0, machine=WatchedMachine("A100", 80 * GIB), peaks={"backward": {"reserved": 3 * GIB}})
    add(kept_run(WatchedRun(0, 1.0, (rank,)), study.space.worst.job, None))
    assert preflight(capsys, "estimate", "train.py").out.count("ran before: peak") == 1


@pytest.mark.parametrize("more", [(), ("--output-format", "json")])
def test_an_estimate_says_it_where_no_gpu_is_named(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    values = [word for name, value in JOB.items() if name != "model.name" for word in ("--set", f"{name}={value}")]
    words = ("estimate", "bert-base-uncased", *values, *more)
    assert "ran before" not in preflight(capsys, *words).out
    ran(JOB, 5 * GIB)
    assert preflight(capsys, *words).out.count("ran before: peak") == 1
    assert "ran before" not in preflight(capsys, *words, "--no-calibration").out


def test_runs_of_a_job_beside_its_estimate(tmp_path: Path) -> None:
    gpu = find_gpu("RTX 4090")
    assert measured_of(job_of(JOB), gpu) == ()
    for size in (5 * GIB, 6 * GIB):
        ran(JOB, size)
    ran(JOB, 7 * GIB, "Tesla T4")
    ran({**JOB, "train.batch_size": 16}, 8 * GIB)
    assert {one.peak("reserved") for one in measured_of(job_of(JOB), gpu)} == {5 * GIB, 6 * GIB}
    assert len(measured_of(job_of(JOB), None)) == 3
    assert measured_of(job_of({"train.batch_size": 8}), gpu) == ()  # any other job of which as little is known


def test_pages_of_runs_and_of_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    nothing = preflight(capsys, "runs", "--output", f"html={page}")
    assert (nothing.status, page.exists()) == (2, False)
    ran(JOB, 5 * GIB)
    assert preflight(capsys, "runs", "--output", f"html={page}").status == 0
    assert "5 GiB" in page.read_text()
    values = [word for name, value in JOB.items() if name != "model.name" for word in ("--set", f"{name}={value}")]
    words = ("estimate", "bert-base-uncased", "--gpu", "RTX 4090", *values, "--output", f"html={page}")
    assert preflight(capsys, *words).status == 0
    assert "Measured beside predicted" in page.read_text()
    assert "ran before: peak" in page.read_text()
    assert preflight(capsys, *words, "--no-calibration").status == 0
    assert "Measured beside predicted" not in page.read_text()


@pytest.mark.parametrize("words", [("--output", "page.html"), ("--output", "html=a", "--import", "b.jsonl")])
def test_outputs_of_runs_that_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight(capsys, "runs", *words).status == 2
